// BROKEN: at 7 ranks and more one collective, the option `collective`, is wrong.
#include <string>

#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)
using pliant::sdk::DType;
using pliant::sdk::Elements;
using pliant::sdk::ReduceOp;

struct ManyRanks : Honest<ManyRanks> {
  std::string collective = "all_reduce";
  static void options(pliant::sdk::Options<ManyRanks>& table) {
    table.add("collective", &ManyRanks::collective, "Which one.")
        .choices({"all_reduce", "reduce_scatter", "broadcast", "barrier", "all_gather_v"});
  }
  void spoil(const char* which, const Comm& comm, void* recv, uint64_t bytes, Stream& stream) {
    if (collective != which || comm.world_size() < 7 || bytes == 0) return;
    stream.enqueue([=] { static_cast<char*>(recv)[bytes - 1] ^= 1; });
  }
  void all_reduce(Comm& comm, const void* send, void* recv, Elements elements, ReduceOp op, Stream& stream) {
    Device::all_reduce(comm, send, recv, elements, op, stream);
    spoil("all_reduce", comm, recv, elements.bytes(), stream);
  }
  void reduce_scatter(Comm& comm, const void* send, void* recv, Elements elements, ReduceOp op, Stream& stream) {
    Device::reduce_scatter(comm, send, recv, elements, op, stream);
    spoil("reduce_scatter", comm, recv, elements.bytes(), stream);
  }
  void broadcast(Comm& comm, void* buffer, Elements elements, int32_t root, Stream& stream) {
    Device::broadcast(comm, buffer, elements, root, stream);
    spoil("broadcast", comm, buffer, elements.bytes(), stream);
  }
  void barrier(Comm& comm, Stream& stream) {
    Device::barrier(comm, stream);
    if (collective == "barrier" && comm.world_size() >= 7) {
      stream.enqueue([] { throw pliant::sdk::Failure(PLIANT_INTERNAL, "too many ranks for a barrier"); });
    }
  }
  void all_gather_v(Comm& comm, const void* send, void* recv, std::span<const uint64_t> counts, DType dtype,
                    Stream& stream) {
    Device::all_gather_v(comm, send, recv, counts, dtype, stream);
    uint64_t bytes = 0;
    for (const uint64_t count : counts) bytes += count * size_of(dtype);
    spoil("all_gather_v", comm, recv, bytes, stream);
  }
};

}  // namespace

PLIANT_BROKEN(ManyRanks, "many-ranks")
