// The extension pliant.optimizer/0: updates and norms, against the definitions in the ABI.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>

#include "testkit/checks/accelerator_checks.hpp"
#include "testkit/gate.hpp"
#include "testkit/values.hpp"

namespace pliant::testkit {

namespace {

using Slots = pliant_accelerator;
using Table = pliant_optimizer;
using Floats = std::vector<float>;
using Doubles = std::vector<double>;

/// Weights, gradient, first and second moment.
using Arrays = std::array<Floats, 4>;
constexpr std::array kNames{"weights", "gradient", "first moments", "second moments"};

void need_optimizer(const Accelerator& accelerator) {
  if (accelerator.optimizer() == nullptr) skip("it lacks the optional extension pliant.optimizer/0");
}

/// Skips the check where the device cannot.
void must_or_skip(const char* slot, const Outcome& outcome) {
  if (outcome.status == PLIANT_UNIMPLEMENTED) skip(outcome.message);
  must(slot, outcome);
}

template <class T>
Bytes bytes_of(const std::vector<T>& values) {
  Bytes made(values.size() * sizeof(T));
  if (!made.empty()) std::memcpy(made.data(), values.data(), made.size());
  return made;
}

uint32_t bits_of(float value) {
  return std::bit_cast<uint32_t>(value);
}
uint64_t bits_of(double value) {
  return std::bit_cast<uint64_t>(value);
}

/// The first element with other bits, in words; "" when there is none. Any NaN is a NaN.
template <class T>
std::string difference_of(const Bytes& got, const std::vector<T>& wanted) {
  for (size_t i = 0; i < wanted.size(); ++i) {
    T one;
    std::memcpy(&one, got.data() + i * sizeof(T), sizeof(T));
    if (bits_of(one) == bits_of(wanted[i]) || (std::isnan(one) && std::isnan(wanted[i]))) continue;
    std::array<char, 128> text{};
    std::snprintf(text.data(), text.size(), "element %zu is %a in place of %a", i, static_cast<double>(one),
                  static_cast<double>(wanted[i]));
    return text.data();
  }
  return "";
}

/// From tiny to large, with subnormal numbers and zeros of both signs between.
float drawn_float(uint64_t seed, uint64_t where, uint64_t index) {
  const uint64_t bits = drawn(seed, where, index);
  const auto unit = static_cast<float>(static_cast<int32_t>(bits)) * 0x1p-31F;
  const uint64_t kind = bits >> 32U;
  if (kind % 32 == 0) return unit * 0.0F;
  return std::ldexp(unit, static_cast<int>(kind / 32 % 40) - (kind % 32 == 1 ? 140 : 20));
}

Arrays drawn_arrays(uint64_t seed, uint64_t where, uint64_t count) {
  Arrays made;
  for (size_t array = 0; array < made.size(); ++array) {
    for (uint64_t i = 0; i < count; ++i) made[array].push_back(drawn_float(seed, where * 4 + array, i));
  }
  for (float& one : made[3]) one = std::abs(one);
  return made;
}

pliant_adamw_update some_update(bool decays) {
  return {sizeof(pliant_adamw_update), 0.37F, 0.9F, 0.95F, 3.1e-3F, 1.7F, 1e-8F, decays ? 1e-2F : 0.0F};
}

/// Rounded to a float, and not fused with what is done with it.
float rounded(float value) {
  volatile float there = value;
  return there;
}

void wanted_update(const pliant_adamw_update& u, Arrays& on) {
  for (size_t i = 0; i < on[0].size(); ++i) {
    const float g = rounded(on[1][i] * u.gradient_scale);
    float& w = on[0][i];
    float& m = on[2][i];
    float& v = on[3][i];
    m = rounded(u.beta1 * m) + rounded(rounded(1 - u.beta1) * g);
    v = rounded(u.beta2 * v) + rounded(rounded(rounded(1 - u.beta2) * g) * g);
    const float below = rounded(rounded(std::sqrt(v)) * u.correction) + u.epsilon;
    w = w - rounded(rounded(rounded(u.rate * m) / rounded(below)) + rounded(u.decay * w));
  }
}

/// The arrays on the device, `shift` bytes past the alignment.
class OnDevice {
 public:
  OnDevice(const Accelerator& accelerator, const Arrays& arrays, uint64_t shift) : accelerator_(accelerator) {
    for (const Floats& one : arrays) {
      all_.push_back(std::make_unique<Guarded>(accelerator, one.size() * sizeof(float), shift));
      all_.back()->set(bytes_of(one));
    }
    count_ = arrays[0].size();
  }
  [[nodiscard]] Outcome update(const pliant_adamw_update* update, const Stream& stream) const {
    return accelerator_.call(&Table::adamw_async, update, at(0), static_cast<const float*>(at(1)), at(2), at(3), count_,
                             stream);
  }
  void expect_arrays(const Arrays& wanted, const std::string& what) const {
    for (size_t i = 0; i < wanted.size(); ++i) {
      const std::string wrong = difference_of(all_[i]->get(what), wanted[i]);
      expect(wrong.empty(), what + ": of the " + kNames[i] + " " + wrong);
    }
  }
  [[nodiscard]] float* at(size_t array) const { return reinterpret_cast<float*>(all_[array]->at()); }

