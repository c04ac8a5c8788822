// The processors' AdamW, compiled where multiplication and addition may be one operation.
#define sdk sdk_where_fused
#include "pliant/sdk/optimizer_arithmetic.hpp"
#undef sdk

#include "optimizer_fused.hpp"

namespace pliant::test {

void adamw_where_fused(bool avx2, const pliant_adamw_update& update, float* const (&arrays)[4], uint64_t count) {
  using pliant::sdk_where_fused::Instructions;
  pliant::sdk_where_fused::adamw_with(avx2 ? Instructions::kAvx2 : Instructions::kEveryMachine, update,
                                      {arrays[0], arrays[1], arrays[2], arrays[3], count});
}

}  // namespace pliant::test
