// The SDK's arithmetic of optimizers, compiled once.
#include "common/cpu/optimizer.hpp"

#include "pliant/sdk/optimizer_arithmetic.hpp"

namespace pliant::accelerator {

void adamw(const pliant_adamw_update& update, const sdk::AdamWArrays& arrays) {
  sdk::adamw(update, arrays);
}

void squared_norms(double* to, const float* from, uint64_t count) {
  sdk::squared_norms(to, from, count);
}

}  // namespace pliant::accelerator
