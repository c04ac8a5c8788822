// Faults of reductions.
#include <algorithm>
#include <vector>

#include "faults.hpp"

namespace pliant::broken {
namespace {

using Sources = std::span<const void* const>;

/// A reduction takes its sources from the last to the first.
struct ReduceBackwards : Honest {
  void reduce(void* to, Sources from, Elements elements, ReduceOp op, double scale, Stream& stream) override {
    const std::vector<const void*> backwards(from.rbegin(), from.rend());
    Device::reduce(to, backwards, elements, op, scale, stream);
  }
};

/// 16-bit floats are rounded after every addition.
struct ReduceNarrow : Honest {
  void reduce(void* to, Sources from, Elements elements, ReduceOp op, double scale, Stream& stream) override {
    if (size_of(elements.dtype) != 2) return Device::reduce(to, from, elements, op, scale, stream);
    stream.enqueue([=, this, all = std::vector<const void*>(from.begin(), from.end())] {
      std::vector<uint16_t> sum(elements.count);
      Stream beside(nullptr, uint64_t{0});
      Device::reduce(sum.data(), Sources(all).subspan(0, 1), elements, op, 1, beside);
      for (size_t i = 1; i < all.size(); ++i) {
        const void* const next[] = {sum.data(), all[i]};
        Device::reduce(sum.data(), next, elements, op, 1, beside);
      }
      const void* const last[] = {sum.data()};
      Device::reduce(to, last, elements, op, scale, beside);
      beside.synchronize();
    });
  }
};

/// tail: fewer than 8 elements lose the last; short: elements past 65536 are forgotten; saturates: i32 does not wrap;
/// unscaled: the scale is forgotten; overwrites: the target is written before all sources are read; few: sources past
/// 64 are forgotten; ring: of more than 256 without a wait the 257th is lost; launch: elements past 65535 * 256 are
/// forgotten; narrow: counts have 32 bits.
struct ReduceWrong : Honest {
  void reduce(void* to, Sources from, Elements elements, ReduceOp op, double scale, Stream& stream) override {
    if (way == "tail" && elements.count > 0 && elements.count < 8) --elements.count;
    if (way == "short") elements.count = std::min<uint64_t>(elements.count, 65536);
    if (way == "narrow") elements.count = static_cast<uint32_t>(elements.count);
    if (way == "launch") elements.count = std::min<uint64_t>(elements.count, 65535 * 256);
    if (way == "unscaled") scale = 1;
    if (way == "few") from = from.subspan(0, std::min<size_t>(from.size(), 64));
    if (way == "ring" && ++since_wait == 257) return;
    if (way == "saturates" && op == ReduceOp::kSum && elements.dtype == DType::kI32) {
      return saturate(static_cast<int32_t*>(to), from, elements.count, stream);
    }
    if (way == "overwrites" && from.size() > 1 && to != from[0]) {
      Device::reduce(to, from.subspan(0, 1), elements, op, 1, stream);
      std::vector<const void*> rest(from.begin(), from.end());
      rest[0] = to;
      return Device::reduce(to, rest, elements, op, scale, stream);
    }
    Device::reduce(to, from, elements, op, scale, stream);
  }
  using Honest::synchronize;
  void synchronize(Stream& stream) override {
    since_wait = 0;
    Device::synchronize(stream);
  }
  static void saturate(int32_t* to, Sources from, uint64_t count, Stream& stream) {
    stream.enqueue([=, all = std::vector<const void*>(from.begin(), from.end())] {
      for (uint64_t i = 0; i < count; ++i) {
        int64_t sum = 0;
        for (const void* one : all) sum += static_cast<const int32_t*>(one)[i];
        to[i] = static_cast<int32_t>(std::clamp<int64_t>(sum, INT32_MIN, INT32_MAX));
      }
    });
  }
  int since_wait = 0;
};

}  // namespace

std::vector<Fault> reduce_faults() {
  return {{"reduce-backwards", {}, make<ReduceBackwards>},
          {"reduce-narrow", {}, make<ReduceNarrow>},
          {"reduce-wrong",
           {"tail", "short", "saturates", "unscaled", "overwrites", "few", "ring", "launch", "narrow"},
           make<ReduceWrong>}};
}

}  // namespace pliant::broken
