// BROKEN: 16-bit floats are rounded after every addition.
#include <vector>

#include "honest.hpp"
#include "pliant/sdk/arithmetic.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct ReduceNarrow : Honest<ReduceNarrow> {
  void reduce(void* to, std::span<const void* const> from, pliant::sdk::Elements elements, pliant::sdk::ReduceOp op,
              double scale, Stream& stream) {
    if (size_of(elements.dtype) != 2) return Device::reduce(to, from, elements, op, scale, stream);
    stream.enqueue([=, all = std::vector<const void*>(from.begin(), from.end())] {
      std::vector<uint16_t> sum(elements.count);
      const void* const first[] = {all[0]};
      pliant::sdk::reduce(elements.dtype, op, first, 1, elements.count, sum.data(), nullptr);
      for (size_t i = 1; i < all.size(); ++i) {
        const void* const next[] = {sum.data(), all[i]};
        pliant::sdk::reduce(elements.dtype, op, next, 1, elements.count, sum.data(), nullptr);
      }
      const void* const last[] = {sum.data()};
      pliant::sdk::reduce(elements.dtype, op, last, scale, elements.count, to, nullptr);
    });
  }
};

}  // namespace

PLIANT_BROKEN(ReduceNarrow, "reduce-narrow")
