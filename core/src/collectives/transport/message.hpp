// Message: what one rank sends to another, or receives from it.
#pragma once

#include <cstdint>

#include "pliant/sdk/accelerator.hpp"

namespace pliant::collectives {

struct Message {
  bool is_send = false;
  void* buffer = nullptr;  ///< a message that is sent is only read
  sdk::Elements elements;
  int32_t peer = 0;
};

}  // namespace pliant::collectives
