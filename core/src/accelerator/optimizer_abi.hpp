// An update of the embedding API as the ABI has it.
#pragma once

#include "pliant/abi/optimizer.h"
#include "pliant/optimizer.hpp"

namespace pliant {

inline pliant_adamw_update as_abi(const AdamWUpdate& update) {
  return {sizeof(pliant_adamw_update), update.gradient_scale, update.beta1, update.beta2, update.rate,
          update.correction,           update.epsilon,        update.decay};
}

}  // namespace pliant
