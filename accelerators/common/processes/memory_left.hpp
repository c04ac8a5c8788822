// Memory that this process could still be given.
#pragma once

#include <cstdint>
#include <string>

namespace pliant::accelerator {

/// Bytes that the kernel could hand to this process now without killing anyone: what the machine has left, or less
/// where a control group (a container, a pod, a job of a scheduler) allows less. UINT64_MAX when it does not say.
/// `root` is where /proc and /sys are found: not / for tests only.
uint64_t memory_left(const std::string& root = "");

}  // namespace pliant::accelerator
