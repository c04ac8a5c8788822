// The accelerator cuda on machines that lack the runtime library: 0 devices, and the reason is told.
#include "device.hpp"

using namespace pliant_test;

namespace {

using Slots = pliant_accelerator;

/// Every call that names a device is refused with the same words.
std::string refusal(const Device& device) {
  int32_t count = -1;
  CHECK(device.call(&Slots::device_count, &count).text() == "0: ");
  CHECK(count == 0);
  void* pointer = nullptr;
  pliant_stream* stream = nullptr;
  const Outcome alloc = device.call(&Slots::alloc, 0, PLIANT_MEMORY_DEVICE, 64, &pointer);
  const Outcome created = device.call(&Slots::stream_create, 0, PLIANT_STREAM_COMPUTE, PLIANT_PRIORITY_NORMAL, &stream);
  CHECK(alloc.status == PLIANT_INVALID_ARGUMENT);
  CHECK(created.text() == alloc.text());
  return alloc.message;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("without a runtime library there are no devices, and the refusal says what to install") {
  const Device device({{}, {}, {}, {{"runtime", "libcudart_that_is_not_there.so.13"}}}, kCudaFile);
  const std::string said = refusal(device);
  CAPTURE(said);
  CHECK(contains(said, "device 0 does not exist; devices: 0: the CUDA runtime cannot be opened"));
  CHECK(contains(said, "libcudart_that_is_not_there.so.13"));
  CHECK(contains(said, "install it"));
}

TEST_CASE("a library that is no CUDA runtime is named with what it lacks") {
  const Device device({{}, {}, {}, {{"runtime", "libm.so.6"}}}, kCudaFile);
  CHECK(contains(refusal(device), "libm.so.6 is no CUDA runtime that can be used: it lacks cudaRuntimeGetVersion"));
}

TEST_CASE("without devices there are no collectives, and nothing asks for NCCL") {
  const Device device({{}, {}, {}, {{"runtime", "libcudart_that_is_not_there.so.13"}}}, kCudaFile);
  CHECK_THROWS_WITH(static_cast<void>(device.collectives()), "the plugin has no collectives");
}

TEST_CASE("a library that is not given by name or absolute path is refused before anything is opened") {
  for (const char* file : {"lib/libcudart.so.13", "./libcudart.so.13"}) {
    CAPTURE(file);
    const OptionSettings settings{{}, {}, {}, {{"runtime", file}}};
    CHECK_THROWS_WITH(Device(settings, kCudaFile), doctest::Contains("give a name without '/'"));
  }
  const OptionSettings relative{{}, {}, {}, {{"nccl", "./libnccl.so.2"}}};
  CHECK_THROWS_WITH(Device(relative, kCudaFile), doctest::Contains("nccl is './libnccl.so.2'"));
  const OptionSettings none{{}, {}, {}, {{"nccl", ""}}};
  CHECK_THROWS_WITH(Device(none, kCudaFile), doctest::Contains("nccl is empty"));
}
