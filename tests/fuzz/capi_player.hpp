// Plays calls of pliant.h with arguments that are right, nearly right or none, from a seed.
#pragma once

#include <doctest/doctest.h>

#include <array>
#include <cstring>
#include <memory>
#include <random>
#include <tuple>
#include <vector>

#include "pliant.h"

namespace pliant::test {

class Player {
 public:
  explicit Player(uint64_t seed) : random_(seed) {}
  ~Player() { free_all(); }
  Player(const Player&) = delete;
  Player& operator=(const Player&) = delete;

  uint64_t below(uint64_t limit) { return random_() % limit; }
  bool once_in(uint64_t times) { return below(times) == 0 && !(is_careful_ && times > 2); }
  /// From here on nothing is done that is seldom done: what is left is mostly right.
  void be_careful() { is_careful_ = true; }
  [[nodiscard]] bool is_careful() const { return is_careful_; }

  /// Mostly small, sometimes at a limit.
  int64_t number() {
    constexpr std::array<int64_t, 6> kLimits{INT64_MAX, INT64_MIN, INT64_MAX - 1, int64_t{1} << 62, -1, 0};
    return once_in(8) ? kLimits[below(kLimits.size())] : static_cast<int64_t>(below(44)) - 3;
  }
  /// The same without what only asks for more work or memory than there is.
  int64_t small() { return static_cast<int64_t>(below(44)) - 3; }
  double real() {
    constexpr std::array<double, 7> kValues{0, 1, -1, 1e308, -0.0, 1e-320, 0.5};
    return once_in(16) ? std::numeric_limits<double>::quiet_NaN() : kValues[below(kValues.size())];
  }
  const char* text() {
    constexpr std::array<const char*, 6> kTexts{"width",   "", "a.b", "name", "elasticity sampler balancer lr",
                                                "\xff\xfe"};
    return once_in(10) ? nullptr : kTexts[below(kTexts.size())];
  }

  /// A handle of this kind where there is one, else one of another kind, memory that is none, or NULL.
  template <class Handle>
  Handle* handle() {
    const auto& own = std::get<std::vector<Handle*>>(pools_);
    if (!own.empty() && !once_in(5)) return own[below(own.size())];
    if (is_careful_ || once_in(3)) return nullptr;
    if (once_in(3)) return reinterpret_cast<Handle*>(zeros_.data());
    void* other = nullptr;
    std::apply([&](const auto&... pool) { (take_other<Handle>(pool, other), ...); }, pools_);
    return static_cast<Handle*>(other);
  }
  /// The handles of a kind, which are freed at the end.
  template <class Handle>
  std::vector<Handle*>& pool() {
    return std::get<std::vector<Handle*>>(pools_);
  }
  /// Where a call puts a handle; kept once the call has returned.
  template <class Handle>
  Handle** place() {
    if (once_in(20)) return nullptr;
    auto& slots = std::get<std::vector<Handle*>>(slots_);
    slots.assign(1, nullptr);
    return slots.data();
  }
  template <class Handle>
  int32_t free(int32_t (*function)(Handle*)) {
    Handle* const gone = handle<Handle>();
    const int32_t status = function(gone);
    if (status == PLIANT_OK) std::erase(std::get<std::vector<Handle*>>(pools_), gone);
    return status;
  }

  /// Room for a struct of a caller who knows as many fields, fewer, or more; sometimes none.
  template <class Struct>
  Struct* room() {
    if (once_in(20)) return nullptr;
    auto& bytes = rooms_.emplace_back(std::make_unique<Bytes>());
    bytes->fill(0);
    auto* const made = reinterpret_cast<Struct*>(bytes->data());
    made->struct_size = size_for(sizeof(Struct));
    return made;
  }
  /// The same, with 4-byte fields of it, of which it has no pointers, set to numbers.
  template <class Struct>
  Struct* numbers() {
    Struct* const made = room<Struct>();
    if (made == nullptr) return nullptr;
    auto* const fields = reinterpret_cast<int64_t*>(made);
    for (size_t i = 1; i < sizeof(Struct) / sizeof(int64_t); ++i) {
      if (once_in(2)) fields[i] = number();
    }
    if (once_in(3)) reinterpret_cast<uint32_t*>(made)[1] = static_cast<uint32_t>(below(9));
    return made;
  }
  template <class Value>
  Value* value() {
    static_assert(sizeof(Value) <= 8);
    if (once_in(20)) return nullptr;
    return reinterpret_cast<Value*>(&values_[below(values_.size())]);
  }
  int64_t* integers() { return once_in(10) ? nullptr : integers_.data(); }
  static constexpr uint64_t kIntegers = 64;
  uint64_t count() { return below(kIntegers + 1); }

