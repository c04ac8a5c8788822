// Faults of updates and norms.
#include <algorithm>
#include <cmath>
#include <limits>

#include "common/cpu/optimizer.hpp"
#include "faults.hpp"

namespace pliant::broken {
namespace {

/// As adamw_async, but that the first moment is rounded once, as a device does that fuses.
void fused(const pliant_adamw_update& u, const sdk::AdamWArrays& on) {
  for (uint64_t i = 0; i < on.count; ++i) {
    const float g = on.gradient[i] * u.gradient_scale;
    const float moment = std::fma(u.beta1, on.first_moment[i], (1 - u.beta1) * g);
    accelerator::adamw(u, {on.weights + i, on.gradient + i, on.first_moment + i, on.second_moment + i, 1});
    on.first_moment[i] = moment;
  }
}

/// fused: operations are; decay: the weights never decay; tail: the last element is forgotten where there are more than
/// 256; shared: the gradient is scaled where it lies; early: it
/// runs at once; blocks: it keeps its caller.
struct UpdateWrong : Honest {
  UpdateWrong() : Honest({.optimizer = true}) {}
  void adamw(const pliant_adamw_update& update, const sdk::AdamWArrays& given, Stream& stream) override {
    pliant_adamw_update used = update;
    sdk::AdamWArrays arrays = given;
    if (way == "early") return accelerator::adamw(update, given);
    if (way == "fused") {
      stream.enqueue([used, arrays] { fused(used, arrays); });
      return;
    }
    if (way == "decay") used.decay = 0;
    if (way == "tail" && arrays.count > 256) --arrays.count;
    Device::adamw(used, arrays, stream);
    if (way == "shared") {
      auto* const gradient = const_cast<float*>(arrays.gradient);
      stream.enqueue([=] { std::for_each_n(gradient, arrays.count, [=](float& g) { g *= used.gradient_scale; }); });
    }
    if (way == "blocks") stream.synchronize();
  }
};

/// order: elements are added from the first to the last; tail: a short chunk is that of its first 32 elements; finite:
/// what is not a number counts as 0; early and blocks: as above.
struct NormsWrong : Honest {
  NormsWrong() : Honest({.optimizer = true}) {}
  void squared_norms(double* to, const float* from, uint64_t count, Stream& stream) override {
    if (way == "early") return accelerator::squared_norms(to, from, count);
    Device::squared_norms(to, from, count, stream);
    if (way == "blocks") return stream.synchronize();
    const uint64_t chunks = sdk::norm_chunks(count);
    const uint64_t last = count - count / sdk::kNormChunk * sdk::kNormChunk;
    if (way == "tail" && last > 32) {
      stream.enqueue([=] { accelerator::squared_norms(to + chunks - 1, from + count - last, 32); });
    }
    if (way == "finite") {
      stream.enqueue([=] {
        std::replace_if(
            to, to + chunks, [](double one) { return std::isnan(one); }, 0.0);
      });
    }
    if (way != "order") return;
    stream.enqueue([=] {
      for (uint64_t i = 0; i < chunks; ++i) {
        if (!std::isfinite(to[i])) continue;
        to[i] = 0;
        const uint64_t end = std::min(count, (i + 1) * sdk::kNormChunk);
        for (uint64_t at = i * sdk::kNormChunk; at < end; ++at) to[i] += double{from[at]} * double{from[at]};
      }
    });
  }
};

}  // namespace

std::vector<Fault> optimizer_faults() {
  return {{"update-wrong", {"fused", "decay", "tail", "shared", "early", "blocks"}, make<UpdateWrong>},
          {"norms-wrong", {"order", "tail", "finite", "early", "blocks"}, make<NormsWrong>}};
}

}  // namespace pliant::broken
