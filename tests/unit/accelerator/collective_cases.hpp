// Collectives with known inputs, checked against the plainest possible reference.
#pragma once

#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "ranks.hpp"

namespace pliant_test {

/// kShift: a group in which every rank sends to the next and receives from the one before.
enum class Kind { kAllReduce, kAllGather, kReduceScatter, kBroadcast, kBarrier, kAllGatherV, kShift };
inline const Kind kKinds[] = {Kind::kAllReduce, Kind::kAllGather,  Kind::kReduceScatter, Kind::kBroadcast,
                              Kind::kBarrier,   Kind::kAllGatherV, Kind::kShift};

inline const char* name_of(Kind kind) {
  const char* const names[] = {"all_reduce", "all_gather",   "reduce_scatter", "broadcast",
                               "barrier",    "all_gather_v", "shift"};
  return names[static_cast<int>(kind)];
}

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr int32_t kValue = PLIANT_F32;
};
template <>
struct DTypeOf<double> {
  static constexpr int32_t kValue = PLIANT_F64;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr int32_t kValue = PLIANT_I32;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr int32_t kValue = PLIANT_I64;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr int32_t kValue = PLIANT_U8;
};

/// Element i of rank r's input: rounds when added, so that the order of additions shows in the bits.
template <class T>
T input(int32_t rank, uint64_t i) {
  const uint64_t mixed = (i * 2654435761U + static_cast<uint64_t>(rank) * 40503U + 17U) % 100003U;
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>((static_cast<double>(mixed) - 50001.0) / 977.0);
  } else {
    return static_cast<T>(mixed % 251U);
  }
}

template <class T>
T combine(int32_t op, T a, T b) {
  if (op == PLIANT_SUM) return static_cast<T>(a + b);
  if (op == PLIANT_MIN) return b < a ? b : a;
  return a < b ? b : a;
}

template <class T>
T reduced(int32_t world_size, int32_t op, uint64_t i) {
  T value = input<T>(0, i);
  for (int32_t r = 1; r < world_size; ++r) value = combine<T>(op, value, input<T>(r, i));
  return value;
}

/// Whether the one buffer of a rank may lie in the other.
inline bool may_be_in_place(Kind kind) {
  return kind == Kind::kAllReduce || kind == Kind::kAllGather || kind == Kind::kAllGatherV ||
         kind == Kind::kReduceScatter;
}

/// One call with its buffers. Guard elements behind the receive buffer must stay as they are.
template <class T>
class Case {
 public:
  Case(Kind kind, int32_t rank, int32_t world_size, uint64_t count, int32_t op, bool in_place)
      : kind_(kind),
        rank_(rank),
        world_size_(world_size),
        count_(count),
        op_(op),
        in_place_(in_place && may_be_in_place(kind)) {
    const auto ranks = static_cast<uint64_t>(world_size);
    for (int32_t r = 0; r < world_size; ++r) counts_.push_back(count + 3 * static_cast<uint64_t>(r));
    const uint64_t sent = kind == Kind::kReduceScatter ? count * ranks
                          : kind == Kind::kBarrier     ? 0
                          : kind == Kind::kAllGatherV  ? counts_[static_cast<size_t>(rank)]
                                                       : count;
    const uint64_t received = kind == Kind::kAllGather    ? count * ranks
                              : kind == Kind::kBarrier    ? 0
                              : kind == Kind::kAllGatherV ? std::accumulate(counts_.begin(), counts_.end(), uint64_t{0})
                                                          : count;
    for (uint64_t i = 0; i < sent; ++i) send_.push_back(input<T>(rank, i));
    recv_.assign(received + kGuard, T{77});
    if (kind == Kind::kBroadcast && rank == root()) std::copy(send_.begin(), send_.end(), recv_.begin());
    use(send_.data(), recv_.data());
  }
  /// How many elements the buffers take.
  [[nodiscard]] uint64_t sent() const { return send_.size(); }
  [[nodiscard]] uint64_t received() const { return recv_.size(); }

