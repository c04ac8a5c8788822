// What the packs of an epoch fill of their budget.
#include "pack_sampler.hpp"

namespace pliant::sampler {

sdk::PackingReport report_packs(const PackOptions& options, const sdk::PackedEpoch& epoch) {
  const auto report = [&](auto&& size) {
    return report_sums(epoch, options.max_tokens, static_cast<uint64_t>(options.max_sequences), options.unit(), size);
  };
  if (options.counts_loss() && !epoch.loss_tokens().empty()) {
    return report([&](int64_t id, int64_t) { return loss_size(epoch.loss_tokens(), id); });
  }
  return report([cost = options.cost()](int64_t, int64_t tokens) { return cost(tokens); });
}

}  // namespace pliant::sampler
