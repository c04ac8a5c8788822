// Rescue: what is saved of a run whose directory was removed or replaced under it.
#pragma once

#include "base/durable_file.hpp"
#include "base/result.hpp"
#include "elastic/agent/agent.hpp"
#include "elastic/ledger.hpp"
#include "elastic/run_directory.hpp"
#include "pliant/batches.hpp"

namespace pliant::elastic {

/// Files of lines that workers write, open as long as they last: they may be gone with their directory.
struct HeldLists {
  FileDescriptor digests;  ///< kDigestsFile, which an audit needs
  FileDescriptor epochs;   ///< kEpochsFile, so that a resume need not plan the epochs before
};

/// Makes an empty `<directory>-rescued`, or `-rescued-2`, ... where that is taken.
Result<RunDirectory> rescue_directory(const RunDirectory& directory);

/// Puts into `fresh`, which the caller has locked, what a resume of the run in order.directory needs: of its snapshots
/// those that are left. Returns the ledger there.
Result<Ledger> rescue_run(const RunDirectory& fresh, const AgentOrder& order, const Dataset& dataset,
                          const Ledger& ledger, const HeldLists& lists);

}  // namespace pliant::elastic