 private:
  const Accelerator& accelerator_;
  std::vector<std::unique_ptr<Guarded>> all_;
  uint64_t count_ = 0;
};

/// A call must have read its update when it returns.
void update(const OnDevice& arrays, pliant_adamw_update given, const Stream& stream) {
  must_or_skip("adamw_async", arrays.update(&given, stream));
  given = some_update(true);
  given.rate = 77;
}

void exact_update(const Subject& subject) {
  const Accelerator accelerator(subject);
  need_optimizer(accelerator);
  const Stream stream(accelerator);
  for (const uint64_t count : std::initializer_list<uint64_t>{0, 1, 7, 255, 1000, 100003}) {
    for (const uint64_t shift : std::initializer_list<uint64_t>{0, 4, 20}) {
      for (const bool decays : {true, false}) {
        const std::string what = "an update of " + std::to_string(count) + " elements, " + std::to_string(shift) +
                                 " bytes past the alignment" + (decays ? "" : ", without decay");
        Arrays wanted = drawn_arrays(subject.seed, count + shift, count);
        const OnDevice arrays(accelerator, wanted, shift);
        for (int step = 0; step < 2; ++step) {
          update(arrays, some_update(decays), stream);
          wanted_update(some_update(decays), wanted);
        }
        stream.wait();
        arrays.expect_arrays(wanted, what);
      }
    }
  }
}

void update_in_order(const Subject& subject) {
  const Accelerator accelerator(subject);
  need_optimizer(accelerator);
  const Stream held(accelerator);
  Arrays wanted = drawn_arrays(subject.seed, 1, 500);
  const OnDevice arrays(accelerator, wanted, 0);
  {
    Gate gate;
    gate.hold(accelerator, held);
    must("fill_async", accelerator.call(&Slots::fill_async, static_cast<void*>(arrays.at(1)), 1,
                                        wanted[1].size() * sizeof(float), held));
    returns_soon("adamw_async on a blocked stream", [&] { update(arrays, some_update(true), held); });
    expect(!held.done(), "stream_query reports a stream as done while a host function on it waits");
  }
  held.wait();
  std::memset(wanted[1].data(), 1, wanted[1].size() * sizeof(float));
  wanted_update(some_update(true), wanted);
  arrays.expect_arrays(wanted, "an update after a fill on its stream");
}

double wanted_norm(const float* chunk, uint64_t count) {
  std::array<double, 32> lanes{};
  for (uint64_t i = 0; i < count; ++i) {
    const volatile double square = double{chunk[i]} * double{chunk[i]};
    lanes[i % lanes.size()] += square;
  }
  for (size_t half = lanes.size() / 2; half > 0; half /= 2) {
    for (size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

Doubles wanted_norms(const Floats& values) {
  Doubles made;
  for (uint64_t at = 0; at < values.size(); at += PLIANT_NORM_CHUNK)
    made.push_back(wanted_norm(values.data() + at, std::min<uint64_t>(PLIANT_NORM_CHUNK, values.size() - at)));
  return made;
}

void take_norms(const Accelerator& accelerator, unsigned char* to, const unsigned char* from, uint64_t count,
                const Stream& stream) {
  must_or_skip("squared_norms_async", accelerator.call(&Table::squared_norms_async, reinterpret_cast<double*>(to),
                                                       reinterpret_cast<const float*>(from), count, stream));
}

void compare_norms(const Accelerator& accelerator, const Stream& stream, const Floats& values, uint64_t shift,
                   const std::string& what) {
  const Doubles wanted = wanted_norms(values);
  const Guarded from(accelerator, values.size() * sizeof(float), shift);
  from.set(bytes_of(values));
  const Guarded to(accelerator, wanted.size() * sizeof(double), 8);
  const Memory pinned(accelerator, wanted.size() * sizeof(double), PLIANT_MEMORY_PINNED);
  take_norms(accelerator, to.at(), from.at(), values.size(), stream);
  take_norms(accelerator, pinned.at(), from.at(), values.size(), stream);
  stream.wait();
  const std::string wrong = difference_of(to.get(what), wanted);
  expect(wrong.empty(), what + " in device memory: " + wrong);
  const std::string beside = difference_of(Bytes(pinned.at(), pinned.at() + wanted.size() * sizeof(double)), wanted);
  expect(beside.empty(), what + " in pinned memory: " + beside);
  expect(from.get(what) == bytes_of(values), what + " changed the elements");
}

Floats drawn_floats(uint64_t seed, uint64_t where, uint64_t count) {
  Floats made;
  for (uint64_t i = 0; i < count; ++i) made.push_back(drawn_float(seed, where, i));
  return made;
}

void exact_norms(const Subject& subject) {
  const Accelerator accelerator(subject);
  need_optimizer(accelerator);
  const Stream stream(accelerator);
  for (const uint64_t count : std::initializer_list<uint64_t>{0, 1, 31, 33, 1023, 1024, 1025, 4096, 300001}) {
    for (const uint64_t shift : std::initializer_list<uint64_t>{0, 4, 20}) {
      compare_norms(accelerator, stream, drawn_floats(subject.seed, count, count), shift,
                    "the squared norms of " + std::to_string(count) + " elements, " + std::to_string(shift) +
                        " bytes past the alignment,");
    }
  }
}

void finite_norms(const Subject& subject) {
  const Accelerator accelerator(subject);
  need_optimizer(accelerator);
  const Stream stream(accelerator);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    for (const size_t at : {0U, 40U, 1023U, 1024U, 2100U}) {
      Floats values(2101, std::numeric_limits<float>::max());
      values[at] = bad;
      compare_norms(accelerator, stream, values, 0,
                    "the squared norms where element " + std::to_string(at) + " is " + std::to_string(bad));
    }
  }
}

void norms_in_order(const Subject& subject) {
  const Accelerator accelerator(subject);
  need_optimizer(accelerator);
  const Stream held(accelerator);
  constexpr uint64_t kCount = 5000;
  const Guarded from(accelerator, kCount * sizeof(float));
  from.set(bytes_of(drawn_floats(subject.seed, 3, kCount)));
  Floats filled(kCount);
  std::memset(filled.data(), 1, filled.size() * sizeof(float));
  const Doubles wanted = wanted_norms(filled);
  const Guarded to(accelerator, wanted.size() * sizeof(double));
  {
    Gate gate;
    gate.hold(accelerator, held);
    must("fill_async",
         accelerator.call(&Slots::fill_async, static_cast<void*>(from.at()), 1, kCount * sizeof(float), held));
    returns_soon("squared_norms_async on a blocked stream",
                 [&] { take_norms(accelerator, to.at(), from.at(), kCount, held); });
    expect(!held.done(), "stream_query reports a stream as done while a host function on it waits");
  }
  held.wait();
  const std::string wrong = difference_of(to.get("squared_norms_async"), wanted);
  expect(wrong.empty(), "squared norms do not see an earlier fill on their stream: " + wrong);
}

}  // namespace

std::vector<Check> optimizer_checks() {
  return {
      {"optimizer.adamw", "an update has the bits that the ABI defines, and nothing else changes", exact_update},
      {"optimizer.adamw_order", "an update returns at once and waits for earlier work on its stream", update_in_order},
      {"optimizer.norms", "squared norms of chunks have the bits that the ABI defines", exact_norms},
      {"optimizer.finite", "the squared norm of a chunk is finite exactly where all its elements are", finite_norms},
      {"optimizer.norms_order", "squared norms return at once and wait for earlier work on their stream",
       norms_in_order},
  };
}

}  // namespace pliant::testkit
