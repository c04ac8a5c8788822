// What only cuda has: faults of driver and device, many devices, kernels, batches; on the software runtime.
#include <cuda_runtime_api.h>

#include <array>
#include <atomic>

#include "cuda_device.hpp"

using namespace pliant_test;

namespace {

using Slots = pliant_accelerator;

/// A function of the software runtime.
template <class Function>
Function* runtime_function(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(::dlopen(kSoftCuda, RTLD_NOW), name));
}

std::string refusal() {
  return refusal_without_devices(SoftwareCuda());
}

/// Adds `sources` arrays of ones, all in device memory; what the first sum is.
float sum_of_ones(const SoftwareCuda& device, int32_t sources) {
  constexpr size_t kCount = 1000;
  const Stream stream(device);
  void* ones = nullptr;
  void* to = nullptr;
  REQUIRE(device.alloc(kCount * sizeof(float), &ones).ok());
  REQUIRE(device.alloc(kCount * sizeof(float), &to).ok());
  std::array<float, kCount> values{};
  values.fill(1);
  REQUIRE(device.call(&Slots::copy_async, ones, values.data(), sizeof(values), stream).ok());
  const std::vector<const void*> from(static_cast<size_t>(sources), ones);
  REQUIRE(
      device.call(&Slots::reduce_async, to, from.data(), sources, kCount, PLIANT_F32, PLIANT_SUM, 1.0, stream).ok());
  REQUIRE(device.call(&Slots::copy_async, values.data(), to, sizeof(values), stream).ok());
  REQUIRE(stream.synchronize().ok());
  device.free(ones);
  device.free(to);
  return values.back();
}

/// A batch of copies that leaves `count` words in reverse order; "" when it did.
std::string reversed(const SoftwareCuda& device) {
  constexpr size_t kCount = 40;
  void* from = nullptr;
  void* to = nullptr;
  REQUIRE(device.alloc(kCount * sizeof(int32_t), &from).ok());
  REQUIRE(device.alloc(kCount * sizeof(int32_t), &to).ok());
  const Stream stream(device);
  std::array<int32_t, kCount> words{};
  for (size_t i = 0; i < kCount; ++i) words[i] = static_cast<int32_t>(i);
  std::vector<pliant_copy> copies;
  for (size_t i = 0; i < kCount; ++i) {
    copies.push_back(
        {static_cast<int32_t*>(to) + (kCount - 1 - i), static_cast<const int32_t*>(from) + i, sizeof(int32_t)});
  }
  REQUIRE(device.call(&Slots::copy_async, from, words.data(), sizeof(words), stream).ok());
  const Outcome outcome = device.call(&Slots::copy_batch_async, copies.data(), copies.size(), stream);
  REQUIRE(device.call(&Slots::copy_async, words.data(), to, sizeof(words), stream).ok());
  const Outcome ended = stream.synchronize();
  device.free(from);
  device.free(to);
  if (!outcome.ok() || !ended.ok()) return outcome.text() + ", " + ended.text();
  for (size_t i = 0; i < kCount; ++i) {
    if (words[i] != static_cast<int32_t>(kCount - 1 - i)) return "word " + std::to_string(i) + " is wrong";
  }
  return "";
}

}  // namespace

TEST_CASE("a machine without a driver, with an older one and without a device is told apart") {
  {
    const Setting none("PLIANT_SOFT_CUDA_DRIVER_VERSION", "0");
    CHECK(contains(refusal(), "found no CUDA driver (libcuda.so.1); install NVIDIA's driver"));
  }
  {
    const Setting old("PLIANT_SOFT_CUDA_DRIVER_VERSION", "12040");
    CHECK(contains(refusal(), "it knows CUDA 12.4, and libcudart.so.13 is CUDA 13.0; install a newer driver"));
  }
  const Setting none("PLIANT_SOFT_CUDA_DEVICES", "0");
  CHECK(contains(refusal(), "the CUDA driver finds no device"));
}

TEST_CASE("an error that CUDA gave the plugin is not left to cudaGetLastError") {
  const Setting fail(SoftwareCuda::kFailAllocAt, "1");
  const SoftwareCuda device;
  void* memory = nullptr;
  CHECK(device.alloc(5000, &memory).status == PLIANT_RESOURCE_EXHAUSTED);
  CHECK(runtime_function<cudaError_t()>("cudaGetLastError")() == cudaSuccess);
}

TEST_CASE("a lost device is named by synchronize, by alloc and by later work, and host functions still run") {
  const Setting lose("PLIANT_SOFT_CUDA_LOSE_DEVICE_AT", "1");
  const SoftwareCuda device;
  void* buffer = nullptr;
  REQUIRE(device.alloc(64, &buffer).ok());
  {
    const Stream stream(device);
    const Stream waiting(device, PLIANT_STREAM_GATHER);
    const Event event(device);
    std::atomic<int> calls{0};
    const auto count = [](void* context) { ++*static_cast<std::atomic<int>*>(context); };
    REQUIRE(device.call(&Slots::fill_async, buffer, 1, 64, stream).ok());
    REQUIRE(device.call(&Slots::host_function, +count, &calls, stream).ok());
    static_cast<void>(device.call(&Slots::event_record, event, stream));
    static_cast<void>(device.call(&Slots::stream_wait_event, waiting, event));
    static_cast<void>(device.call(&Slots::host_function, +count, &calls, waiting));
    const Outcome told = stream.synchronize();
    CHECK(told.status == PLIANT_FAILED_PRECONDITION);
    CHECK(contains(told.message, "cudaErrorLaunchFailure: work on the device failed"));
    CHECK(contains(told.message, "end the process"));
    static_cast<void>(waiting.synchronize());
    CHECK(calls == 2);
    CHECK(contains(device.call(&Slots::fill_async, buffer, 1, 64, stream).message, "cudaErrorLaunchFailure"));
    int32_t done = -1;
    CHECK(device.call(&Slots::stream_query, stream, &done).ok());
    CHECK(done == 1);
    void* more = nullptr;
    CHECK(contains(device.alloc(64, &more).message, "cudaErrorLaunchFailure"));
  }
  device.free(buffer);
}