  /// From here on the buffers are these; of those in place, the larger one.
  void use(T* send, T* recv) {
    sends_from_ = send;
    receives_at_ = recv;
    if (in_place_ && kind_ == Kind::kReduceScatter) receives_at_ = send + static_cast<uint64_t>(rank_) * count_;
    if (in_place_ && guarded()) sends_from_ = recv + own_begin();
    if (recv != recv_.data() && guarded()) std::copy(recv_.begin(), recv_.end(), recv);
    if (sends_from_ != send_.data()) std::copy(send_.begin(), send_.end(), sends_from_);
  }

  Outcome start(const Device& device, pliant_comm* comm, pliant_stream* stream) {
    const int32_t dtype = DTypeOf<T>::kValue;
    T* recv = receives_at_;
    const T* send = sends_from_;
    using S = pliant_collectives;
    switch (kind_) {
      case Kind::kAllReduce:
        return device.call(&S::all_reduce, comm, send, recv, count_, dtype, op_, stream);
      case Kind::kAllGather:
        return device.call(&S::all_gather, comm, send, recv, count_, dtype, stream);
      case Kind::kReduceScatter:
        return device.call(&S::reduce_scatter, comm, send, recv, count_, dtype, op_, stream);
      case Kind::kBroadcast:
        return device.call(&S::broadcast, comm, recv, count_, dtype, root(), stream);
      case Kind::kAllGatherV:
        return device.call(&S::all_gather_v, comm, send, recv, counts_.data(), dtype, stream);
      case Kind::kShift:
        return shift(device, comm, stream);
      case Kind::kBarrier:
        break;
    }
    return device.call(&S::barrier, comm, stream);
  }

  /// "" when the result is right, bit by bit.
  [[nodiscard]] std::string check() const {
    for (uint64_t i = 0; i < recv_.size() - (guarded() ? 0 : kGuard); ++i) {
      const T want = i + kGuard >= recv_.size() ? T{77} : expected(i);
      if (std::memcmp(&want, &receives_at_[i], sizeof(T)) == 0) continue;
      return std::string(name_of(kind_)) + " of " + std::to_string(count_) + " x " + std::to_string(sizeof(T)) +
             " bytes, op " + std::to_string(op_) + ": element " + std::to_string(i) + " is " +
             std::to_string(receives_at_[i]) + ", not " + std::to_string(want);
    }
    return "";
  }

 private:
  static constexpr uint64_t kGuard = 3;
  /// Behind a result that lies in what is sent are other elements.
  [[nodiscard]] bool guarded() const { return !in_place_ || kind_ != Kind::kReduceScatter; }
  /// Of what this rank gives to a gather, in the result.
  [[nodiscard]] uint64_t own_begin() const {
    if (kind_ == Kind::kAllGather) return static_cast<uint64_t>(rank_) * count_;
    if (kind_ != Kind::kAllGatherV) return 0;
    return std::accumulate(counts_.begin(), counts_.begin() + rank_, uint64_t{0});
  }
  [[nodiscard]] int32_t before() const { return (rank_ + world_size_ - 1) % world_size_; }
  Outcome shift(const Device& device, pliant_comm* comm, pliant_stream* stream) {
    using S = pliant_collectives;
    const int32_t dtype = DTypeOf<T>::kValue;
    const int32_t after = (rank_ + 1) % world_size_;
    Outcome outcome = device.call(&S::group_begin, comm);
    if (outcome.ok()) outcome = device.call(&S::send, comm, sends_from_, count_, dtype, after, stream);
    if (outcome.ok()) outcome = device.call(&S::recv, comm, receives_at_, count_, dtype, before(), stream);
    return outcome.ok() ? device.call(&S::group_end, comm) : outcome;
  }
  [[nodiscard]] T gathered(uint64_t i) const {
    int32_t r = 0;
    for (; i >= counts_[static_cast<size_t>(r)]; ++r) i -= counts_[static_cast<size_t>(r)];
    return input<T>(r, i);
  }
  [[nodiscard]] int32_t root() const { return world_size_ - 1; }
  [[nodiscard]] T expected(uint64_t i) const {
    switch (kind_) {
      case Kind::kAllReduce:
        return reduced<T>(world_size_, op_, i);
      case Kind::kAllGather:
        return input<T>(static_cast<int32_t>(i / count_), i % count_);
      case Kind::kReduceScatter:
        return reduced<T>(world_size_, op_, static_cast<uint64_t>(rank_) * count_ + i);
      case Kind::kAllGatherV:
        return gathered(i);
      case Kind::kShift:
        return input<T>(before(), i);
      default:
        return input<T>(root(), i);
    }
  }

