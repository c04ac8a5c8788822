// The plugin's kernels, made of the same source for the CPU: found by name, bound to arguments, run item by item.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace soft_ze {

/// As given by zeKernelSetArgumentValue. A NULL pointer has no bytes.
struct KernelArgument {
  bool is_set = false;
  std::vector<std::byte> bytes;
};

/// Where the driver finds memory of the device; nullopt when a kernel must not touch it.
using Resolve = std::function<std::optional<void*>(const void* pointer, uint64_t bytes)>;
/// Runs a kernel as `items` work items.
using Run = std::function<void(uint64_t items)>;

struct KernelCode {
  std::vector<size_t> argument_bytes;
  /// An empty function when the arguments cannot be used. All are set and of these sizes.
  std::function<Run(const std::vector<KernelArgument>&, const Resolve&)> bind;
};

/// NULL when there is none of that name.
const KernelCode* kernel_code(const std::string& name);

}  // namespace soft_ze
