// Compiles the plugin's kernels for the CPU.
#include "kernels.hpp"

#include <cstring>
#include <map>
#include <tuple>
#include <type_traits>
#include <utility>

namespace pliant::level_zero::kernels {
namespace {
/// The work item that runs on this thread, of how many.
thread_local uint64_t the_item = 0;
thread_local uint64_t all_items = 0;
}  // namespace
}  // namespace pliant::level_zero::kernels

#include "../../../accelerators/level_zero/kernels.clcpp"

uint64_t get_global_id(uint32_t) {
  return pliant::level_zero::kernels::the_item;
}
uint64_t get_global_size(uint32_t) {
  return pliant::level_zero::kernels::all_items;
}

namespace soft_ze {
namespace {

using namespace pliant::level_zero::kernels;

/// Of all kernels the only 64-bit number is the count of elements that each pointer leads to; norms go to as many as
/// there are chunks.
template <class... Arguments>
uint64_t count_of(const std::tuple<Arguments...>& arguments) {
  return std::get<uint64_t>(arguments);
}

enum class Target { kElements, kChunks };

template <class T>
bool resolve_one(T& argument, uint64_t count, Target target, const Resolve& resolve) {
  if constexpr (std::is_pointer_v<T>) {
    if (argument == nullptr) return true;
    constexpr bool kIsWritten = !std::is_const_v<std::remove_pointer_t<T>>;
    if (kIsWritten && target == Target::kChunks) count = (count + kNormChunk - 1) / kNormChunk;
    const auto inside = resolve(argument, count * sizeof(*argument));
    if (!inside) return false;
    argument = static_cast<T>(*inside);
  }
  return true;
}

template <class... Arguments>
Run run_of(void (*function)(Arguments...), Target target, const std::vector<KernelArgument>& given,
           const Resolve& resolve) {
  std::tuple<Arguments...> arguments{};
  size_t next = 0;
  const auto read = [&](auto& one) {
    const KernelArgument& from = given[next++];
    if (!from.bytes.empty()) std::memcpy(&one, from.bytes.data(), sizeof(one));
  };
  std::apply([&](auto&... one) { (read(one), ...); }, arguments);
  const uint64_t count = count_of(arguments);
  const bool fine =
      std::apply([&](auto&... one) { return (resolve_one(one, count, target, resolve) && ...); }, arguments);
  if (!fine) return {};
  return [function, arguments](uint64_t items) {
    all_items = items;
    for (the_item = 0; the_item < items; ++the_item) std::apply(function, arguments);
  };
}

template <class... Arguments>
KernelCode code(void (*function)(Arguments...), Target target = Target::kElements) {
  return {{sizeof(Arguments)...}, [function, target](const std::vector<KernelArgument>& given, const Resolve& resolve) {
            return run_of(function, target, given, resolve);
          }};
}

}  // namespace

const KernelCode* kernel_code(const std::string& name) {
#define SOFT_NAMED(kernel) {#kernel, code(&kernel)},
#define SOFT_REDUCES(type, T) \
  SOFT_NAMED(pliant_reduce_sum_##type) SOFT_NAMED(pliant_reduce_min_##type) SOFT_NAMED(pliant_reduce_max_##type)
#define SOFT_CAST(from, From, to, To) SOFT_NAMED(pliant_cast_##from##_##to)
#define SOFT_CASTS(to, To) PLIANT_KERNEL_CASTS_TO_SINGLE(SOFT_CAST, to, To)
#define SOFT_FROM_DOUBLE(to, To) SOFT_NAMED(pliant_cast_f64_##to)
  static const std::map<std::string, KernelCode> kAll{
      SOFT_NAMED(pliant_digest_blocks)
          SOFT_NAMED(pliant_adamw){"pliant_squared_norms", code(&pliant_squared_norms, Target::kChunks)},
      PLIANT_KERNEL_SINGLES(SOFT_REDUCES) SOFT_REDUCES(f64, double) PLIANT_KERNEL_SINGLES(SOFT_CASTS)
          PLIANT_KERNEL_SINGLES(SOFT_FROM_DOUBLE) PLIANT_KERNEL_CASTS_TO_SINGLE(SOFT_CAST, f64, double)};
  const auto found = kAll.find(name);
  return found == kAll.end() ? nullptr : &found->second;
}

}  // namespace soft_ze
