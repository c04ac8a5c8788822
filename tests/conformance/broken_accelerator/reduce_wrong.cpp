// BROKEN: reductions are wrong in one way, the option `fault`.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)
using pliant::sdk::DType;
using pliant::sdk::Elements;
using pliant::sdk::ReduceOp;
using Sources = std::span<const void* const>;

struct ReduceWrong : Honest<ReduceWrong> {
  std::string fault = "tail";
  int since_wait = 0;
  static void options(pliant::sdk::Options<ReduceWrong>& table) {
    table
        .add("fault", &ReduceWrong::fault,
             "tail: fewer than 8 elements lose the last; short: elements past 65536 are forgotten; saturates: i32 does "
             "not wrap; unscaled: the scale is forgotten; overwrites: the target is written before all sources are "
             "read; few: sources past 64 are forgotten; ring: of more than 256 without a wait the 257th is lost; "
             "launch: elements past "
             "65535 * 256 are forgotten; narrow: counts have 32 bits.")
        .choices({"tail", "short", "saturates", "unscaled", "overwrites", "few", "ring", "launch", "narrow"});
  }
  void reduce(void* to, Sources from, Elements elements, ReduceOp op, double scale, Stream& stream) {
    if (fault == "tail" && elements.count > 0 && elements.count < 8) --elements.count;
    if (fault == "short") elements.count = std::min<uint64_t>(elements.count, 65536);
    if (fault == "narrow") elements.count = static_cast<uint32_t>(elements.count);
    if (fault == "launch") elements.count = std::min<uint64_t>(elements.count, 65535 * 256);
    if (fault == "unscaled") scale = 1;
    if (fault == "few") from = from.subspan(0, std::min<size_t>(from.size(), 64));
    if (fault == "ring" && ++since_wait == 257) return;
    if (fault == "saturates" && op == ReduceOp::kSum && elements.dtype == DType::kI32) {
      return saturate(static_cast<int32_t*>(to), from, elements.count, stream);
    }
    if (fault == "overwrites" && from.size() > 1 && to != from[0]) {
      Device::reduce(to, from.subspan(0, 1), elements, op, 1, stream);
      std::vector<const void*> rest(from.begin(), from.end());
      rest[0] = to;
      return Device::reduce(to, rest, elements, op, scale, stream);
    }
    Device::reduce(to, from, elements, op, scale, stream);
  }
  using Device::synchronize;
  void synchronize(Stream& stream) {
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
};

}  // namespace

PLIANT_BROKEN(ReduceWrong, "reduce-wrong")
