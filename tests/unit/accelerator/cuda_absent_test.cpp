// The accelerator cuda on machines that lack the runtime library: 0 devices, and the reason is told.
#include "driver_device.hpp"

using namespace pliant_test;

TEST_CASE("without a runtime library there are no devices, and the refusal says what to install") {
  const Device device({{}, {}, {}, {{"runtime", "libcudart_that_is_not_there.so.13"}}}, kCudaFile);
  const std::string said = refusal_without_devices(device);
  CAPTURE(said);
  CHECK(contains(said, "device 0 does not exist; devices: 0: the CUDA runtime cannot be opened"));
  CHECK(contains(said, "libcudart_that_is_not_there.so.13"));
  CHECK(contains(said, "install it"));
}

TEST_CASE("a library that is no CUDA runtime is named with what it lacks") {
  const Device device({{}, {}, {}, {{"runtime", "libm.so.6"}}}, kCudaFile);
  CHECK(contains(refusal_without_devices(device),
                 "libm.so.6 is not a usable CUDA runtime: it lacks cudaRuntimeGetVersion"));
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