  /// What streams read and write, which nothing else does.
  const int64_t* from_stream() { return once_in(20) ? nullptr : from_.data(); }
  int64_t* to_stream() { return once_in(20) ? nullptr : to_.data(); }
  int32_t dtype() { return static_cast<int32_t>(below(9)); }
  int32_t op() { return static_cast<int32_t>(below(5)); }
  int32_t device() { return once_in(8) ? static_cast<int32_t>(small()) : 0; }
  /// Waits for what was enqueued, whatever became of it: `status` goes on.
  int32_t settled(int32_t status) {
    for (pliant_stream_t* const stream : std::get<std::vector<pliant_stream_t*>>(pools_)) {
      const int32_t ended = pliant_stream_synchronize(stream, nullptr);
      CHECK(ended != PLIANT_INTERNAL);
    }
    return status;
  }

  pliant_error_t* error() { return room<pliant_error_t>(); }

  /// Keeps what the last call handed out.
  void keep() {
    std::apply([&](auto&... slots) { (keep_of(slots), ...); }, slots_);
    rooms_.clear();
  }

 private:
  using Bytes = std::array<unsigned char, 1024>;
  using Pools =
      std::tuple<std::vector<pliant_config_t*>, std::vector<pliant_planner_t*>, std::vector<pliant_plan_t*>,
                 std::vector<pliant_dataset_t*>, std::vector<pliant_batches_t*>, std::vector<pliant_batch_t*>,
                 std::vector<pliant_micro_batches_t*>, std::vector<pliant_balancer_t*>,
                 std::vector<pliant_assignment_t*>, std::vector<pliant_learning_rate_t*>,
                 std::vector<pliant_session_t*>, std::vector<pliant_record_t*>, std::vector<pliant_accelerator_t*>,
                 std::vector<pliant_buffer_t*>, std::vector<pliant_stream_t*>, std::vector<pliant_event_t*>,
                 std::vector<pliant_communicator_t*>, std::vector<pliant_sharded_t*>, std::vector<pliant_imported_t*>,
                 std::vector<pliant_report_t*>, std::vector<pliant_comparison_t*>>;

  uint32_t size_for(size_t right) {
    const auto size = static_cast<uint32_t>(right);
    if (!once_in(6)) return size;
    switch (below(4)) {
      case 0:
        return size - 8 * static_cast<uint32_t>(below(size / 8));  // a version ends with a field, never in a pointer
      case 1:
        return size + static_cast<uint32_t>(below(64));
      case 2:
        return 0;
      default:
        return 0xffffffffU;
    }
  }
  template <class Handle, class Pool>
  void take_other(const Pool& pool, void*& other) {
    if (std::is_same_v<Pool, std::vector<Handle*>> || pool.empty()) return;
    if (other == nullptr || once_in(2)) other = pool[below(pool.size())];
  }
  template <class Slots>
  void keep_of(Slots& slots) {
    auto& pool = std::get<Slots>(pools_);
    for (auto* const made : slots) {
      if (made != nullptr) pool.push_back(made);
    }
    slots.clear();
  }
  template <class Handle>
  void free_pool(int32_t (*function)(Handle*)) {
    for (Handle* const one : std::get<std::vector<Handle*>>(pools_)) CHECK(function(one) == PLIANT_OK);
    std::get<std::vector<Handle*>>(pools_).clear();
  }
  void free_all() {
    free_pool(&pliant_config_free);
    free_pool(&pliant_batch_free);
    free_pool(&pliant_planner_free);
    free_pool(&pliant_plan_free);
    free_pool(&pliant_dataset_free);
    free_pool(&pliant_batches_free);
    free_pool(&pliant_micro_batches_free);
    free_pool(&pliant_balancer_free);
    free_pool(&pliant_assignment_free);
    free_pool(&pliant_learning_rate_free);
    free_pool(&pliant_record_free);
    free_pool(&pliant_communicator_free);
    free_pool(&pliant_stream_free);
    free_pool(&pliant_event_free);
    free_pool(&pliant_buffer_free);
    free_pool(&pliant_accelerator_free);
    free_pool(&pliant_imported_free);
    free_pool(&pliant_report_free);
    free_pool(&pliant_comparison_free);
    free_pool(&pliant_session_free);
    free_pool(&pliant_sharded_free);
  }

  std::mt19937_64 random_;
  bool is_careful_ = false;
  Pools pools_;
  Pools slots_;
  std::vector<std::unique_ptr<Bytes>> rooms_;
  alignas(8) std::array<unsigned char, 64> zeros_{};
  std::array<uint64_t, 4> values_{};
  std::array<int64_t, kIntegers> integers_{};
  std::array<int64_t, kIntegers> from_{};
  std::array<int64_t, kIntegers> to_{};
};

}  // namespace pliant::test
