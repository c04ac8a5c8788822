// BROKEN: a cast from f32 to bf16 cuts the low bits off.
#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct CastTruncates : Honest<CastTruncates> {
  void cast(void* to, pliant::sdk::DType to_type, const void* from, pliant::sdk::Elements elements, Stream& stream) {
    if (elements.dtype != pliant::sdk::DType::kF32 || to_type != pliant::sdk::DType::kBF16) {
      return Device::cast(to, to_type, from, elements, stream);
    }
    stream.enqueue([=] {
      for (uint64_t i = 0; i < elements.count; ++i) {
        std::memcpy(static_cast<char*>(to) + i * 2, static_cast<const char*>(from) + i * 4 + 2, 2);
      }
    });
  }
};

}  // namespace

PLIANT_BROKEN(CastTruncates, "cast-truncates")
