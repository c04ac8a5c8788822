// Straight from the rules' description.
#include "oracle.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace oracle {
namespace {

constexpr int64_t kMostHighlyComposite = int64_t{1} << 20;

std::vector<int64_t> candidates(const Config& config) {
  std::vector<int64_t> bases = config.micro_batches;
  int64_t multiple = 1;
  for (const int64_t micro : bases) multiple = std::lcm(multiple, micro);
  bases.push_back(multiple);
  std::vector<int64_t> found;
  for (const int64_t base : bases) {
    if (base < config.cap) {
      found.push_back(base *
                      highly_composite(std::min(config.cap / base, config.strict ? kMostHighlyComposite : 720720)));
    } else if (base == config.cap || config.lcm_may_exceed_cap) {
      found.push_back(base);
    }
  }
  return found;
}

}  // namespace

int64_t highly_composite(int64_t limit) {
  static const std::vector<int64_t> kAll = [] {
    std::vector<int> divisors(kMostHighlyComposite + 1, 0);
    for (size_t d = 1; d < divisors.size(); ++d) {
      for (size_t n = d; n < divisors.size(); n += d) ++divisors[n];
    }
    std::vector<int64_t> all;
    int most = 0;
    for (size_t n = 1; n < divisors.size(); ++n) {
      if (divisors[n] <= most) continue;
      most = divisors[n];
      all.push_back(static_cast<int64_t>(n));
    }
    return all;
  }();
  return *std::prev(std::upper_bound(kAll.begin(), kAll.end(), limit));
}

std::vector<int64_t> valid_sizes(int64_t batch, const std::vector<int64_t>& micro_batches, int64_t low, int64_t high) {
  std::vector<int64_t> sizes;
  for (int64_t size = std::max<int64_t>(low, 1); size <= std::min(high, batch); ++size) {
    const bool shared = std::any_of(micro_batches.begin(), micro_batches.end(),
                                    [&](int64_t micro) { return batch % micro == 0 && batch / micro % size == 0; });
    if (shared) sizes.push_back(size);
  }
  return sizes;
}

std::optional<Plan> v01(const Config& config) {
  const auto [least, most] = std::minmax_element(config.micro_batches.begin(), config.micro_batches.end());
  if (*most > config.cap) return std::nullopt;
  Plan best{*least, {}, 0};
  for (const int64_t batch : candidates(config)) {
    std::vector<int64_t> sizes = valid_sizes(batch, config.micro_batches, config.low, config.high);
    const bool preferred = config.prefer_larger ? batch > best.batch : batch < best.batch;
    if (sizes.size() > best.sizes.size() || (sizes.size() == best.sizes.size() && preferred)) best = {batch, sizes, 0};
  }
  if (config.strict && best.sizes.empty()) return std::nullopt;
  return best;
}

std::optional<Plan> v02_strict(const Config& config) {
  if (config.devices_per_node % config.model_parallel != 0) return std::nullopt;
  const int64_t per_node = config.devices_per_node / config.model_parallel;
  Config nodes = config;
  nodes.strict = true;
  nodes.cap = config.cap / per_node;
  nodes.low = (config.low + config.devices_per_node - 1) / config.devices_per_node;
  nodes.high = config.high / config.devices_per_node;
  std::optional<Plan> plan = v01(nodes);
  if (!plan) return std::nullopt;
  plan->batch *= per_node;
  for (int64_t& size : plan->sizes) size *= per_node;
  return plan;
}

std::optional<Plan> v02(const Config& config, int64_t devices) {
  if (config.devices_per_node % config.model_parallel != 0) return std::nullopt;
  const int64_t per_node = config.devices_per_node / config.model_parallel;
  Config nodes = config;
  nodes.cap = config.cap / per_node;
  nodes.low = std::max<int64_t>(1, config.low / config.devices_per_node);
  nodes.high = config.high / config.devices_per_node;
  const auto& micros = config.micro_batches;
  if (nodes.high == 0) nodes.high = nodes.cap / *std::min_element(micros.begin(), micros.end());
  std::optional<Plan> plan = v01(nodes);
  if (!plan) return std::nullopt;
  if (plan->sizes.empty() && plan->batch == *std::min_element(micros.begin(), micros.end())) return std::nullopt;
  plan->batch *= per_node;
  for (int64_t& size : plan->sizes) size *= per_node;
  double batch = static_cast<double>(plan->batch);
  if (std::find(plan->sizes.begin(), plan->sizes.end(), devices / config.model_parallel) == plan->sizes.end()) {
    const double ranks =
        static_cast<double>(devices) / static_cast<double>(config.devices_per_node) * static_cast<double>(per_node);
    std::vector<double> multiples;
    for (const int64_t micro : micros) {
      const double step = static_cast<double>(micro) * ranks;
      multiples.push_back(std::floor(static_cast<double>(config.cap) / step) * step);
    }
    batch = config.prefer_larger ? *std::max_element(multiples.begin(), multiples.end())
                                 : *std::min_element(multiples.begin(), multiples.end());
    plan = Plan{static_cast<int64_t>(batch), {static_cast<int64_t>(ranks)}, 0};
  }
  for (const int64_t micro : micros) {
    if (std::fmod(std::floor(batch / static_cast<double>(devices)), static_cast<double>(micro)) != 0) continue;
    if (plan->micro_batch == 0 || (config.prefer_larger && micro > plan->micro_batch)) plan->micro_batch = micro;
  }
  return plan;
}

}  // namespace oracle
