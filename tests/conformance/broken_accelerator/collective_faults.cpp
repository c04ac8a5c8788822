// Faults of collectives and messages.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "faults.hpp"

namespace pliant::broken {
namespace {

/// A barrier does not wait.
struct BarrierForgets : Honest {
  void barrier(Comm&, Stream&) override {}
};

/// all_gather puts the parts of the ranks in descending order.
struct GatherBackwards : Honest {
  void all_gather(Comm& comm, const void* send, void* recv, Elements elements, Stream& stream) override {
    Device::all_gather(comm, send, recv, elements, stream);
    const auto ranks = static_cast<uint64_t>(comm.world_size());
    const uint64_t bytes = elements.bytes();
    stream.enqueue([=] {
      auto* parts = static_cast<char*>(recv);
      for (uint64_t r = 0; r < ranks / 2; ++r) {
        std::swap_ranges(parts + r * bytes, parts + (r + 1) * bytes, parts + (ranks - 1 - r) * bytes);
      }
    });
  }
};

/// A message arrives, but not where it was wanted.
struct RecvForgets : Honest {
  void recv(Comm& comm, void*, Elements elements, int32_t peer, Stream& stream) override {
    const std::lock_guard lock(mutex);
    std::vector<char>& elsewhere = buffers.emplace_back(elements.bytes() + 1);
    Device::recv(comm, elsewhere.data(), elements, peer, stream);
  }
  std::mutex mutex;
  std::list<std::vector<char>> buffers;
};

/// The count of a broadcast has 32 bits.
struct BroadcastNarrow : Honest {
  void broadcast(Comm& comm, void* buffer, Elements elements, int32_t root, Stream& stream) override {
    elements.count = static_cast<uint32_t>(elements.count);
    Device::broadcast(comm, buffer, elements, root, stream);
  }
};

/// At 7 ranks and more one collective is wrong.
struct ManyRanks : Honest {
  void spoil(const char* which, const Comm& comm, void* recv, uint64_t bytes, Stream& stream) {
    if (way != which || comm.world_size() < 7 || bytes == 0) return;
    stream.enqueue([=] { static_cast<char*>(recv)[bytes - 1] ^= 1; });
  }
  void all_reduce(Comm& comm, const void* send, void* recv, Elements elements, ReduceOp op, Stream& stream) override {
    Device::all_reduce(comm, send, recv, elements, op, stream);
    spoil("all_reduce", comm, recv, elements.bytes(), stream);
  }
  void reduce_scatter(Comm& comm, const void* send, void* recv, Elements elements, ReduceOp op,
                      Stream& stream) override {
    Device::reduce_scatter(comm, send, recv, elements, op, stream);
    spoil("reduce_scatter", comm, recv, elements.bytes(), stream);
  }
  void broadcast(Comm& comm, void* buffer, Elements elements, int32_t root, Stream& stream) override {
    Device::broadcast(comm, buffer, elements, root, stream);
    spoil("broadcast", comm, buffer, elements.bytes(), stream);
  }
  void barrier(Comm& comm, Stream& stream) override {
    Device::barrier(comm, stream);
    if (way == "barrier" && comm.world_size() >= 7) {
      stream.enqueue([] { throw Failure(PLIANT_INTERNAL, "too many ranks for a barrier"); });
    }
  }
  void all_gather_v(Comm& comm, const void* send, void* recv, std::span<const uint64_t> counts, DType dtype,
                    Stream& stream) override {
    Device::all_gather_v(comm, send, recv, counts, dtype, stream);
    uint64_t bytes = 0;
    for (const uint64_t count : counts) bytes += count * size_of(dtype);
    spoil("all_gather_v", comm, recv, bytes, stream);
  }
};

/// all_reduce adds in another order than that of the ranks. descending: the last rank first; drawn: 16-bit floats in an
/// order of the moment's choice, rounded every time.
struct SumsWrong : Honest {
  void all_reduce(Comm& comm, const void* send, void* recv, Elements elements, ReduceOp op, Stream& stream) override {
    const bool sixteen = elements.dtype == DType::kF16 || elements.dtype == DType::kBF16;
    if (way == "drawn" && !sixteen) return Device::all_reduce(comm, send, recv, elements, op, stream);
    const auto ranks = static_cast<size_t>(comm.world_size());
    const auto all = std::make_shared<std::vector<std::byte>>(elements.bytes() * ranks + 64);
    std::byte* const parts = all->data() + (64 - reinterpret_cast<uintptr_t>(all->data()) % 64);
    Device::all_gather(comm, send, parts, elements, stream);
    const auto moment = static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
    stream.enqueue([=, this, kept = all] {
      std::vector<const void*> from;
      for (size_t r = 0; r < ranks; ++r) from.push_back(parts + r * elements.bytes());
      Stream beside(nullptr, uint64_t{0});
      if (way == "descending") {
        std::reverse(from.begin(), from.end());
        Device::reduce(recv, from, elements, op, 1, beside);
        return beside.synchronize();
      }
      std::rotate(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(moment / 7 % ranks), from.end());
      const auto* const first = static_cast<const std::byte*>(from[0]);
      std::vector<std::byte> sum(first, first + elements.bytes());
      for (size_t r = 1; r < ranks; ++r) {
        const void* const two[] = {sum.data(), from[r]};
        Device::reduce(sum.data(), two, elements, op, 1, beside);
      }
      beside.synchronize();
      if (!sum.empty()) std::memcpy(recv, sum.data(), sum.size());
    });
  }
};

/// all_gather of more than 1000 bytes runs on a stream of its own, and nothing orders that with the one it was called
/// on.
class CollectivesBeside : public Honest {
 public:
  void all_gather(Comm& comm, const void* send, void* recv, Elements elements, Stream& stream) override {
    Device::all_gather(comm, send, recv, elements, elements.bytes() > 1000 ? own() : stream);
  }
  using Honest::query;
  bool query(Stream& stream) override { return Device::query(stream) && Device::query(own()); }
  using Honest::synchronize;
  void synchronize(Stream& stream) override {
    Device::synchronize(own());
    Device::synchronize(stream);
  }

