// Whether a job may go on where a run ended: the same batches, and a ledger that used each sample once.
#pragma once

#include <string>

#include "base/result.hpp"
#include "elastic/agent/agent.hpp"
#include "elastic/epoch_log.hpp"
#include "elastic/ledger.hpp"
#include "pliant/batches.hpp"

namespace pliant::elastic {

/// kInput: the workers' batches have another fingerprint than those of the run. Says which options have changed.
tl::unexpected<Error> other_batches(const AgentOrder& order, const Lineage& lineage, const std::string& fingerprint);

/// The committed steps used what the plan gave them, each sample once.
Result<> check_ledger(const AgentOrder& order, const Lineage& lineage, Batches& batches);
/// The same of those in the epoch that `batches` were opened in, which is planned, and no other: what comes before was
/// checked when it was committed, and what comes after is made again.
Result<> check_ledger_in(const BegunEpoch& epoch, const AgentOrder& order, const Lineage& lineage, Batches& batches);

}  // namespace pliant::elastic
