// Reductions and casts on devices of Level Zero: by kernels where the device takes them, by the processors where it
// does not, with the same bits; on the software driver.
#include <array>
#include <cstring>
#include <memory>
#include <random>

#include "level_zero_work.hpp"
#include "negative/pliant_process.hpp"
#include "pliant/sdk/arithmetic.hpp"

using namespace pliant_test;
using pliant::sdk::DType;
using pliant::sdk::ReduceOp;

namespace {

/// A reduction of device memory into the `target`th source, beside what the processors make of it.
struct Reduction {
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  size_t sources = 2;
  uint64_t count = 1000;
  double scale = 1;
  int32_t role = PLIANT_STREAM_COMPUTE;

  void check_on(const Device& device) const {
    const Stream stream(device, role);
    std::vector<std::unique_ptr<OnDevice>> held;
    std::vector<Bytes> values;
    std::vector<const void*> from;
    std::vector<const void*> inputs;
    for (size_t r = 0; r < sources; ++r) values.push_back(some_values(dtype, count, static_cast<uint32_t>(r)));
    for (const Bytes& one : values) {
      held.push_back(std::make_unique<OnDevice>(device, stream, one));
      from.push_back(held.back()->get());
      inputs.push_back(one.data());
    }
    Bytes wanted(values[0].size());
    pliant::sdk::reduce(dtype, op, inputs, scale, count, wanted.data());
    const OnDevice& target = *held.back();
    CHECK(device
              .call(&Slots::reduce_async, target.get(), from.data(), static_cast<int32_t>(sources), count,
                    static_cast<int32_t>(dtype), static_cast<int32_t>(op), scale, stream)
              .text() == "0: ");
    CHECK(target.read(stream) == wanted);
  }
};

void check_cast_on(const Device& device, DType from, DType to) {
  const Stream stream(device);
  const Bytes values = some_values(from, 777, 5);
  Bytes wanted(777 * pliant::sdk::size_of(to));
  pliant::sdk::cast(from, values.data(), to, wanted.data(), 777);
  const OnDevice source(device, stream, values);
  const OnDevice target(device, stream, wanted);
  REQUIRE(device.call(&Slots::fill_async, target.get(), 0x55, wanted.size(), stream).ok());
  CHECK(device
            .call(&Slots::cast_async, target.get(), static_cast<int32_t>(to), source.get(), static_cast<int32_t>(from),
                  uint64_t{777}, stream)
            .ok());
  CHECK(target.read(stream) == wanted);
}

}  // namespace

TEST_CASE("device memory is reduced and cast by one kernel") {
  const SoftwareLevelZero device;
  const int64_t before = launched();
  Reduction{}.check_on(device);
  CHECK(launched() == before + kLaunch);
  check_cast_on(device, DType::kF32, DType::kBF16);
  CHECK(launched() == before + 2 * kLaunch);
  Reduction{DType::kF64}.check_on(device);
  check_cast_on(device, DType::kF64, DType::kF16);
  CHECK(launched() == before + 4 * kLaunch);
}

TEST_CASE("more sources than one launch takes give the bits of one, in place and in pieces") {
  const SoftwareLevelZero device({{{"staging_bytes", 128 * 1024}}, {}, {}});
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32, DType::kF64, DType::kI32}) {
    const uint64_t computed = dtype == DType::kF64 ? 8 : 4;
    const uint64_t piece = 128 * 1024 / computed;
    const double scale = dtype == DType::kI32 ? 1 : 1.0 / 3;
    for (const size_t sources : {16U, 17U, 40U}) {
      CAPTURE(name_of(dtype));
      CAPTURE(sources);
      const int64_t before = launched();
      Reduction{dtype, ReduceOp::kSum, sources, piece + 3, scale}.check_on(device);
      const int64_t launches = sources <= 16 ? 1 : 2 * static_cast<int64_t>((sources + 15) / 16);
      CHECK(launched() == before + launches * kLaunch);
    }
  }
}

