// AdamW and squared norms on one processor, beside a copy of the same bytes: bench_optimizer [pairs]. An update reads
// four arrays and writes three, a norm reads one; the copy reads half as many bytes and writes the other half. Update
// and copy take turns, so that what else the machine does slows both.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "pliant/optimizer.hpp"
#include "pliant/sdk/optimizer_arithmetic.hpp"

namespace {

using pliant::sdk::Instructions;

constexpr uint64_t kBytesOfUpdate = 7 * sizeof(float);
constexpr uint64_t kBytesOfNorm = sizeof(float);

double seconds_of(const std::function<void()>& call) {
  const auto begin = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

struct Quartiles {
  double low, median, high;
};

Quartiles quartiles_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return {values[n / 4], values[n / 2], values[3 * n / 4]};
}

struct Question {
  const char* what;
  uint64_t bytes;  ///< read and written
  std::function<void()> call;
};

void measure(const Question& question, uint64_t elements, int pairs) {
  std::vector<char> from(question.bytes / 2, 1);
  std::vector<char> to(question.bytes / 2, 1);
  // In the caches one call is too short to be timed.
  const int calls = static_cast<int>(std::max<uint64_t>(1, (uint64_t{1} << 25U) / question.bytes));
  const auto repeat = [calls](const std::function<void()>& call) {
    return seconds_of([&] {
             for (int i = 0; i < calls; ++i) call();
           }) /
           calls;
  };
  const auto copy = [&] { std::memcpy(to.data(), from.data(), from.size()); };
  std::vector<double> own;
  std::vector<double> copied;
  std::vector<double> ratios;
  for (int i = -2; i < pairs; ++i) {
    const double took = repeat(question.call);
    const double beside = repeat(copy);
    if (i < 0) continue;
    own.push_back(took);
    copied.push_back(beside);
    ratios.push_back(beside / took);
  }
  const double gigabytes = static_cast<double>(question.bytes) * 1e-9;
  const Quartiles a = quartiles_of(own);
  const Quartiles b = quartiles_of(copied);
  const Quartiles r = quartiles_of(ratios);
  fmt::print(
      "{:<28} {:>9} elements  {:6.2f} GB/s ({:.2f}..{:.2f})  copy {:6.2f} GB/s ({:.2f}..{:.2f})  of the copy's speed "
      "{:3.0f} % ({:.0f}..{:.0f})\n",
      question.what, elements, gigabytes / a.median, gigabytes / a.high, gigabytes / a.low, gigabytes / b.median,
      gigabytes / b.high, gigabytes / b.low, 100 * r.median, 100 * r.low, 100 * r.high);
}

void measure_all(uint64_t elements, int pairs) {
  std::vector<float> weights(elements, 0.5F);
  std::vector<float> gradient(elements, 0.01F);
  std::vector<float> first(elements, 0.001F);
  std::vector<float> second(elements, 0.001F);
  std::vector<double> norms(pliant::norm_chunks(elements));
  const pliant::AdamWUpdate update{.beta2 = 0.95F, .rate = 1e-6F, .decay = 1e-7F};
  const pliant_adamw_update abi{sizeof(abi), update.gradient_scale, update.beta1,   update.beta2,
                                update.rate, update.correction,     update.epsilon, update.decay};
  const auto with = [&](Instructions instructions) {
    return [&, instructions] {
      pliant::sdk::adamw_with(instructions, abi,
                              {weights.data(), gradient.data(), first.data(), second.data(), elements});
    };
  };
  measure({"AdamW", elements * kBytesOfUpdate,
           [&] {
             adamw(update, {weights.data(), gradient.data(), first.data(), second.data(), elements});
           }},
          elements, pairs);
  const struct {
    Instructions instructions;
    const char* name;
  } all[] = {{Instructions::kEveryMachine, "AdamW, for every machine"},
             {Instructions::kAvx2, "AdamW, AVX2"},
             {Instructions::kAvx512, "AdamW, AVX-512"}};
  for (const auto& one : all) {
    if (pliant::sdk::has(one.instructions))
      measure({one.name, elements * kBytesOfUpdate, with(one.instructions)}, elements, pairs);
  }
  measure({"squared norms", elements * kBytesOfNorm,
           [&] { pliant::squared_norms(norms.data(), gradient.data(), elements); }},
          elements, pairs);
}

}  // namespace

int main(int argc, char** argv) {
  const int pairs = argc > 1 ? std::max(1, std::atoi(argv[1])) : 31;
  fmt::print("medians of {} pairs, quartiles in brackets; bytes that are read and written\n", pairs);
  for (const uint64_t elements : {uint64_t{1} << 14U, uint64_t{1} << 18U, uint64_t{1} << 24U})
    measure_all(elements, pairs);
  return 0;
}
