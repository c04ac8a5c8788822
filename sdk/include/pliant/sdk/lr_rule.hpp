// Write a learning-rate rule as a class with `double scale(const LrInput&) const`, then PLIANT_LR_RULE.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "pliant/abi/lr_rule.h"
#include "pliant/sdk/plugin.hpp"

namespace pliant::sdk {

struct LrInput {
  double base_lr = 0;     ///< the rate that suits base_batch
  double base_batch = 0;  ///< in the unit of [lr] unit
  double batch = 0;       ///< this step's batch, same unit
  int64_t step = 0;       ///< optimizer updates made before this one
};

namespace detail {

template <class T>
struct LrAdapter {
  using Instance = Plain<T>;

  static int32_t scale(void* self, const pliant_lr_input* in, pliant_lr_output* out, pliant_error* error) noexcept {
    return guarded(error, [&] {
      const LrInput input{in->base_lr, in->base_batch, in->batch, in->step};
      const double lr = static_cast<Instance*>(self)->plugin.scale(input);
      if (!std::isfinite(lr)) {
        throw Failure(PLIANT_OUT_OF_RANGE, "the rate is not finite for a batch of " + std::to_string(in->batch) +
                                               " over " + std::to_string(in->base_batch));
      }
      out->lr = lr;
    });
  }
  static const void* vtable() noexcept {
    static const pliant_lr_rule kTable{sizeof(pliant_lr_rule), 0, &scale};
    return &kTable;
  }
};

}  // namespace detail
}  // namespace pliant::sdk

#define PLIANT_LR_RULE(Type, name, version, summary) \
  PLIANT_DETAIL_EXPORT(Type, LrAdapter, PLIANT_KIND_LR_RULE, name, version, summary)
