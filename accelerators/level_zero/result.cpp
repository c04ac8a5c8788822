// Names the results of Level Zero.
#include "result.hpp"

#include <array>

namespace pliant::level_zero {
namespace {

struct Word {
  ze_result_t result;
  int32_t status;
  const char* name;
  const char* meaning;
};

constexpr std::array kWords{
    Word{ZE_RESULT_NOT_READY, PLIANT_FAILED_PRECONDITION, "ZE_RESULT_NOT_READY", "it has not happened yet"},
    Word{ZE_RESULT_ERROR_DEVICE_LOST, PLIANT_FAILED_PRECONDITION, "ZE_RESULT_ERROR_DEVICE_LOST",
         "the device hung, was reset or was removed; end this process and check the kernel log"},
    Word{ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, PLIANT_RESOURCE_EXHAUSTED, "ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY",
         "the machine has not enough memory for it"},
    Word{ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, PLIANT_RESOURCE_EXHAUSTED, "ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY",
         "the device has not enough memory for it"},
    Word{ZE_RESULT_ERROR_DEVICE_REQUIRES_RESET, PLIANT_FAILED_PRECONDITION, "ZE_RESULT_ERROR_DEVICE_REQUIRES_RESET",
         "the device must be reset first"},
    Word{ZE_RESULT_ERROR_DEVICE_IN_LOW_POWER_STATE, PLIANT_FAILED_PRECONDITION,
         "ZE_RESULT_ERROR_DEVICE_IN_LOW_POWER_STATE", "the device sleeps"},
    Word{ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS, PLIANT_FAILED_PRECONDITION,
         "ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS",
         "this user may not use the device (on Debian, the groups render and video may)"},
    Word{ZE_RESULT_ERROR_NOT_AVAILABLE, PLIANT_FAILED_PRECONDITION, "ZE_RESULT_ERROR_NOT_AVAILABLE",
         "another process uses it"},
    Word{ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE, PLIANT_FAILED_PRECONDITION, "ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE",
         "the driver lacks a library that it needs"},
    Word{ZE_RESULT_ERROR_UNINITIALIZED, PLIANT_FAILED_PRECONDITION, "ZE_RESULT_ERROR_UNINITIALIZED",
         "there is no working driver"},
    Word{ZE_RESULT_ERROR_UNSUPPORTED_VERSION, PLIANT_UNIMPLEMENTED, "ZE_RESULT_ERROR_UNSUPPORTED_VERSION",
         "the driver does not support this version"},
    Word{ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, PLIANT_UNIMPLEMENTED, "ZE_RESULT_ERROR_UNSUPPORTED_FEATURE",
         "the driver does not support it"},
    Word{ZE_RESULT_ERROR_UNSUPPORTED_SIZE, PLIANT_RESOURCE_EXHAUSTED, "ZE_RESULT_ERROR_UNSUPPORTED_SIZE",
         "an allocation larger than the device allows"},
    Word{ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT, PLIANT_UNIMPLEMENTED, "ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT",
         "an alignment that the device does not allow"},
    Word{ZE_RESULT_ERROR_INVALID_ARGUMENT, PLIANT_INTERNAL, "ZE_RESULT_ERROR_INVALID_ARGUMENT",
         "the driver rejects an argument"},
    Word{ZE_RESULT_ERROR_INVALID_NULL_HANDLE, PLIANT_INTERNAL, "ZE_RESULT_ERROR_INVALID_NULL_HANDLE",
         "a handle is not valid"},
    Word{ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE, PLIANT_INTERNAL, "ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE",
         "the device still uses the object"},
    Word{ZE_RESULT_ERROR_INVALID_NULL_POINTER, PLIANT_INTERNAL, "ZE_RESULT_ERROR_INVALID_NULL_POINTER",
         "a pointer is NULL"},
    Word{ZE_RESULT_ERROR_INVALID_SIZE, PLIANT_INTERNAL, "ZE_RESULT_ERROR_INVALID_SIZE", "a size is not valid"},
    Word{ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT, PLIANT_INTERNAL,
         "ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT", "an event is in the wrong state"},
    Word{ZE_RESULT_ERROR_INVALID_ENUMERATION, PLIANT_INTERNAL, "ZE_RESULT_ERROR_INVALID_ENUMERATION",
         "an enumeration value is not valid"},
    Word{ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION, PLIANT_UNIMPLEMENTED, "ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION",
         "the driver does not support a value"},
    Word{ZE_RESULT_ERROR_MODULE_BUILD_FAILURE, PLIANT_UNIMPLEMENTED, "ZE_RESULT_ERROR_MODULE_BUILD_FAILURE",
         "the driver's compiler rejects the kernels"},
    Word{ZE_RESULT_ERROR_MODULE_LINK_FAILURE, PLIANT_UNIMPLEMENTED, "ZE_RESULT_ERROR_MODULE_LINK_FAILURE",
         "the driver's compiler cannot link the kernels"},
    Word{ZE_RESULT_ERROR_INVALID_NATIVE_BINARY, PLIANT_INTERNAL, "ZE_RESULT_ERROR_INVALID_NATIVE_BINARY",
         "kernels in a format that the driver does not support"},
    Word{ZE_RESULT_ERROR_INVALID_KERNEL_NAME, PLIANT_INTERNAL, "ZE_RESULT_ERROR_INVALID_KERNEL_NAME",
         "there is no kernel of that name"},
    Word{ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX, PLIANT_INTERNAL,
         "ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX", "the kernel has fewer arguments"},
    Word{ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE, PLIANT_INTERNAL, "ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE",
         "the kernel's argument has another size"},
    Word{ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION, PLIANT_INTERNAL, "ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION",
         "a group of work items that the device does not allow"},
    Word{ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE, PLIANT_INTERNAL, "ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE",
         "the queue does not take such commands"},
    Word{ZE_RESULT_ERROR_OVERLAPPING_REGIONS, PLIANT_INVALID_ARGUMENT, "ZE_RESULT_ERROR_OVERLAPPING_REGIONS",
         "source and target overlap"},
    Word{ZE_RESULT_ERROR_UNKNOWN, PLIANT_INTERNAL, "ZE_RESULT_ERROR_UNKNOWN", "the driver gives no reason"},
};

const Word* word_of(ze_result_t result) {
  for (const Word& word : kWords) {
    if (word.result == result) return &word;
  }
  return nullptr;
}

}  // namespace

std::string text_of(ze_result_t result) {
  const Word* word = word_of(result);
  if (word != nullptr) return std::string(word->name) + ": " + word->meaning;
  std::string digits;
  for (auto rest = static_cast<uint32_t>(result); rest != 0; rest >>= 4U) {
    digits.insert(digits.begin(), "0123456789abcdef"[rest & 15U]);
  }
  return "result 0x" + digits + " of Level Zero";
}

sdk::Failure failure_of(ze_result_t result, const char* call) {
  const Word* word = word_of(result);
  return {word != nullptr ? word->status : int32_t{PLIANT_INTERNAL}, std::string(call) + ": " + text_of(result)};
}

}  // namespace pliant::level_zero
