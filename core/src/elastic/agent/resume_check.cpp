#include "elastic/agent/resume_check.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "config/values/changes.hpp"
#include "elastic/audit.hpp"

namespace pliant::elastic {

namespace {

/// The commits of `lineage` are those of the steps from `from` on, up to `steps`.
Result<> check_from(const AuditFrom& from, int64_t steps, const AgentOrder& order, const Lineage& lineage,
                    Batches& batches) {
  if (steps == from.step) return {};
  const Result<Audit> counted =
      audit(lineage, batches, batches.has_step(steps - 1) ? steps : std::min(steps, steps_of_job(batches)), from);
  if (!counted) return tl::unexpected<Error>(counted.error());
  if (counted->missing == 0 && counted->repeated == 0) return {};
  return failed(Status::kDataLoss,
                fmt::format("cannot resume {}: its ledger uses {} samples of the first {} steps more than once and {} "
                            "not at all",
                            order.directory.path().string(), counted->repeated, steps, counted->missing));
}

}  // namespace

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
      Origin::kInput);
}

Result<> check_ledger(const AgentOrder& order, const Lineage& lineage, Batches& batches) {
  return check_from({}, static_cast<int64_t>(lineage.commits.size()), order, lineage, batches);
}

Result<> check_ledger_in(const BegunEpoch& epoch, const AgentOrder& order, const Lineage& lineage, Batches& batches) {
  const auto of = [&](const CommitRecord& commit) { return commit.epoch - epoch.epoch; };
  const auto first = lineage.commits.begin() + std::min<int64_t>(epoch.first_step, std::ssize(lineage.commits));
  const auto end = std::find_if(first, lineage.commits.end(), [&](const auto& commit) { return of(commit) > 0; });
  const bool fits = epoch.first_step <= std::ssize(lineage.commits) &&
                    std::none_of(first, end, [&](const auto& commit) { return of(commit) < 0; }) &&
                    (first == lineage.commits.begin() || of(*(first - 1)) < 0);
  if (!fits) return failed(Status::kDataLoss, "the list of epochs is another ledger's");
  Lineage in_epoch;
  in_epoch.commits.assign(first, end);
  return check_from({epoch.epoch, epoch.first_step}, end - lineage.commits.begin(), order, in_epoch, batches);
}

}  // namespace pliant::elastic
