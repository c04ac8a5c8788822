// BROKEN: a cast from f32 to i32 goes to the nearest integer, not towards zero.
#include <cmath>

#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct CastRounds : Honest<CastRounds> {
  void cast(void* to, pliant::sdk::DType to_type, const void* from, pliant::sdk::Elements elements, Stream& stream) {
    Device::cast(to, to_type, from, elements, stream);
    if (elements.dtype != pliant::sdk::DType::kF32 || to_type != pliant::sdk::DType::kI32) return;
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

}  // namespace

PLIANT_BROKEN(CastRounds, "cast-rounds")
