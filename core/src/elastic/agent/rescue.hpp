// Rescue: what is saved of a run whose directory was removed or replaced under it.
#pragma once

#include "base/result.hpp"
#include "elastic/agent/agent.hpp"
#include "elastic/ledger.hpp"
#include "elastic/run_directory.hpp"
#include "pliant/batches.hpp"

namespace pliant::elastic {

/// Makes an empty `<directory>-rescued`, or `-rescued-2`, ... where that is taken.
Result<RunDirectory> rescue_directory(const RunDirectory& directory);

/// Puts into `fresh`, which the caller has locked, what a resume of the run in order.directory needs: of its snapshots
/// those that are left. `digests`: an open file of digests (kDigestsFile) whose lines go along, as an audit needs them;
/// -1: there is none. Returns the ledger there.
Result<Ledger> rescue_run(const RunDirectory& fresh, const AgentOrder& order, const Dataset& dataset,
                          const Ledger& ledger, int digests);

}  // namespace pliant::elastic
