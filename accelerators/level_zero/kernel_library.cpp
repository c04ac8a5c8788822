// Builds kernels and launches them.
#include "kernel_library.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernel_image.hpp"
#include "kernels.hpp"
#include "result.hpp"

namespace pliant::level_zero {
namespace {

/// What the bits of the processors take: rounding to the nearest, subnormal numbers, infinity and NaN.
constexpr ze_device_fp_flags_t kExact =
    ZE_DEVICE_FP_FLAG_ROUND_TO_NEAREST | ZE_DEVICE_FP_FLAG_DENORM | ZE_DEVICE_FP_FLAG_INF_NAN;
/// Buffers may be as large as the device allows; without this, kernels reach the first 4 GiB of one.
constexpr const char* kBuildFlags = "-ze-opt-greater-than-4GB-buffer-required";
/// Roots and quotients of 32-bit floats are rounded once.
constexpr const char* kBuildFlagsOfUpdates =
    "-ze-opt-greater-than-4GB-buffer-required -ze-fp32-correctly-rounded-divide-sqrt";
constexpr size_t kMostOfLog = 300;

/// What the driver's compiler said, in one line, after ": ".
std::string told_by(const Api& api, ze_module_build_log_handle_t log) {
  size_t bytes = 0;
  if (log == nullptr || api.zeModuleBuildLogGetString(log, &bytes, nullptr) != ZE_RESULT_SUCCESS || bytes <= 1)
    return "";
  std::string text(bytes, '\0');
  if (api.zeModuleBuildLogGetString(log, &bytes, text.data()) != ZE_RESULT_SUCCESS) return "";
  text.resize(std::strlen(text.c_str()));
  while (!text.empty() && static_cast<unsigned char>(text.back()) <= ' ') text.pop_back();
  if (text.size() > kMostOfLog) text = text.substr(0, kMostOfLog) + "...";
  std::replace_if(
      text.begin(), text.end(), [](char one) { return static_cast<unsigned char>(one) < ' '; }, ' ');
  return text.empty() ? "" : ": " + text;
}

}  // namespace

/// One argument of a kernel, held until the launch.
struct KernelLibrary::Argument {
  template <class T>
  explicit Argument(T one) : bytes(sizeof(one)) {
    static_assert(sizeof(one) <= sizeof(value), "larger than any argument of the kernels");
    std::memcpy(value.data(), &one, sizeof(one));
    if constexpr (std::is_pointer_v<T>) is_null = one == nullptr;
  }
  /// Level Zero takes a NULL pointer as no value at all.
  [[nodiscard]] const void* data() const { return is_null ? nullptr : value.data(); }

