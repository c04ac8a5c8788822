// DeepSpeed's batch search, by divisors instead of by trying every world size.
#include "deepspeed.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

#include "numbers.hpp"

namespace pliant::elasticity {
namespace {

/// Every highly composite number up to 720720. A base is scaled by one of these, so above 720720 * base the batch stops
/// growing.
constexpr std::array<int64_t, 38> kHighlyComposite{
    1,     2,     4,     6,      12,     24,     36,     48,     60,     120,    180,    240,   360,
    720,   840,   1260,  1680,   2520,   5040,   7560,   10080,  15120,  20160,  25200,  27720, 45360,
    50400, 55440, 83160, 110880, 166320, 221760, 277200, 332640, 498960, 554400, 665280, 720720};

int64_t scaled(int64_t base, int64_t cap, bool strict) {
  if (base >= cap) return base;
  if (strict) return base * largest_highly_composite(cap / base);
  return base * *std::prev(std::upper_bound(kHighlyComposite.begin(), kHighlyComposite.end(), cap / base));
}

std::vector<int64_t> candidates(const Search& search) {
  const std::optional<int64_t> lcm = least_common_multiple(search.micro_batches);
  if (!lcm) {
    throw sdk::Failure(
        PLIANT_OUT_OF_RANGE,
        "the least common multiple of micro_batch_sizes does not fit 63 bits; use sizes with common factors");
  }
  std::vector<int64_t> found;
  for (const int64_t base : search.micro_batches) found.push_back(scaled(base, search.cap, search.strict));
  if (*lcm <= search.cap || search.lcm_may_exceed_cap) found.push_back(scaled(*lcm, search.cap, search.strict));
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

/// Micro-batches that divide the batch and are no multiple of a smaller one that does: the others add no size.
std::vector<int64_t> deciding_micro_batches(std::vector<int64_t> micro_batches, int64_t batch) {
  std::sort(micro_batches.begin(), micro_batches.end());
  std::vector<int64_t> kept;
  for (const int64_t micro : micro_batches) {
    if (batch % micro != 0) continue;
    const bool covered =
        std::any_of(kept.begin(), kept.end(), [micro](int64_t smaller) { return micro % smaller == 0; });
    if (!covered) kept.push_back(micro);
  }
  return kept;
}

std::vector<int64_t> sizes_of(int64_t batch, const Search& search) {
  const std::vector<PrimePower> primes = factorize(batch);
  std::vector<int64_t> sizes;
  for (const int64_t micro : deciding_micro_batches(search.micro_batches, batch)) {
    const std::vector<int64_t> divisors = divisors_within(batch / micro, primes, search.low, search.high);
    sizes.insert(sizes.end(), divisors.begin(), divisors.end());
  }
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

}  // namespace

Found best_batch(const Search& search) {
  const int64_t largest = *std::max_element(search.micro_batches.begin(), search.micro_batches.end());
  if (largest > search.cap) {
    throw sdk::Failure(PLIANT_OUT_OF_RANGE, "micro_batch_sizes has " + std::to_string(largest) +
                                                ", but a global batch may have at most " + std::to_string(search.cap) +
                                                " rows; raise max_train_batch_size or drop that size");
  }
  Found best;
  best.batch = *std::min_element(search.micro_batches.begin(), search.micro_batches.end());
  best.undecided = true;
  for (const int64_t batch : candidates(search)) {
    std::vector<int64_t> sizes = sizes_of(batch, search);
    if (sizes.size() < best.sizes.size()) continue;
    const bool preferred = search.prefer_larger ? batch > best.batch : batch < best.batch;
    if (sizes.size() == best.sizes.size() && !preferred) continue;
    best = {batch, std::move(sizes), false, false};
  }
  const int64_t smallest = *std::min_element(search.micro_batches.begin(), search.micro_batches.end());
  best.table_ended = !search.strict && largest_highly_composite(search.cap / smallest) > kHighlyComposite.back();
  return best;
}

void require_sizes(const Found& found, const DeepSpeedOptions& options) {
  if (!found.sizes.empty()) return;
  throw sdk::Failure(PLIANT_OUT_OF_RANGE, "no size from min_gpus " + std::to_string(options.min_gpus) +
                                              " to max_gpus " + std::to_string(options.max_gpus) +
                                              " can share a batch up to " +
                                              std::to_string(options.max_train_batch_size) +
                                              " rows evenly; widen the limits, or use = \"exact\"");
}

std::string table_end_warning(int64_t batch) {
  return "rule 0.1 scales by a table of numbers that ends at 720720, so the global batch stops growing at " +
         std::to_string(batch) + " rows; strict = true goes on";
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
  sdk::require(options.min_gpus <= options.max_gpus, "min_gpus is " + std::to_string(options.min_gpus) +
                                                         ", more than max_gpus, which is " +
                                                         std::to_string(options.max_gpus));
}

void check_world_size(int64_t world_size) {
  sdk::require(world_size >= 0, "world size " + std::to_string(world_size) +
                                    " is negative; give at least 1, or 0 for none in particular");
}

std::string not_valid(int64_t world_size, int64_t batch, const std::vector<int64_t>& sizes) {
  std::string text =
      "world size " + std::to_string(world_size) + " is not valid for global batch " + std::to_string(batch);
  if (sizes.empty()) return text + "; no world size from min_gpus to max_gpus is";
  const auto above = std::upper_bound(sizes.begin(), sizes.end(), world_size);
  text += "; nearest valid: ";
  if (above != sizes.begin()) text += std::to_string(*std::prev(above));
  if (above != sizes.begin() && above != sizes.end()) text += ", ";
  if (above != sizes.end()) text += std::to_string(*above);
  return text;
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
                                     " rows, and none of micro_batch_sizes divides that");
  }
  return micro;
}

}  // namespace pliant::elasticity
