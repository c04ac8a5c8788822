// Updates and norms on streams: by the accelerator, and by the calling thread where it has none.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "optimizer_work.hpp"
#include "wrapper.hpp"

using pliant::Accelerator;
using pliant::Buffer;
using pliant::Status;
using pliant::Stream;
using pliant::test::Arrays;
using pliant::test::error_of;
using pliant::test::expected_adamw;
using pliant::test::expected_norms;
using pliant::test::host;
using pliant::test::same_bits;
using pliant::test::sim;
using pliant::test::some_arrays;
using pliant::test::some_update;

namespace {

/// More than goes through the host at once, and no whole number of chunks.
constexpr size_t kMany = (size_t{1} << 18U) + 5000;

struct Machine {
  std::string name;
  Accelerator accelerator;
};

std::vector<Machine> machines() {
  return {
      {"host", host()},
      {"sim", sim("")},
      {"sim whose memory the CPU does not reach", sim("host_visible = false")},
      {"sim without an optimizer", sim("optimizer = false")},
      {"sim without an optimizer whose memory the CPU does not reach", sim("host_visible = false\noptimizer = false")}};
}

/// Device memory, as floats or doubles, that lies between others.
template <class T>
class OnDevice {
 public:
  OnDevice(const Accelerator& accelerator, Stream& stream, const std::vector<T>& values)
      : stream_(stream), count_(values.size()), buffer_(accelerator, 0, (count_ + 1) * sizeof(T)) {
    if (count_ > 0) stream_.copy(get(), values.data(), count_ * sizeof(T));
    stream_.synchronize();
  }
  [[nodiscard]] T* get() const { return static_cast<T*>(buffer_.pointer()); }
  [[nodiscard]] std::vector<T> read() const {
    std::vector<T> values(count_);
    if (count_ > 0) stream_.copy(values.data(), get(), count_ * sizeof(T));
    stream_.synchronize();
    return values;
  }

 private:
  Stream& stream_;
  size_t count_;
  Buffer buffer_;
};

}  // namespace

TEST_CASE("an update on a stream has the bits of the formula, also where the accelerator has none") {
  for (const Machine& machine : machines()) {
    CAPTURE(machine.name);
    for (const size_t count : {size_t{0}, size_t{1}, kMany}) {
      Stream stream(machine.accelerator, 0);
      Arrays expected = some_arrays(count, 3);
      std::vector<OnDevice<float>> there;
      there.reserve(expected.all.size());
      for (const auto& array : expected.all) there.emplace_back(machine.accelerator, stream, array);
      const pliant::AdamWArrays on{there[0].get(), there[1].get(), there[2].get(), there[3].get(), count};
      for (int step = 0; step < 2; ++step) {
        stream.fill(there[1].get(), 1, count * sizeof(float));  // which the update waits for
        std::memset(expected.all[1].data(), 1, count * sizeof(float));
        adamw(stream, some_update(), on);
        expected_adamw(some_update(), expected.whole());
      }
      for (size_t array = 0; array < there.size(); ++array) CHECK(same_bits(there[array].read(), expected.all[array]));
    }
  }
}

TEST_CASE("squared norms on a stream are those of the processors, also where the accelerator has none") {
  for (const Machine& machine : machines()) {
    CAPTURE(machine.name);
    for (const size_t count : {size_t{0}, size_t{1}, size_t{1024}, kMany}) {
      Stream stream(machine.accelerator, 0);
      const std::vector<float> values = some_arrays(count, 5).all[0];
      const OnDevice<float> from(machine.accelerator, stream, values);
      const OnDevice<double> to(machine.accelerator, stream, std::vector<double>(pliant::norm_chunks(count), -1));
      squared_norms(stream, to.get(), from.get(), count);
      CHECK(to.read() == expected_norms(values));
    }
  }
}

TEST_CASE("the squared norm of parameters in device memory is that of the same elements in the CPU's") {
  const std::vector<float> values = some_arrays(kMany, 7).all[0];
  const std::vector<uint64_t> parts{1, 0, 5000, 1024, kMany - 6025};
  for (const Machine& machine : machines()) {
    CAPTURE(machine.name);
    Stream stream(machine.accelerator, 0);
    const OnDevice<float> there(machine.accelerator, stream, values);
    CHECK(squared_norm(stream, {there.get(), kMany}, parts) == pliant::squared_norm(values, parts));
    CHECK(squared_norm(stream, {}, {}) == 0);
    const auto error = error_of([&] { static_cast<void>(squared_norm(stream, {there.get(), 3}, parts)); });
    REQUIRE(error);
    CHECK(error->message() == "part 2 of an array has 5000 elements, but 2 of its 3 are left");
  }
}

TEST_CASE("arrays that are missing, or overlap, are refused by name on every accelerator") {
  for (const Machine& machine : machines()) {
    CAPTURE(machine.name);
    Stream stream(machine.accelerator, 0);
    const OnDevice<float> there(machine.accelerator, stream, std::vector<float>(64));
    float* const a = there.get();
    const auto refusal = [&](const pliant::AdamWArrays& arrays) {
      const auto error = error_of([&] { adamw(stream, some_update(), arrays); });
      REQUIRE(error);
      CHECK(error->status() == Status::kInvalidArgument);
      return error->message();
    };
    const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
    CHECK(has(refusal({nullptr, a, a + 8, a + 16, 8}), "the array of weights is NULL"));
    CHECK(has(refusal({a, nullptr, a + 8, a + 16, 8}), "the gradient is NULL"));
    CHECK(has(refusal({a, a + 8, nullptr, a + 16, 8}), "the first moment is NULL"));
    CHECK(has(refusal({a, a + 8, a + 16, nullptr, 8}), "the second moment is NULL"));
    CHECK(has(refusal({a, a + 7, a + 16, a + 24, 8}), "the array of weights and the gradient overlap"));
    CHECK(has(refusal({a, a + 8, a + 23, a + 16, 8}), "the first moment and the second moment overlap"));
    CHECK(has(refusal({a, a + 8, a + 16, a + 24, ~uint64_t{0}}), "more than memory can hold"));
    auto* const odd = reinterpret_cast<float*>(reinterpret_cast<std::byte*>(a) + 2);
    CHECK(has(refusal({a, odd + 8, a + 16, a + 24, 2}), "the gradient is not aligned"));
    const auto norms = [&](double* to, const float* from, uint64_t count) {
      const auto error = error_of([&] { squared_norms(stream, to, from, count); });
      REQUIRE(error);
      CHECK(error->status() == Status::kInvalidArgument);
      return error->message();
    };
    auto* const doubles = reinterpret_cast<double*>(a);
    CHECK(has(norms(nullptr, a, 8), "the target is NULL"));
    CHECK(has(norms(doubles, nullptr, 8), "the source is NULL"));
    CHECK(has(norms(doubles, a, 8), "overlap"));
    CHECK(has(norms(doubles, a + 8, ~uint64_t{0}), "more than memory can hold"));
    adamw(stream, some_update(), {});
    squared_norms(stream, nullptr, nullptr, 0);
    stream.synchronize();
  }
}
