// Updates and norms on the processors.
#include "pliant/optimizer.hpp"

#include "accelerator/optimizer_abi.hpp"
#include "pliant/sdk/optimizer_arithmetic.hpp"

namespace pliant {

static_assert(kNormChunk == sdk::kNormChunk);

void adamw(const AdamWUpdate& update, const AdamWArrays& arrays) {
  sdk::adamw(as_abi(update),
             {arrays.weights, arrays.gradient, arrays.first_moment, arrays.second_moment, arrays.count});
}

void squared_norms(double* to, const float* from, uint64_t count) {
  sdk::squared_norms(to, from, count);
}

}  // namespace pliant
