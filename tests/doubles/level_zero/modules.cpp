// Modules and kernels of the software driver. SPIR-V is read and judged; what runs in its place is C++ of the same
// source.
#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels.hpp"
#include "objects.hpp"
#include "spirv.hpp"

namespace soft_ze {

struct Module {
  Context* context = nullptr;
  const Device* device = nullptr;
  std::set<std::string> kernels;
  bool reaches_large_buffers = false;  ///< those that take relaxed limits
  bool rounds_quotients = false;       ///< and roots of 32-bit floats
  int64_t live_kernels = 0;            ///< under the context's mutex
};

struct BuildLog {
  std::string text;
};

struct Kernel {
  Module* module = nullptr;
  const KernelCode* code = nullptr;
  uint32_t group_size = 0;
  std::vector<KernelArgument> arguments;
  /// Commands that will run it share this.
  std::shared_ptr<int> launched = std::make_shared<int>(0);
};

namespace {

Module& of(ze_module_handle_t handle) {
  return *reinterpret_cast<Module*>(handle);
}
Kernel& of(ze_kernel_handle_t handle) {
  return *reinterpret_cast<Kernel*>(handle);
}
BuildLog& of(ze_module_build_log_handle_t handle) {
  return *reinterpret_cast<BuildLog*>(handle);
}

bool has_doubles() {
  return setting("PLIANT_SOFT_ZE_DOUBLES", 1) != 0;
}

/// What the compiler of the driver has against the file; "" is nothing.
std::string refusal_of(const Spirv& spirv) {
  if (setting("PLIANT_SOFT_ZE_FAIL_MODULE", 0) != 0) return "error: told to fail\n  by the test\n";
  if (!spirv.refusal.empty()) return spirv.refusal;
  if (spirv.capabilities.count(kSpirvFloat64) != 0 && !has_doubles()) {
    return "error: double type is not supported on this platform";
  }
  for (const std::string& name : spirv.kernels) {
    if (kernel_code(name) == nullptr) return "error: the double has no code for the kernel " + name;
  }
  return "";
}

/// Every argument is set; each that points to memory points to as much as the kernel touches.
ze_result_t bind(Kernel& kernel, Context& context, Command& command, uint64_t items) {
  for (const KernelArgument& one : kernel.arguments) {
    if (one.is_set) continue;
    violation("a kernel was launched before all its arguments were set");
    return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  }
  if (kernel.code == kernel_code("pliant_adamw") && !kernel.module->rounds_quotients) {
    violation("a kernel with roots and quotients was built so that they are not rounded once");
  }
  const auto run = kernel.code->bind(kernel.arguments, [&](const void* pointer, uint64_t bytes) {
    const auto inside = place(context, command, pointer, bytes);
    const bool large = inside && !command.uses.empty() && command.uses.back()->bytes > kLargestAlloc;
    if (large && !kernel.module->reaches_large_buffers) {
      violation("a kernel touches a buffer that is too large for how its module was built");
    }
    return inside ? std::optional<void*>(*inside) : std::nullopt;
  });
  if (!run) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  command.work = [run, items, launched = kernel.launched] { run(items); };
  return ZE_RESULT_SUCCESS;
}

}  // namespace

ze_result_t ZE_APICALL device_get_module_properties(ze_device_handle_t, ze_device_module_properties_t* properties) {
  constexpr ze_device_fp_flags_t kAll =
      ZE_DEVICE_FP_FLAG_DENORM | ZE_DEVICE_FP_FLAG_INF_NAN | ZE_DEVICE_FP_FLAG_ROUND_TO_NEAREST | ZE_DEVICE_FP_FLAG_FMA;
  constexpr ze_device_fp_flags_t kRounded = ZE_DEVICE_FP_FLAG_ROUNDED_DIVIDE_SQRT;
  const bool rounds = setting("PLIANT_SOFT_ZE_ROUNDS", 1) != 0;
  const bool flushes = setting("PLIANT_SOFT_ZE_FLUSHES", 0) != 0;
  properties->spirvVersionSupported = kNewestSpirv;
  properties->flags = has_doubles() ? ze_device_module_flags_t{ZE_DEVICE_MODULE_FLAG_FP64} : 0U;
  properties->fp16flags = 0;
  properties->fp32flags = flushes ? kAll & ~ze_device_fp_flags_t{ZE_DEVICE_FP_FLAG_DENORM} : kAll;
  if (rounds) properties->fp32flags |= kRounded;
  properties->fp64flags = has_doubles() ? kAll : 0U;
  properties->maxArgumentsSize = 1024;
  return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL device_get_compute_properties(ze_device_handle_t, ze_device_compute_properties_t* properties) {
  properties->maxTotalGroupSize = kLargestGroup;
  properties->maxGroupSizeX = kLargestGroup;
  properties->maxGroupSizeY = kLargestGroup;
  properties->maxGroupSizeZ = 1;
  properties->maxGroupCountX = kMostGroups;
  properties->maxGroupCountY = 1;
  properties->maxGroupCountZ = 1;
  return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL module_create(ze_context_handle_t context, ze_device_handle_t device,
                                     const ze_module_desc_t* wanted, ze_module_handle_t* out,
                                     ze_module_build_log_handle_t* log) {
  if (device == nullptr || wanted == nullptr || out == nullptr) return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
  if (wanted->format != ZE_MODULE_FORMAT_IL_SPIRV || wanted->pInputModule == nullptr) {
    return ZE_RESULT_ERROR_INVALID_ENUMERATION;
  }
  const std::string flags = wanted->pBuildFlags == nullptr ? "" : wanted->pBuildFlags;
  const std::string for_large = "-ze-opt-greater-than-4GB-buffer-required";
  const bool rounded = flags == for_large + " -ze-fp32-correctly-rounded-divide-sqrt";
  const bool large = rounded || flags == for_large;
  if (!flags.empty() && !large) return ZE_RESULT_ERROR_INVALID_ENUMERATION;  // this double knows no other
  const Spirv spirv = read_spirv({reinterpret_cast<const std::byte*>(wanted->pInputModule), wanted->inputSize});
  const std::string refusal = refusal_of(spirv);
  if (log != nullptr) {
    *log = reinterpret_cast<ze_module_build_log_handle_t>(new BuildLog{refusal});
    ++counts().build_logs;
  }
  if (!refusal.empty()) return ZE_RESULT_ERROR_MODULE_BUILD_FAILURE;
  *out = reinterpret_cast<ze_module_handle_t>(new Module{&of(context), &of(device), spirv.kernels, large, rounded});
  ++counts().modules;
  return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL module_destroy(ze_module_handle_t handle) {
  if (of(handle).live_kernels != 0) violation("a module was destroyed before its kernels");
  delete &of(handle);
  --counts().modules;
  return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL build_log_destroy(ze_module_build_log_handle_t handle) {
  delete &of(handle);
  --counts().build_logs;
  return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL build_log_get_string(ze_module_build_log_handle_t handle, size_t* bytes, char* text) {
  const std::string& all = of(handle).text;
  if (text != nullptr) std::memcpy(text, all.c_str(), std::min(*bytes, all.size() + 1));
  *bytes = all.size() + 1;
  return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL kernel_create(ze_module_handle_t handle, const ze_kernel_desc_t* wanted,
                                     ze_kernel_handle_t* out) {
  if (wanted == nullptr || wanted->pKernelName == nullptr || out == nullptr)
    return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
  Module& module = of(handle);
  if (module.kernels.count(wanted->pKernelName) == 0) return ZE_RESULT_ERROR_INVALID_KERNEL_NAME;
  auto made = std::make_unique<Kernel>();
  made->module = &module;
  made->code = kernel_code(wanted->pKernelName);
  made->arguments.resize(made->code->argument_bytes.size());
  const std::lock_guard lock(module.context->mutex);
  ++module.live_kernels;
  ++counts().kernels;
  *out = reinterpret_cast<ze_kernel_handle_t>(made.release());
  return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL kernel_destroy(ze_kernel_handle_t handle) {
  Kernel& kernel = of(handle);
  const std::lock_guard lock(kernel.module->context->mutex);
  if (kernel.launched.use_count() != 1 && !kernel.module->context->lost) {
    violation("a kernel was destroyed while commands will run it");
  }
  --kernel.module->live_kernels;
  --counts().kernels;
  delete &kernel;
  return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL kernel_set_group_size(ze_kernel_handle_t handle, uint32_t x, uint32_t y, uint32_t z) {
  if (x == 0 || x > kLargestGroup || y != 1 || z != 1) return ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION;
  of(handle).group_size = x;
  return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL kernel_set_argument_value(ze_kernel_handle_t handle, uint32_t index, size_t bytes,
                                                 const void* value) {
  Kernel& kernel = of(handle);
  if (index >= kernel.arguments.size()) return ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX;
  if (bytes != kernel.code->argument_bytes[index]) return ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE;
  KernelArgument& argument = kernel.arguments[index];
  argument.is_set = true;
  const auto* from = static_cast<const std::byte*>(value);
  argument.bytes.assign(from, value == nullptr ? from : from + bytes);
  return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL append_launch_kernel(ze_command_list_handle_t handle, ze_kernel_handle_t kernel_handle,
                                            const ze_group_count_t* groups, ze_event_handle_t signal, uint32_t count,
                                            ze_event_handle_t* waits) {
  if (kernel_handle == nullptr || groups == nullptr) return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
  List& list = of(handle);
  Kernel& kernel = of(kernel_handle);
  if (!list.computes()) {
    violation("a kernel was launched on a queue that only copies");
    return ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE;
  }
  if (kernel.module->device != &list.device() || kernel.module->context != &list.context()) {
    violation("a kernel was launched on a device that its module was not built for");
    return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  }
  if (kernel.group_size == 0 || groups->groupCountX == 0 || groups->groupCountX > kMostGroups) {
    violation("a kernel was launched in no groups, in too many, or in groups of unknown size");
    return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  }
  if (++counts().launched == setting("PLIANT_SOFT_ZE_FAIL_LAUNCH_AT", 0)) return ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
  Command command;
  if (!take_events(command, signal, count, waits)) return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
  const uint64_t items = uint64_t{kernel.group_size} * groups->groupCountX;
  const ze_result_t bound = bind(kernel, list.context(), command, items);
  if (bound != ZE_RESULT_SUCCESS) return bound;
  counts().launched_on = list.device().index;
  if (kernel.code == kernel_code("pliant_digest_blocks")) ++counts().digests;
  return list.append(std::move(command));
}

}  // namespace soft_ze