TEST_CASE("every number of sources, of every operation, is taken in order") {
  const SoftwareLevelZero device;
  for (size_t sources = 1; sources <= 34; ++sources) {
    CAPTURE(sources);
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax}) {
      Reduction{DType::kF16, op, sources, 97, 0.7}.check_on(device);
    }
  }
}

TEST_CASE("streams on an engine that only copies reduce by the processors, those that scatter by kernels") {
  const SoftwareLevelZero device;
  const int64_t before = launched();
  Reduction{DType::kF32, ReduceOp::kSum, 2, 1000, 1, PLIANT_STREAM_GATHER}.check_on(device);
  CHECK(launched() == before);
  Reduction{DType::kF32, ReduceOp::kSum, 2, 1000, 1, PLIANT_STREAM_SCATTER}.check_on(device);
  CHECK(launched() == before + kLaunch);
}

TEST_CASE("kernels reach buffers that are larger than what the driver gives by default") {
  const SoftwareLevelZero device;
  const Stream stream(device);
  constexpr uint64_t kBytes = uint64_t{300} << 20;
  void* large = nullptr;
  REQUIRE(device.call(&Slots::alloc, 0, PLIANT_MEMORY_DEVICE, kBytes, &large).ok());
  auto* const last = static_cast<std::byte*>(large) + kBytes - 4;
  REQUIRE(device.call(&Slots::fill_async, last, 0, 4, stream).ok());
  const std::array<const void*, 1> from{last};
  CHECK(device.call(&Slots::reduce_async, last, from.data(), 1, 1, PLIANT_F32, PLIANT_SUM, 2.0, stream).ok());
  CHECK(stream.synchronize().ok());
  device.slots().free(device.self(), 0, PLIANT_MEMORY_DEVICE, large);
}  // the check for broken rules is in ~Device

TEST_CASE("each device has kernels of its own") {
  const Setting two("PLIANT_SOFT_ZE_DEVICES", "2");
  const SoftwareLevelZero device;
  const int64_t before = launched();
  for (const int32_t index : {1, 0}) {
    const Stream stream(device, PLIANT_STREAM_COMPUTE, index);
    const float one = 1;
    float sum = 0;
    void* buffer = nullptr;
    REQUIRE(device.call(&Slots::alloc, index, PLIANT_MEMORY_DEVICE, sizeof(one), &buffer).ok());
    const std::array<const void*, 2> from{buffer, buffer};
    REQUIRE(device.call(&Slots::copy_async, buffer, &one, sizeof(one), stream).ok());
    REQUIRE(device.call(&Slots::reduce_async, buffer, from.data(), 2, 1, PLIANT_F32, PLIANT_SUM, 1.0, stream).ok());
    REQUIRE(device.call(&Slots::copy_async, &sum, buffer, sizeof(sum), stream).ok());
    REQUIRE(stream.synchronize().ok());
    CHECK(sum == 2);
    device.slots().free(device.self(), index, PLIANT_MEMORY_DEVICE, buffer);
  }
  CHECK(launched() == before + 2 * kLaunch);
}

TEST_CASE("two streams of one device launch the same kernel with arguments of their own") {
  const SoftwareLevelZero device;
  const Stream one(device);
  const Stream other(device, PLIANT_STREAM_SCATTER);
  constexpr uint64_t kCount = 5000;
  const Bytes values = some_values(DType::kF32, kCount, 1);
  const OnDevice source(device, one, values);
  const OnDevice doubled(device, one, values);
  const OnDevice halved(device, one, values);
  const std::array<const void*, 1> from{source.get()};
  for (int i = 0; i < 50; ++i) {
    REQUIRE(device.call(&Slots::reduce_async, doubled.get(), from.data(), 1, kCount, PLIANT_F32, PLIANT_SUM, 2.0, one)
                .ok());
    REQUIRE(device.call(&Slots::reduce_async, halved.get(), from.data(), 1, kCount, PLIANT_F32, PLIANT_SUM, 0.5, other)
                .ok());
  }
  REQUIRE(other.synchronize().ok());
  const Bytes twice = doubled.read(one);
  const Bytes half = halved.read(one);
  const std::array<const void*, 1> inputs{values.data()};
  Bytes wanted(values.size());
  pliant::sdk::reduce(DType::kF32, ReduceOp::kSum, inputs, 2.0, kCount, wanted.data());
  CHECK(twice == wanted);
  pliant::sdk::reduce(DType::kF32, ReduceOp::kSum, inputs, 0.5, kCount, wanted.data());
  CHECK(half == wanted);
}

