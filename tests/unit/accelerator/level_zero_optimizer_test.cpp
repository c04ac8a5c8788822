// Updates and norms on devices of Level Zero: by kernels where the device takes them, refused where it does not; on the
// software driver.
#include <cstring>
#include <memory>
#include <vector>

#include "level_zero_work.hpp"
#include "pliant/sdk/optimizer_arithmetic.hpp"

using namespace pliant_test;

namespace {

/// An update and norms of device memory: what the calls answer, and where that is OK the result is compared.
struct Optimized {
  int32_t update = 0;
  int32_t norms = 0;
};

Optimized optimize_on(const Device& device, int32_t role = PLIANT_STREAM_COMPUTE) {
  const Stream stream(device, role);
  const auto optimizer = device.extension_calls<pliant_optimizer>(PLIANT_OPTIMIZER);
  constexpr uint64_t kCount = 5000;
  const pliant_adamw_update update{sizeof(update), 0.5F, 0.9F, 0.95F, 1e-3F, 1.5F, 1e-8F, 1e-4F};
  std::vector<Bytes> values;
  std::vector<std::unique_ptr<OnDevice>> held;
  for (uint32_t i = 0; i < 4; ++i) {
    values.push_back(some_values(DType::kF32, kCount, i));
    if (i == 3) {  // which are squares
      for (size_t at = 3; at < values[i].size(); at += 4) values[i][at] &= std::byte{0x7f};
    }
    held.push_back(std::make_unique<OnDevice>(device, stream, values.back()));
  }
  const auto floats = [](void* pointer) { return static_cast<float*>(pointer); };
  const auto read_only = [](void* pointer) { return static_cast<const float*>(pointer); };
  Optimized made;
  const OnDevice target(device, stream, Bytes(pliant::sdk::norm_chunks(kCount) * sizeof(double)));
  made.norms = optimizer
                   .ask(&pliant_optimizer::squared_norms_async, static_cast<double*>(target.get()),
                        read_only(held[1]->get()), kCount, stream)
                   .status;
  made.update = optimizer
                    .ask(&pliant_optimizer::adamw_async, &update, floats(held[0]->get()), read_only(held[1]->get()),
                         floats(held[2]->get()), floats(held[3]->get()), kCount, stream)
                    .status;
  if (made.norms == PLIANT_OK) {
    std::vector<double> wanted(pliant::sdk::norm_chunks(kCount));
    pliant::sdk::squared_norms(wanted.data(), read_only(values[1].data()), kCount);
    const Bytes got = target.read(stream);
    CHECK(std::memcmp(got.data(), wanted.data(), got.size()) == 0);
  }
  if (made.update == PLIANT_OK) {
    pliant::sdk::adamw(update, {floats(values[0].data()), read_only(values[1].data()), floats(values[2].data()),
                                floats(values[3].data()), kCount});
    for (size_t i = 0; i < held.size(); ++i) CHECK(held[i]->read(stream) == values[i]);
  }
  return made;
}

}  // namespace

TEST_CASE("updates and norms of device memory are one kernel each, where the device can, and else refused") {
  const int32_t there = kLaunch == 1 ? PLIANT_OK : PLIANT_UNIMPLEMENTED;
  const auto check = [](const Device& device, int32_t role, int32_t update, int32_t norms) {
    const int64_t before = launched();
    const Optimized made = optimize_on(device, role);
    CHECK(made.update == update);
    CHECK(made.norms == norms);
    CHECK(launched() == before + (update == PLIANT_OK ? 1 : 0) + (norms == PLIANT_OK ? 1 : 0));
  };
  {
    const SoftwareLevelZero device;
    check(device, PLIANT_STREAM_COMPUTE, there, there);
    check(device, PLIANT_STREAM_GATHER, PLIANT_UNIMPLEMENTED, PLIANT_UNIMPLEMENTED);  // its engine only copies
  }
  {
    const Setting none("PLIANT_SOFT_ZE_DOUBLES", "0");
    const SoftwareLevelZero device;
    check(device, PLIANT_STREAM_COMPUTE, there, PLIANT_UNIMPLEMENTED);
  }
  {
    const Setting none("PLIANT_SOFT_ZE_ROUNDS", "0");
    const SoftwareLevelZero device;
    check(device, PLIANT_STREAM_COMPUTE, PLIANT_UNIMPLEMENTED, there);
  }
}