 private:
  Stream& own() {
    std::call_once(made_, [this] { beside_ = std::make_unique<Stream>(nullptr, uint64_t{0}); });
    return *beside_;
  }
  std::once_flag made_;
  std::unique_ptr<Stream> beside_;
};

/// A group in a group is taken for one.
struct GroupsNest : Honest {
  void begin_group(Comm& comm) override {
    try {
      Device::begin_group(comm);
    } catch (const Failure&) {  // there is one
    }
  }
};

/// comm_query answers always the same, its way: whether all is done.
struct QueryWrong : Honest {
  QueryWrong() : Honest({.comm_query = true}) {}
  using Honest::query;
  bool query(Comm&) override { return way == "true"; }
};

/// comm_status says that a communicator is ready when it was only asked, and not waited for.
struct ReadyEarly : Honest {
  void wait_ready(Comm& comm, int32_t timeout_ms) override {
    if (timeout_ms != 0) Device::wait_ready(comm, timeout_ms);
  }
};

}  // namespace

std::vector<Fault> collective_faults() {
  return {{"barrier-forgets", {}, make<BarrierForgets>},
          {"gather-backwards", {}, make<GatherBackwards>},
          {"recv-forgets", {}, make<RecvForgets>},
          {"broadcast-narrow", {}, make<BroadcastNarrow>},
          {"many-ranks", {"all_reduce", "reduce_scatter", "broadcast", "barrier", "all_gather_v"}, make<ManyRanks>},
          {"sums-wrong", {"descending", "drawn"}, make<SumsWrong>},
          {"collectives-beside", {}, make<CollectivesBeside>},
          {"groups-nest", {}, make<GroupsNest>},
          {"query-wrong", {"true", "false"}, make<QueryWrong>},
          {"ready-early", {}, make<ReadyEarly>}};
}

}  // namespace pliant::broken
