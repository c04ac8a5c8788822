// What the checks of streams and of events share.
#pragma once

#include "testkit/accelerator.hpp"

namespace pliant::testkit {

inline constexpr uint64_t kOrderBytes = 4096;

/// Enqueues a fill.
void fill(const Accelerator& accelerator, const Memory& to, int32_t value, const Stream& stream,
          uint64_t bytes = kOrderBytes);

/// Time enough for work that does not wait to be seen: a stream of its own does some.
void let_run(const Accelerator& accelerator);

unsigned char first_byte(const Accelerator& accelerator, const Memory& memory);

}  // namespace pliant::testkit
