// AdamW and squared norms on one processor, beside a copy of the same bytes: bench_optimizer [pairs]. An update reads
// four arrays and writes three, a norm reads one; the copy reads half as many bytes and writes the other half. Update
// and copy take turns, so that what else the machine does slows both. All lie in one kind of memory: that of this
// process alone, in huge pages where Linux gives them, or that which other processes can map, as shards do.
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <vector>

#include "pliant/optimizer.hpp"
#include "pliant/sdk/optimizer_arithmetic.hpp"

namespace {

using pliant::sdk::Instructions;

constexpr uint64_t kBytesOfUpdate = 7 * sizeof(float);
constexpr uint64_t kBytesOfNorm = sizeof(float);

/// Memory in which arrays lie.
enum class Pages { kOwn, kShared };

constexpr const char* name_of(Pages pages) {
  return pages == Pages::kOwn ? "own memory" : "memory that others can map";
}

struct Unmap {
  uint64_t bytes = 0;
  void operator()(void* begin) const { ::munmap(begin, bytes); }
};

/// Begins at a huge page.
std::unique_ptr<void, Unmap> make_pages(uint64_t bytes, Pages pages) {
  constexpr uint64_t kHuge = uint64_t{2} << 20U;
  const uint64_t whole = (bytes + kHuge - 1) / kHuge * kHuge;
  void* const at = ::mmap(nullptr, whole + kHuge, PROT_READ | PROT_WRITE,
                          MAP_ANONYMOUS | (pages == Pages::kOwn ? MAP_PRIVATE : MAP_SHARED), -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  // What lies before the first huge page and behind the last goes back.
  auto* const begin = static_cast<std::byte*>(at) + (kHuge - reinterpret_cast<uintptr_t>(at) % kHuge) % kHuge;
  const auto before = static_cast<uint64_t>(begin - static_cast<std::byte*>(at));
  if (before > 0) ::munmap(at, before);
  if (before < kHuge) ::munmap(begin + whole, kHuge - before);
  ::madvise(begin, whole, MADV_HUGEPAGE);  // what it is not given for is as it was
  return {begin, Unmap{whole}};
}

template <class T>
struct Array {
  Array(uint64_t count, T value, Pages pages)
      : memory(make_pages(count * sizeof(T), pages)), values(static_cast<T*>(memory.get())) {
    std::fill_n(values, count, value);
  }
  std::unique_ptr<void, Unmap> memory;
  T* values;
};

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

void measure(const Question& question, uint64_t elements, Pages pages, int pairs) {
  const Array<char> from(question.bytes / 2, 1, pages);
  const Array<char> to(question.bytes / 2, 1, pages);
  // In the caches one call is too short to be timed.
  const int calls = static_cast<int>(std::max<uint64_t>(1, (uint64_t{1} << 25U) / question.bytes));
  const auto repeat = [calls](const std::function<void()>& call) {
    return seconds_of([&] {
             for (int i = 0; i < calls; ++i) call();
           }) /
           calls;
  };
  const auto copy = [&] { std::memcpy(to.values, from.values, question.bytes / 2); };
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

void measure_all(uint64_t elements, Pages pages, int pairs) {
  const Array<float> weights(elements, 0.5F, pages);
  const Array<float> gradient(elements, 0.01F, pages);
  const Array<float> first(elements, 0.001F, pages);
  const Array<float> second(elements, 0.001F, pages);
  std::vector<double> norms(pliant::norm_chunks(elements));
  const pliant::AdamWUpdate update{.beta2 = 0.95F, .rate = 1e-6F, .decay = 1e-7F};
  const pliant_adamw_update abi{sizeof(abi), update.gradient_scale, update.beta1,   update.beta2,
                                update.rate, update.correction,     update.epsilon, update.decay};
  const auto with = [&](Instructions instructions) {
    return [&, instructions] {
      pliant::sdk::adamw_with(instructions, abi,
                              {weights.values, gradient.values, first.values, second.values, elements});
    };
  };
  measure({"AdamW", elements * kBytesOfUpdate,
           [&] {
             adamw(update, {weights.values, gradient.values, first.values, second.values, elements});
           }},
          elements, pages, pairs);
  const struct {
    Instructions instructions;
    const char* name;
  } all[] = {{Instructions::kEveryMachine, "AdamW, for every machine"},
             {Instructions::kAvx2, "AdamW, AVX2"},
             {Instructions::kAvx512, "AdamW, AVX-512"}};
  for (const auto& one : all) {
    if (pliant::sdk::has(one.instructions))
      measure({one.name, elements * kBytesOfUpdate, with(one.instructions)}, elements, pages, pairs);
  }
  measure({"squared norms", elements * kBytesOfNorm,
           [&] { pliant::squared_norms(norms.data(), gradient.values, elements); }},
          elements, pages, pairs);
}

}  // namespace

int main(int argc, char** argv) {
  const int pairs = argc > 1 ? std::max(1, std::atoi(argv[1])) : 31;
  fmt::print("medians of {} pairs, quartiles in brackets; bytes that are read and written\n", pairs);
  for (const Pages pages : {Pages::kOwn, Pages::kShared}) {
    fmt::print("{}\n", name_of(pages));
    for (const uint64_t elements : {uint64_t{1} << 14U, uint64_t{1} << 18U, uint64_t{1} << 24U})
      measure_all(elements, pages, pairs);
  }
  return 0;
}
