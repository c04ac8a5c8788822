// Faults of casts.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "faults.hpp"

namespace pliant::broken {
namespace {

/// A cast from f32 to bf16 cuts the low bits off.
struct CastTruncates : Honest {
  void cast(void* to, DType to_type, const void* from, Elements elements, Stream& stream) override {
    if (elements.dtype != DType::kF32 || to_type != DType::kBF16) {
      return Device::cast(to, to_type, from, elements, stream);
    }
    stream.enqueue([=] {
      for (uint64_t i = 0; i < elements.count; ++i) {
        std::memcpy(static_cast<char*>(to) + i * 2, static_cast<const char*>(from) + i * 4 + 2, 2);
      }
    });
  }
};

/// A cast from f32 to i32 goes to the nearest integer, not towards zero.
struct CastRounds : Honest {
  void cast(void* to, DType to_type, const void* from, Elements elements, Stream& stream) override {
    Device::cast(to, to_type, from, elements, stream);
    if (elements.dtype != DType::kF32 || to_type != DType::kI32) return;
    stream.enqueue([=] {
      for (uint64_t i = 0; i < elements.count; ++i) {
        float value = 0;
        std::memcpy(&value, static_cast<const char*>(from) + i * sizeof(value), sizeof(value));
        if (!(std::fabs(value) < 1e6F)) continue;
        const auto nearest = static_cast<int32_t>(std::nearbyint(value));
        std::memcpy(static_cast<char*>(to) + i * sizeof(nearest), &nearest, sizeof(nearest));
      }
    });
  }
};

/// tail: between integers an odd last element is lost; twice: f64 goes to 16 bits by way of f32; nan: NaN becomes the
/// least integer; launch: elements past 65535 * 256 are forgotten; narrow: counts have 31 bits.
struct CastWrong : Honest {
  void cast(void* to, DType to_type, const void* from, Elements elements, Stream& stream) override {
    if (way == "narrow") elements.count &= INT32_MAX;
    if (way == "launch") elements.count = std::min<uint64_t>(elements.count, 65535 * 256);
    if (way == "tail" && is_integer(to_type) && is_integer(elements.dtype)) elements.count -= elements.count % 2;
    if (way == "twice" && elements.dtype == DType::kF64 && size_of(to_type) == 2) {
      const auto between = std::make_shared<std::vector<float>>(elements.count);
      Device::cast(between->data(), DType::kF32, from, elements, stream);
      Device::cast(to, to_type, between->data(), {elements.count, DType::kF32}, stream);
      stream.enqueue([between] {});  // keeps it until both have run
      return;
    }
    Device::cast(to, to_type, from, elements, stream);
    if (way != "nan" || elements.dtype != DType::kF32 || to_type != DType::kI32) return;
    stream.enqueue([=] {
      for (uint64_t i = 0; i < elements.count; ++i) {
        if (std::isnan(static_cast<const float*>(from)[i])) static_cast<int32_t*>(to)[i] = INT32_MIN;
      }
    });
  }
};

}  // namespace

std::vector<Fault> cast_faults() {
  return {{"cast-truncates", {}, make<CastTruncates>},
          {"cast-rounds", {}, make<CastRounds>},
          {"cast-wrong", {"tail", "twice", "nan", "launch", "narrow"}, make<CastWrong>}};
}

}  // namespace pliant::broken
