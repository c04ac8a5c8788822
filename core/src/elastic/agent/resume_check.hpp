// Whether a job may go on where a run ended: the same batches, and a ledger that used each sample once.
#pragma once

#include <string>

#include "base/result.hpp"
#include "elastic/agent/agent.hpp"
#include "elastic/ledger.hpp"
#include "pliant/batches.hpp"

namespace pliant::elastic {

/// Exit 2: the workers' batches have another fingerprint than those of the run. Says which options have changed.
tl::unexpected<Error> other_batches(const AgentOrder& order, const Lineage& lineage, const std::string& fingerprint);

/// The committed steps used what the plan gave them, each sample once.
Result<> check_ledger(const AgentOrder& order, const Lineage& lineage, Batches& batches);

}  // namespace pliant::elastic