  std::array<std::byte, 8> value{};
  size_t bytes;
  bool is_null = false;
};

KernelLibrary::~KernelLibrary() {
  const Context& context = *device_.context;
  if (::getpid() != context.owner) return;
  for (const auto& [name, kernel] : kernels_) context.api.zeKernelDestroy(kernel);
  for (const Module& module : modules_) {
    if (module.handle != nullptr) context.api.zeModuleDestroy(module.handle);
  }
}

std::string KernelLibrary::build(Part part, ze_module_handle_t& out) {
  const bool doubles = part == Part::kDoubles;
  const auto image = doubles ? kernel_image_of_doubles() : kernel_image();
  if (image.empty()) return "the plugin was built without clang or llvm-spirv, and has no kernels";
  if (doubles && !device_.has_doubles) return "the device has no 64-bit floats";
  if (((doubles ? device_.double_flags : device_.float_flags) & kExact) != kExact) {
    return std::string("the device's ") + (doubles ? "64" : "32") +
           "-bit floats lack rounding to nearest, subnormal numbers, infinity or NaN, so results would have other bits";
  }
  if (part == Part::kUpdates && (device_.float_flags & ZE_DEVICE_FP_FLAG_ROUNDED_DIVIDE_SQRT) == 0) {
    return "the device does not round quotients and roots of 32-bit floats to nearest, so results would have other "
           "bits";
  }
  const Context& context = *device_.context;
  ze_module_desc_t wanted{};
  wanted.stype = ZE_STRUCTURE_TYPE_MODULE_DESC;
  wanted.format = ZE_MODULE_FORMAT_IL_SPIRV;
  wanted.inputSize = image.size();
  wanted.pInputModule = reinterpret_cast<const uint8_t*>(image.data());
  wanted.pBuildFlags = part == Part::kUpdates ? kBuildFlagsOfUpdates : kBuildFlags;
  ze_module_build_log_handle_t log = nullptr;
  const ze_result_t built = context.api.zeModuleCreate(context.handle, device_.handle, &wanted, &out, &log);
  std::string refused;
  if (built != ZE_RESULT_SUCCESS) refused = failure_of(built, "zeModuleCreate").what() + told_by(context.api, log);
  if (log != nullptr) context.api.zeModuleBuildLogDestroy(log);
  return refused;
}

const std::string& KernelLibrary::why_none(Part part) {
  const std::lock_guard lock(mutex_);
  Module& module = modules_[static_cast<size_t>(part)];
  if (!module.asked) module.why_none = build(part, module.handle);
  module.asked = true;
  return module.why_none;
}

ze_kernel_handle_t KernelLibrary::find(const std::string& name, Part part) {
  const std::lock_guard lock(mutex_);
  const auto found = kernels_.find(name);
  if (found != kernels_.end()) return found->second;
  const Api& api = device_.context->api;
  const ze_kernel_desc_t wanted{ZE_STRUCTURE_TYPE_KERNEL_DESC, nullptr, 0, name.c_str()};
  ze_kernel_handle_t made = nullptr;
  check(api.zeKernelCreate(modules_[static_cast<size_t>(part)].handle, &wanted, &made), "zeKernelCreate");
  const ze_result_t sized = api.zeKernelSetGroupSize(made, device_.group_size, 1, 1);
  if (sized != ZE_RESULT_SUCCESS) {
    api.zeKernelDestroy(made);
    throw failure_of(sized, "zeKernelSetGroupSize");
  }
  kernels_.emplace(name, made);
  return made;
}

void KernelLibrary::launch(ze_kernel_handle_t kernel, std::vector<Argument> arguments, uint64_t count,
                           Stream::Turn& turn) {
  const uint64_t wanted = (count + device_.group_size - 1) / device_.group_size;
  // Each work item goes on with more elements.
  const ze_group_count_t groups{static_cast<uint32_t>(std::min<uint64_t>(wanted, device_.most_groups)), 1, 1};
  turn.on_device([this, kernel, groups, held = std::move(arguments)](const Api& api, ze_command_list_handle_t list) {
    const std::lock_guard lock(mutex_);  // streams share the kernel; the launch copies its arguments
    for (size_t i = 0; i < held.size(); ++i) {
      check(api.zeKernelSetArgumentValue(kernel, static_cast<uint32_t>(i), held[i].bytes, held[i].data()),
            "zeKernelSetArgumentValue");
    }
    check(api.zeCommandListAppendLaunchKernel(list, kernel, &groups, nullptr, 0, nullptr),
          "zeCommandListAppendLaunchKernel");
  });
}

void KernelLibrary::reduce(void* to, std::span<const void* const> from, sdk::Elements elements, sdk::ReduceOp op,
                           double scale, Stream& stream) {
  const sdk::DType dtype = elements.dtype;
  const Part part = part_of(dtype, dtype);
  const ze_kernel_handle_t kernel = find(std::string("pliant_reduce_") + name_of(op) + "_" + name_of(dtype), part);
  const uint64_t size = size_of(dtype);
  const bool is_half = dtype == sdk::DType::kF16 || dtype == sdk::DType::kBF16;
  const uint64_t computed_size = is_half ? sizeof(float) : size;
  const bool split = from.size() > kernels::kSources;
  Stream::Turn turn(stream);
  // What one launch hands to the next lies in pinned memory, which the device reaches and the stream has anyhow.
  void* partial = split ? turn.staging() : nullptr;
  const uint64_t piece = split ? stream.staging_bytes() / computed_size : elements.count;
  const auto at = [&](const void* pointer, uint64_t i) { return static_cast<const std::byte*>(pointer) + i * size; };
  for (uint64_t begin = 0; begin < elements.count; begin += piece) {
    const uint64_t count = std::min(piece, elements.count - begin);
    for (size_t first = 0; first < from.size(); first += kernels::kSources) {
      const size_t sources = std::min<size_t>(from.size() - first, kernels::kSources);
      const uint32_t begins = first == 0 ? uint32_t{kernels::kBegins} : 0;
      const uint32_t ends = first + sources == from.size() ? uint32_t{kernels::kEnds} : 0;
      const auto scaled = part == Part::kDoubles ? Argument(scale) : Argument(static_cast<float>(scale));
      std::vector<Argument> arguments{Argument(at(to, begin)), Argument(partial), Argument(count), scaled,
                                      Argument(static_cast<uint32_t>(sources))};
      arguments.emplace_back(begins | ends);
      for (size_t i = 0; i < kernels::kSources; ++i) {
        arguments.emplace_back(i < sources ? at(from[first + i], begin) : nullptr);
      }
      launch(kernel, std::move(arguments), count, turn);
    }
  }
}

void KernelLibrary::cast(void* to, sdk::DType to_type, const void* from, sdk::Elements elements, Stream& stream) {
  const ze_kernel_handle_t kernel = find(std::string("pliant_cast_") + name_of(elements.dtype) + "_" + name_of(to_type),
                                         part_of(elements.dtype, to_type));
  Stream::Turn turn(stream);
  launch(kernel, {Argument(to), Argument(from), Argument(elements.count)}, elements.count, turn);
}

void KernelLibrary::digest_blocks(uint64_t* to, const void* from, uint64_t blocks, Stream& stream) {
  const ze_kernel_handle_t kernel = find("pliant_digest_blocks", Part::kSingles);
  Stream::Turn turn(stream);
  launch(kernel, {Argument(to), Argument(from), Argument(blocks)}, blocks, turn);
}

void KernelLibrary::adamw(const pliant_adamw_update& update, const sdk::AdamWArrays& arrays, Stream& stream) {
  const ze_kernel_handle_t kernel = find("pliant_adamw", Part::kUpdates);
  Stream::Turn turn(stream);
  launch(kernel,
         {Argument(arrays.weights), Argument(arrays.gradient), Argument(arrays.first_moment),
          Argument(arrays.second_moment), Argument(arrays.count), Argument(update.gradient_scale),
          Argument(update.beta1), Argument(update.beta2), Argument(update.rate), Argument(update.correction),
          Argument(update.epsilon), Argument(update.decay)},
         arrays.count, turn);
}

void KernelLibrary::squared_norms(double* to, const float* from, uint64_t count, Stream& stream) {
  const ze_kernel_handle_t kernel = find("pliant_squared_norms", Part::kDoubles);
  Stream::Turn turn(stream);
  launch(kernel, {Argument(to), Argument(from), Argument(count)}, sdk::norm_chunks(count), turn);
}

}  // namespace pliant::level_zero