TEST_CASE("a device without doubles reduces those by the processors and the rest by kernels") {
  const Setting none("PLIANT_SOFT_ZE_DOUBLES", "0");
  const SoftwareLevelZero device;
  const int64_t before = launched();
  Reduction{DType::kF64}.check_on(device);
  check_cast_on(device, DType::kF64, DType::kF32);
  check_cast_on(device, DType::kI64, DType::kF64);
  CHECK(launched() == before);
  Reduction{DType::kI64}.check_on(device);
  check_cast_on(device, DType::kI64, DType::kF16);
  CHECK(launched() == before + 2 * kLaunch);
}

TEST_CASE("where the driver refuses the kernels, or its floats are others, the processors give the same result") {
  for (const char* what : {"PLIANT_SOFT_ZE_FAIL_MODULE", "PLIANT_SOFT_ZE_FLUSHES"}) {
    CAPTURE(what);
    const Setting refused(what, "1");
    const SoftwareLevelZero device;
    const int64_t before = launched();
    Reduction{DType::kBF16, ReduceOp::kSum, 20}.check_on(device);
    check_cast_on(device, DType::kF32, DType::kF16);
    CHECK(launched() == before);
  }
}

#ifdef PLIANT_LEVEL_ZERO_KERNELS
TEST_CASE("a launch that the driver refuses is told with the result, and the next one works") {
  const SoftwareLevelZero device;
  const Stream stream(device);
  const OnDevice buffer(device, stream, some_values(DType::kF32, 100, 1));
  const std::array<const void*, 1> from{buffer.get()};
  const auto reduce = [&] {
    return device.call(&Slots::reduce_async, buffer.get(), from.data(), 1, 100, PLIANT_F32, PLIANT_SUM, 2.0, stream);
  };
  const Setting fail("PLIANT_SOFT_ZE_FAIL_LAUNCH_AT", std::to_string(launched() + 1));
  const std::string told = reduce().message + stream.synchronize().message;
  CHECK(contains(told, "zeCommandListAppendLaunchKernel: ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY"));
  CHECK(reduce().ok());
  CHECK(stream.synchronize().ok());
}

TEST_CASE("accel list says why a device has no kernels, in the words of the driver's compiler") {
  const pliant::test::ScratchFolder folder;
  const auto list = [&](const std::string& setting) {
    return pliant::test::run_pliant(folder, {"accel", "list"},
                                    {std::string("ZE_ENABLE_ALT_DRIVERS=") + PLIANT_SOFT_LEVEL_ZERO, setting})
        .err;
  };
  CHECK(!contains(list("NOTHING=1"), "reductions and casts"));
  const std::string refused = list("PLIANT_SOFT_ZE_FAIL_MODULE=1");
  CAPTURE(refused);
  CHECK(contains(refused, "device 0: reductions and casts of device memory run on the CPU"));
  CHECK(contains(refused, "zeModuleCreate: ZE_RESULT_ERROR_MODULE_BUILD_FAILURE"));
  CHECK(contains(refused, "error: told to fail   by the test"));
  CHECK(contains(list("PLIANT_SOFT_ZE_FLUSHES=1"), "32-bit floats lack rounding to nearest, subnormal numbers"));
}
#endif
