// is_readable: whether a copy by the CPU would read a range of memory or end the process.
#pragma once

#include <cstdint>

namespace pliant {

/// The CPU can read the first and the last byte of the range, and what is between them is mapped: it is this process's
/// memory, and no device's out of its reach. Pages between that are mapped without access are not told; MemoryMap tells
/// them. Three short calls of the system, one where both bytes lie in one page; reads memory that moves between a
/// device and the CPU, and so may move it. bytes > 0; nothing is written, and no signal is raised.
[[nodiscard]] bool is_readable(const void* memory, uint64_t bytes);

}  // namespace pliant
