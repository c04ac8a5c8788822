#include "elastic/agent/resume_check.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "config/values/changes.hpp"
#include "elastic/audit.hpp"

namespace pliant::elastic {

tl::unexpected<Error> other_batches(const AgentOrder& order, const Lineage& lineage, const std::string& fingerprint) {
  const auto changes = config::changed_batch_options(order.config_before, order.config.resolved_toml());
  const std::string what =
      changes.empty()
          ? fmt::format("its data set or the version of its sampler has changed (fingerprint {} instead of {})",
                        fingerprint, lineage.fingerprint)
          : fmt::format("{}", fmt::join(changes, ", "));
  return failed(
      Status::kFailedPrecondition,
      fmt::format(
          "cannot resume {}: {}. A resumed job needs the batches that it began with: restore them, or start a new run",
          order.directory.path().string(), what),
      ExitCode::kUsage);
}

Result<> check_ledger(const AgentOrder& order, const Lineage& lineage, Batches& batches) {
  const auto steps = static_cast<int64_t>(lineage.commits.size());
  if (steps == 0) return {};
  const Result<Audit> counted =
      audit(lineage, batches, batches.has_step(steps - 1) ? steps : std::min(steps, steps_of_job(batches)));
  if (!counted) return tl::unexpected<Error>(counted.error());
  if (counted->missing == 0 && counted->repeated == 0) return {};
  return failed(Status::kDataLoss,
                fmt::format("cannot resume {}: its ledger uses {} samples of the first {} steps more than once and {} "
                            "not at all",
                            order.directory.path().string(), counted->repeated, steps, counted->missing));
}

}  // namespace pliant::elastic
