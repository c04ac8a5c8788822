// Memory in stream order, of the accelerator cuda.
#include <atomic>

#include "cuda_device.hpp"
#include "stream_memory.hpp"

using namespace pliant_test;

namespace {
using Slots = pliant_accelerator;
using Pool = StreamPool;
}  // namespace

TEST_CASE("memory in stream order is kept when the stream is synchronized, and trimmed when asked") {
  const SoftwareCuda device;
  const Pool pool(device);
  const Stream stream(device);
  void* buffer = nullptr;
  REQUIRE(pool.alloc(4096, stream, &buffer).ok());
  REQUIRE(device.call(&Slots::fill_async, buffer, 7, 4096, stream).ok());
  unsigned char last = 0;
  REQUIRE(device.call(&Slots::copy_async, &last, static_cast<char*>(buffer) + 4095, 1, stream).ok());
  REQUIRE(pool.free(buffer, stream).ok());
  REQUIRE(stream.synchronize().ok());
  CHECK(last == 7);
  CHECK(software_cuda_counts().pool_kept_bytes == 4096);
  void* again = nullptr;
  REQUIRE(pool.alloc(1000, stream, &again).ok());
  CHECK(software_cuda_counts().pool_kept_bytes == 3096);
  REQUIRE(pool.free(again, stream).ok());
  REQUIRE(stream.synchronize().ok());
  REQUIRE(pool.trim(500).ok());
  CHECK(software_cuda_counts().pool_kept_bytes == 500);
  REQUIRE(pool.trim(0).ok());
  CHECK(software_cuda_counts().pool_kept_bytes == 0);
}

TEST_CASE("memory is given back after the work before it, and not while that stands") {
  const SoftwareCuda device;
  const Pool pool(device);
  const Stream stream(device);
  void* buffer = nullptr;
  std::atomic<bool> open{false};
  const auto gate = [](void* context) { static_cast<std::atomic<bool>*>(context)->wait(false); };
  REQUIRE(device.call(&Slots::host_function, +gate, &open, stream).ok());
  REQUIRE(pool.alloc(64, stream, &buffer).ok());
  REQUIRE(device.call(&Slots::fill_async, buffer, 1, 64, stream).ok());
  REQUIRE(pool.free(buffer, stream).ok());
  CHECK(software_cuda_counts().pool_kept_bytes == 0);
  open = true;
  open.notify_all();
  REQUIRE(stream.synchronize().ok());
  CHECK(software_cuda_counts().pool_kept_bytes == 64);
}

TEST_CASE("what is not memory in stream order is refused, and NULL does nothing") {
  const SoftwareCuda device;
  const Pool pool(device);
  const Stream stream(device);
  void* plain = nullptr;
  void* pooled = nullptr;
  REQUIRE(device.alloc(64, &plain).ok());
  REQUIRE(pool.alloc(64, stream, &pooled).ok());
  CHECK(contains(pool.free(plain, stream).message, "not from alloc_async"));
  CHECK(pool.free(nullptr, stream).ok());
  CHECK(pool.free(pooled, nullptr).message == "the stream is NULL");
  CHECK(contains(pool.alloc(64, stream, &plain, 1).message, "device 1 does not exist"));
  CHECK(plain == nullptr);
  device.free(pooled);  // left alone: it goes by free_async
  REQUIRE(pool.free(pooled, stream).ok());
  CHECK(contains(pool.free(pooled, stream).message, "freed before"));
}  // what alloc gave goes with the instance

TEST_CASE("what a pool keeps is given up before an allocation is refused") {
  const Setting memory("PLIANT_SOFT_CUDA_MEMORY_BYTES", "1048576");
  const SoftwareCuda device;
  const Pool pool(device);
  void* buffer = nullptr;
  {
    const Stream stream(device);
    REQUIRE(pool.alloc(1000000, stream, &buffer).ok());
    const Outcome refused = device.alloc(1000000, &buffer);
    CHECK(refused.status == PLIANT_RESOURCE_EXHAUSTED);
    REQUIRE(pool.alloc(10, stream, &buffer).ok());
    REQUIRE(pool.free(buffer, stream).ok());
    REQUIRE(stream.synchronize().ok());
  }
  REQUIRE(software_cuda_counts().pool_kept_bytes == 10);
  REQUIRE(device.alloc(48576, &buffer).ok());
  CHECK(software_cuda_counts().pool_kept_bytes == 0);
  device.free(buffer);
}
