// ConfigReplay: derives again what the configs of a run make of its steps beside their samples, and compares with what
// its ledger has: the place of each batch, which rank had which rows, and the learning rate.
#pragma once

#include "elastic/ledger.hpp"
#include "elastic/run_directory.hpp"
#include "pliant/audit.hpp"
#include "pliant/batches.hpp"

namespace pliant::elastic {

/// `batches`: of the run. Every commit of `lineage` names a batch of it, of the same size. Fills what `audit` says of
/// differences, of what was derived and of what could not be. O(samples of the steps). Throws what reading the run
/// throws.
void replay_config(const RunDirectory& directory, const Lineage& lineage, Batches& batches, RunAudit& audit);

}  // namespace pliant::elastic
