// DeepSpeed's batch search, by divisors instead of by trying every world size.
#include "deepspeed.hpp"

#include <algorithm>
#include <numeric>

#include "highly_composite.hpp"
#include "numbers.hpp"
#include "sharing.hpp"

namespace pliant::elasticity {
namespace {

struct Candidate {
  Factored batch;
  SizeBound bound;
};

Factored scaled(const Factored& base, int64_t cap, size_t known) {
  if (base.number >= cap) return base;
  const HighlyComposite& by = largest_highly_composite(cap / base.number, known);
  Factored product = base;
  product.number *= by.number;
  for (size_t p = 0; p < kFirstPrimeCount; ++p) {
    product.exponents[p] = static_cast<uint8_t>(product.exponents[p] + by.exponents[p]);
  }
  return product;
}

std::vector<Candidate> candidates(const Search& search, const MicroBatches& micro_batches, const SizeLimits& limits) {
  const size_t known = search.strict ? kHighlyCompositeCount : kDeepSpeedCount;
  std::vector<Candidate> found;
  found.reserve(micro_batches.sizes().size() + 1);
  const auto add = [&](const Factored& base) {
    const Factored batch = scaled(base, search.cap, known);
    found.push_back({batch, micro_batches.bound(batch, limits)});
  };
  for (const Factored& base : micro_batches.sizes()) add(base);
  const Factored& multiple = micro_batches.common_multiple();
  if (multiple.number <= search.cap || search.lcm_may_exceed_cap) add(multiple);
  return found;
}

/// Those that more sizes may share come first; of two that equally many may share, the preferred one. Each batch once.
std::vector<const Candidate*> best_first(const std::vector<Candidate>& candidates, bool prefer_larger) {
  std::vector<const Candidate*> order;
  order.reserve(candidates.size());
  for (const Candidate& candidate : candidates) order.push_back(&candidate);
  std::sort(order.begin(), order.end(), [prefer_larger](const Candidate* a, const Candidate* b) {
    if (a->bound.most != b->bound.most) return a->bound.most > b->bound.most;
    return prefer_larger ? a->batch.number > b->batch.number : a->batch.number < b->batch.number;
  });
  order.erase(std::unique(order.begin(), order.end(),
                          [](const Candidate* a, const Candidate* b) { return a->batch.number == b->batch.number; }),
              order.end());
  return order;
}

}  // namespace

// A candidate is left out only when its bound says that it cannot win, so the order of the candidates decides nothing.
Found best_batch(const Search& search) {
  const auto [smallest, largest] = std::minmax_element(search.micro_batches.begin(), search.micro_batches.end());
  if (*largest > search.cap) {
    throw sdk::Failure(PLIANT_OUT_OF_RANGE,
                       "micro_batch_sizes has " + std::to_string(*largest) + ", but a global batch may have at most " +
                           std::to_string(search.cap) + " rows; raise max_train_batch_size or drop that size",
                       "micro_batch_sizes max_train_batch_size");
  }
  const MicroBatches micro_batches(search.micro_batches);
  const SizeLimits limits{search.low, search.high};
  Found best;
  best.batch = *smallest;
  best.undecided = true;
  int64_t most = 0;
  const Factored* winner = nullptr;
  const std::vector<Candidate> all = candidates(search, micro_batches, limits);
  for (const Candidate* candidate : best_first(all, search.prefer_larger)) {
    if (candidate->bound.most < most) break;
    const int64_t batch = candidate->batch.number;
    const bool preferred = search.prefer_larger ? batch > best.batch : batch < best.batch;
    if (candidate->bound.most == most && !preferred) continue;
    const int64_t count =
        candidate->bound.exact ? candidate->bound.most : micro_batches.count(candidate->batch, limits);
    if (count < most || (count == most && !preferred)) continue;
    most = count;
    winner = &candidate->batch;
    best.batch = batch;
    best.undecided = false;
  }
  if (most > 0) best.sizes = micro_batches.list(*winner, limits);
  best.table_ended = !search.strict && largest_highly_composite(search.cap / *smallest).number >
                                           largest_highly_composite(search.cap / *smallest, kDeepSpeedCount).number;
  return best;
}

void require_sizes(const Found& found, const DeepSpeedOptions& options) {
  if (!found.sizes.empty()) return;
  throw sdk::Failure(PLIANT_OUT_OF_RANGE,
                     "no size from min_gpus " + std::to_string(options.min_gpus) + " to max_gpus " +
                         std::to_string(options.max_gpus) + " can divide a batch up to " +
                         std::to_string(options.max_train_batch_size) +
                         " rows evenly; widen the limits, or use = \"exact\" with the same max_train_batch_size and "
                         "micro_batch_sizes",
                     "min_gpus max_gpus max_train_batch_size");
}

std::string table_end_warning(int64_t batch) {
  return "rule 0.1 scales by a table that ends at 720720, so the global batch stops growing at " +
         std::to_string(batch) + " rows; strict = true continues";
}

int64_t largest_micro_batch(const std::vector<int64_t>& micro_batches, int64_t batch, int64_t world_size) {
  int64_t largest = 0;
  for (const int64_t micro : micro_batches) {
    if (batch / world_size % micro == 0) largest = std::max(largest, micro);
  }
  return largest;
}

int64_t granule(const std::vector<int64_t>& micro_batches, int64_t batch) {
  return std::gcd(greatest_common_divisor(micro_batches), batch);
}

std::vector<sdk::WorldRange> as_ranges(const std::vector<int64_t>& sizes) {
  std::vector<sdk::WorldRange> ranges;
  ranges.reserve(sizes.size());
  for (const int64_t size : sizes) {
    if (!ranges.empty() && ranges.back().last + 1 == size) {
      ranges.back().last = size;
    } else {
      ranges.push_back({size, size});
    }
  }
  return ranges;
}

void check_limits(const DeepSpeedOptions& options) {
  sdk::require(options.min_gpus <= options.max_gpus,
               "min_gpus is " + std::to_string(options.min_gpus) + ", more than max_gpus, which is " +
                   std::to_string(options.max_gpus),
               "min_gpus max_gpus");
}

void check_world_size(int64_t world_size) {
  if (world_size >= 0) return;
  throw sdk::Failure(PLIANT_INVALID_ARGUMENT,
                     "world size " + std::to_string(world_size) + " is negative; give at least 1, or 0 for any");
}

std::string not_valid(int64_t world_size, int64_t batch, const std::vector<int64_t>& sizes) {
  const std::string text =
      "world size " + std::to_string(world_size) + " is not valid for global batch " + std::to_string(batch);
  const auto above = std::upper_bound(sizes.begin(), sizes.end(), world_size);
  std::string nearest;
  if (above != sizes.begin() && *std::prev(above) > 0) nearest = std::to_string(*std::prev(above));  // 0.2 can answer 0
  if (above != sizes.end()) nearest += (nearest.empty() ? "" : ", ") + std::to_string(*above);
  if (nearest.empty()) return text + "; no world size from min_gpus to max_gpus is";
  return text + "; nearest valid: " + nearest;
}

int64_t micro_batch_at(const DeepSpeedOptions& options, int64_t world_size, int64_t batch,
                       const std::vector<int64_t>& sizes) {
  if (!std::binary_search(sizes.begin(), sizes.end(), world_size)) {
    throw sdk::IncompatibleWorldSize(not_valid(world_size, batch, sizes));
  }
  const int64_t micro = largest_micro_batch(options.micro_batch_sizes, batch, world_size);
  if (micro == 0) {
    throw sdk::IncompatibleWorldSize("at world size " + std::to_string(world_size) + " a rank has " +
                                     std::to_string(batch / world_size) + " of " + std::to_string(batch) +
                                     " rows, which none of micro_batch_sizes divides");
  }
  return micro;
}

}  // namespace pliant::elasticity