TEST_CASE("the thread's own device stays the current one") {
  const Setting two(SoftwareCuda::kDevices, "2");
  const SoftwareCuda device;
  int32_t count = 0;
  REQUIRE(device.call(&Slots::device_count, &count).ok());
  REQUIRE(count == 2);
  REQUIRE(runtime_function<cudaError_t(int)>("cudaSetDevice")(1) == cudaSuccess);
  void* memory = nullptr;
  REQUIRE(device.alloc(1000, &memory, 0).ok());
  {
    const Stream stream(device, PLIANT_STREAM_COMPUTE, 0);
    const Event event(device, true);
    REQUIRE(device.call(&Slots::fill_async, memory, 1, 1000, stream).ok());
    REQUIRE(device.call(&Slots::event_record, event, stream).ok());
    REQUIRE(stream.synchronize().ok());
  }
  device.free(memory);
  int current = -1;
  REQUIRE(runtime_function<cudaError_t(int*)>("cudaGetDevice")(&current) == cudaSuccess);
  CHECK(current == 1);
  REQUIRE(runtime_function<cudaError_t(int)>("cudaSetDevice")(0) == cudaSuccess);
}

#ifdef PLIANT_CUDA_KERNELS
TEST_CASE("device memory is reduced by one kernel, whatever the number of sources") {
  const SoftwareCuda device;
  for (const int32_t sources : {1, 16, 17, 1024}) {
    CAPTURE(sources);
    const int64_t before = software_cuda_counts().launches;
    CHECK(sum_of_ones(device, sources) == static_cast<float>(sources));
    CHECK(software_cuda_counts().launches == before + 1);
  }
}
#endif

TEST_CASE("where kernels cannot be loaded the processors reduce, with the same result") {
  const Setting none("PLIANT_SOFT_CUDA_NO_KERNELS", "1");
  const SoftwareCuda device;
  const int64_t before = software_cuda_counts().launches;
  CHECK(sum_of_ones(device, 17) == 17);
  CHECK(software_cuda_counts().launches == before);
}

TEST_CASE("a batch of copies is one call of CUDA 13") {
  const SoftwareCuda device;
  const int64_t before = software_cuda_counts().batches;
  CHECK(reversed(device) == "");
  CHECK(software_cuda_counts().batches == before + 1);
}

TEST_CASE("a driver that knows no batches of copies makes them one by one") {
  const Setting none("PLIANT_SOFT_CUDA_NO_BATCHES", "1");
  const SoftwareCuda device;
  const int64_t before = software_cuda_counts().batches;
  CHECK(reversed(device) == "");
  CHECK(software_cuda_counts().batches == before);
}

TEST_CASE("a batch of copies has the form of CUDA 12.8 on a runtime of that version") {
  const SoftwareCuda device({{}, {}, {}, {{"runtime", PLIANT_SOFT_CUDA_12}}});
  void* runtime = ::dlopen(PLIANT_SOFT_CUDA_12, RTLD_NOW);
  const auto report = reinterpret_cast<pliant_soft_cuda_report_function>(::dlsym(runtime, "pliant_soft_cuda_report"));
  CHECK(reversed(device) == "");
  pliant_soft_cuda_counts counts{};
  report(&counts);
  CHECK(counts.batches == 1);
  CHECK(std::string(counts.first_violation) == "");
}

TEST_CASE("memory that the program registers is pinned by CUDA, whose refusals are told and leave it as it was") {
  alignas(4096) static std::array<std::byte, 3 * 4096> own{};
  const auto registered = [](const SoftwareCuda& device, size_t page, uint64_t bytes) {
    return device.call(&Slots::register_host, static_cast<void*>(&own[page * 4096]), bytes);
  };
  const auto unregister = [](const SoftwareCuda& device, size_t page) {
    device.slots().unregister_host(device.self(), &own[page * 4096]);
  };
  {
    const Setting fail("PLIANT_SOFT_CUDA_FAIL_REGISTER_AT", "2");
    const SoftwareCuda device;
    CHECK(registered(device, 0, 100).ok());
    CHECK(registered(device, 1, 4096).status == PLIANT_RESOURCE_EXHAUSTED);
    CHECK(registered(device, 1, 4096).ok());
    // A page is pinned for one range.
    const Outcome shares = device.call(&Slots::register_host, static_cast<void*>(&own[200]), 8);
    CHECK(shares.status == PLIANT_UNIMPLEMENTED);
    CHECK(contains(shares.message, "cudaErrorHostMemoryAlreadyRegistered"));
    // What the plugin registered it does not free as if it had allocated it.
    device.slots().free(device.self(), 0, PLIANT_MEMORY_PINNED, own.data());
    CHECK(registered(device, 0, 100).status == PLIANT_INVALID_ARGUMENT);
    unregister(device, 0);
    unregister(device, 2);
    CHECK(registered(device, 0, 8192).status == PLIANT_INVALID_ARGUMENT);
    unregister(device, 1);
    CHECK(registered(device, 0, 8192).ok());  // what is left registered goes with the instance
  }
  const Setting none("PLIANT_SOFT_CUDA_NO_REGISTER", "1");
  const SoftwareCuda device;
  CHECK(registered(device, 0, 100).status == PLIANT_UNIMPLEMENTED);
}
