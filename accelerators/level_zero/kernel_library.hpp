// KernelLibrary: the kernels on one device. A device that takes none of them, or not those of doubles or of updates,
// says why, and the processors do the work.
#pragma once

#include <array>
#include <map>
#include <mutex>
#include <string>

#include "pliant/sdk/accelerator.hpp"
#include "pliant/sdk/optimizer.hpp"
#include "stream.hpp"

namespace pliant::level_zero {

/// All calls may come from any thread.
class KernelLibrary {
 public:
  /// Which kernels: those of doubles are apart, since a device may lack doubles, and so are updates, which want roots
  /// and quotients rounded once.
  enum class Part : size_t { kSingles = 0, kDoubles = 1, kUpdates = 2 };
  static constexpr size_t kParts = 3;

  explicit KernelLibrary(const DeviceEntry& device) : device_(device) {}
  ~KernelLibrary();
  KernelLibrary(const KernelLibrary&) = delete;
  KernelLibrary& operator=(const KernelLibrary&) = delete;

  /// "" when the kernels can be launched, else why not: for good. Builds them when first called.
  const std::string& why_none(Part part);

  /// All want operands that the device reaches, a stream that computes, and why_none() to have said "".
  void reduce(void* to, std::span<const void* const> from, sdk::Elements elements, sdk::ReduceOp op, double scale,
              Stream& stream);
  void cast(void* to, sdk::DType to_type, const void* from, sdk::Elements elements, Stream& stream);
  void digest_blocks(uint64_t* to, const void* from, uint64_t blocks, Stream& stream);
  void adamw(const pliant_adamw_update& update, const sdk::AdamWArrays& arrays, Stream& stream);
  void squared_norms(double* to, const float* from, uint64_t count, Stream& stream);

 private:
  struct Module {
    bool asked = false;
    std::string why_none;
    ze_module_handle_t handle = nullptr;
  };
  struct Argument;
  std::string build(Part part, ze_module_handle_t& out);
  ze_kernel_handle_t find(const std::string& name, Part part);
  void launch(ze_kernel_handle_t kernel, std::vector<Argument> arguments, uint64_t count, Stream::Turn& turn);

  const DeviceEntry& device_;
  std::mutex mutex_;  ///< of what is loaded, and of the kernels' arguments until they are launched
  std::array<Module, kParts> modules_;
  std::map<std::string, ze_kernel_handle_t> kernels_;
};

/// Where elements of that type are computed.
inline KernelLibrary::Part part_of(sdk::DType one, sdk::DType other) {
  const bool doubles = one == sdk::DType::kF64 || other == sdk::DType::kF64;
  return doubles ? KernelLibrary::Part::kDoubles : KernelLibrary::Part::kSingles;
}

}  // namespace pliant::level_zero
