// Called: a plugin's instance, called so that what it reports is thrown as sdk::Failure.
#pragma once

#include <cstdint>

#include "pliant/abi/collectives.h"
#include "pliant/sdk/accelerator.hpp"
#include "plugin/plugin.hpp"

namespace pliant::detail {

struct Called {
  const plugin::Instance& instance;

  [[nodiscard]] const pliant_accelerator& slots() const { return instance.table<pliant_accelerator>(); }
  [[nodiscard]] const pliant_collectives& collectives() const;
  template <class... Parameters, class... Arguments>
  void operator()(int32_t (*slot)(void*, Parameters...), Arguments... arguments) const {
    pliant_error error = plugin::fresh_error();
    const int32_t status = slot(instance.self(), arguments..., &error);
    if (status != PLIANT_OK) throw sdk::Failure(status, error.message);
  }
};

}  // namespace pliant::detail
