// BROKEN: casts are wrong in one way, the option `fault`.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)
using pliant::sdk::DType;
using pliant::sdk::Elements;
using pliant::sdk::is_integer;

struct CastWrong : Honest<CastWrong> {
  std::string fault = "tail";
  static void options(pliant::sdk::Options<CastWrong>& table) {
    table
        .add("fault", &CastWrong::fault,
             "tail: between integers an odd last element is lost; twice: f64 goes to 16 bits by way of f32; nan: NaN "
             "becomes the least integer; launch: elements past 65535 * 256 are forgotten; narrow: counts have 31 bits.")
        .choices({"tail", "twice", "nan", "launch", "narrow"});
  }
  void cast(void* to, DType to_type, const void* from, Elements elements, Stream& stream) {
    if (fault == "narrow") elements.count &= INT32_MAX;
    if (fault == "launch") elements.count = std::min<uint64_t>(elements.count, 65535 * 256);
    if (fault == "tail" && is_integer(to_type) && is_integer(elements.dtype)) elements.count -= elements.count % 2;
    if (fault == "twice" && elements.dtype == DType::kF64 && size_of(to_type) == 2) {
      const auto between = std::make_shared<std::vector<float>>(elements.count);
      Device::cast(between->data(), DType::kF32, from, elements, stream);
      Device::cast(to, to_type, between->data(), {elements.count, DType::kF32}, stream);
      stream.enqueue([between] {});  // keeps it until both have run
      return;
    }
    Device::cast(to, to_type, from, elements, stream);
    if (fault != "nan" || elements.dtype != DType::kF32 || to_type != DType::kI32) return;
    stream.enqueue([=] {
      for (uint64_t i = 0; i < elements.count; ++i) {
        if (std::isnan(static_cast<const float*>(from)[i])) static_cast<int32_t*>(to)[i] = INT32_MIN;
      }
    });
  }
};

}  // namespace

PLIANT_BROKEN(CastWrong, "cast-wrong")
