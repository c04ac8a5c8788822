// Puts the results of CUDA into words.
#include "result.hpp"

#include <array>

namespace pliant::cuda {
namespace {

struct Word {
  cudaError_t result;
  int32_t status;
  const char* meaning;
};

// Errors that stay with the process: every later call gives them, too.
constexpr const char* kLost = "the device is lost to this process; end the process and check the kernel log (dmesg)";
constexpr const char* kFault =
    "work on the device failed, and the device is lost to this process; end the process, and look for a kernel or copy "
    "that exceeds its memory (compute-sanitizer finds it)";

constexpr std::array kWords{
    Word{cudaErrorNotReady, PLIANT_FAILED_PRECONDITION, "it has not happened yet"},
    Word{cudaErrorMemoryAllocation, PLIANT_RESOURCE_EXHAUSTED, "there is not enough memory for it"},
    Word{cudaErrorLaunchOutOfResources, PLIANT_RESOURCE_EXHAUSTED, "the device lacks resources for it"},
    Word{cudaErrorNoDevice, PLIANT_FAILED_PRECONDITION, "the driver sees no device"},
    Word{cudaErrorInsufficientDriver, PLIANT_FAILED_PRECONDITION, "the driver is older than the CUDA runtime"},
    Word{cudaErrorDevicesUnavailable, PLIANT_FAILED_PRECONDITION,
         "the devices are busy, or their compute mode excludes this process (nvidia-smi shows it)"},
    Word{cudaErrorInitializationError, PLIANT_FAILED_PRECONDITION,
         "cannot initialise the driver; a process that was forked after CUDA was used cannot use CUDA"},
    Word{cudaErrorNotSupported, PLIANT_UNIMPLEMENTED, "the device or the driver does not support it"},
    Word{cudaErrorPeerAccessUnsupported, PLIANT_UNIMPLEMENTED,
         "one of the two devices cannot access memory of the other"},
    Word{cudaErrorTooManyPeers, PLIANT_RESOURCE_EXHAUSTED, "the device already accesses memory of too many others"},
    Word{cudaErrorMapBufferObjectFailed, PLIANT_FAILED_PRECONDITION,
         "memory or an event of another process could not be mapped"},
    Word{cudaErrorNoKernelImageForDevice, PLIANT_UNIMPLEMENTED, "there are no kernels for this device"},
    Word{cudaErrorUnsupportedPtxVersion, PLIANT_UNIMPLEMENTED, "the driver is too old for the kernels"},
    Word{cudaErrorHostMemoryAlreadyRegistered, PLIANT_UNIMPLEMENTED, "a page of this memory is pinned already"},
    Word{cudaErrorInvalidValue, PLIANT_INTERNAL, "CUDA rejects an argument"},
    Word{cudaErrorInvalidResourceHandle, PLIANT_INTERNAL, "a stream or an event is not valid"},
    Word{cudaErrorECCUncorrectable, PLIANT_FAILED_PRECONDITION, kLost},
    Word{cudaErrorNvlinkUncorrectable, PLIANT_FAILED_PRECONDITION, kLost},
    Word{cudaErrorContextIsDestroyed, PLIANT_FAILED_PRECONDITION, kLost},
    Word{cudaErrorHardwareStackError, PLIANT_FAILED_PRECONDITION, kLost},
    Word{cudaErrorLaunchTimeout, PLIANT_FAILED_PRECONDITION, kLost},
    Word{cudaErrorIllegalAddress, PLIANT_FAILED_PRECONDITION, kFault},
    Word{cudaErrorIllegalInstruction, PLIANT_FAILED_PRECONDITION, kFault},
    Word{cudaErrorMisalignedAddress, PLIANT_FAILED_PRECONDITION, kFault},
    Word{cudaErrorInvalidAddressSpace, PLIANT_FAILED_PRECONDITION, kFault},
    Word{cudaErrorInvalidPc, PLIANT_FAILED_PRECONDITION, kFault},
    Word{cudaErrorLaunchFailure, PLIANT_FAILED_PRECONDITION, kFault},
    Word{cudaErrorAssert, PLIANT_FAILED_PRECONDITION, kFault},
};

const Word* word_of(cudaError_t result) {
  for (const Word& word : kWords) {
    if (word.result == result) return &word;
  }
  return nullptr;
}

}  // namespace

std::string text_of(const Api& api, cudaError_t result) {
  const char* name = api.cudaGetErrorName(result);
  const Word* word = word_of(result);
  const char* meaning = word != nullptr ? word->meaning : api.cudaGetErrorString(result);
  return std::string(name == nullptr ? "an unknown error" : name) + ": " + (meaning == nullptr ? "" : meaning);
}

sdk::Failure failure_of(const Api& api, cudaError_t result, const char* call) {
  static_cast<void>(api.cudaGetLastError());
  const Word* word = word_of(result);
  return {word != nullptr ? word->status : int32_t{PLIANT_INTERNAL}, std::string(call) + ": " + text_of(api, result)};
}

}  // namespace pliant::cuda