  Kind kind_;
  int32_t rank_;
  int32_t world_size_;
  uint64_t count_;
  int32_t op_;
  bool in_place_;
  std::vector<uint64_t> counts_;  ///< of all_gather_v
  std::vector<T> send_;
  std::vector<T> recv_;
  T* sends_from_ = nullptr;
  T* receives_at_ = nullptr;
};

/// Kinds in turn.
inline Kind kind_of(uint64_t i) {
  return kKinds[i % std::size(kKinds)];
}

/// Runs one case to its end; "" or what went wrong.
template <class T>
std::string run_case(const Device& device, pliant_comm* comm, const Stream& stream, Kind kind, int32_t rank,
                     int32_t world_size, uint64_t count, int32_t op = PLIANT_SUM, bool in_place = false) {
  Case<T> one(kind, rank, world_size, count, op, in_place);
  Outcome outcome = one.start(device, comm, stream);
  if (outcome.ok()) outcome = stream.synchronize();
  if (!outcome.ok()) return std::string(name_of(kind)) + ": " + outcome.text();
  return one.check();
}

/// Every kind and reduction at every count; "" or the first that went wrong.
template <class T>
std::string all_cases(const Rank& self, pliant_comm* comm, const Stream& stream, const std::vector<uint64_t>& counts) {
  for (const uint64_t count : counts) {
    for (const Kind kind : kKinds) {
      const bool reduces = kind == Kind::kAllReduce || kind == Kind::kReduceScatter;
      for (const int32_t op : {PLIANT_SUM, PLIANT_MIN, PLIANT_MAX}) {
        if (!reduces && op != PLIANT_SUM) continue;
        for (const bool in_place : {false, true}) {
          if (in_place && !may_be_in_place(kind)) continue;
          const std::string fault =
              run_case<T>(self.device, comm, stream, kind, self.rank, self.world_size, count, op, in_place);
          if (!fault.empty()) return fault;
        }
      }
    }
  }
  return "";
}

/// The same with these types, whose references are exact.
template <class... Types>
std::string every_case_of(const Rank& self) {
  Comm comm(self.device, self.id(), self.rank, self.world_size);
  const Stream stream(self.device);
  if (!comm.made().ok()) return comm.made().text();
  const std::vector<uint64_t> counts = {0, 1, 2, 3, 17, 1023, 4096, 4097, 20011};
  std::string fault;
  ((fault = fault.empty() ? all_cases<Types>(self, comm, stream, counts) : fault), ...);
  return fault;
}

inline std::string every_type(const Rank& self) {
  return every_case_of<float, double, int32_t, int64_t, uint8_t>(self);
}

/// Repeats one collective until it fails; what it failed with, and how long after the kill.
inline std::string repeat_until_failure(const Rank& self, Kind kind, const Comm& comm, const Stream& stream,
                                        Flag& rounds) {
  for (;;) {
    Case<float> one(kind, self.rank, self.world_size, 20000, PLIANT_SUM, false);
    Outcome outcome = one.start(self.device, comm, stream);
    if (outcome.ok()) outcome = stream.synchronize();
    const int64_t failed_at = now_us();
    if (outcome.ok()) {
      rounds.add();
      continue;
    }
    const Outcome status = comm.status(0);
    if (status.status != outcome.status) return "comm_status disagrees: " + status.text() + " / " + outcome.text();
    return outcome.text() + "|" + std::to_string(failed_at - self.board.killed_at_us.load());
  }
}

}  // namespace pliant_test
