// Faults of calls that should return before their work is done.
#include <atomic>

#include "faults.hpp"

namespace pliant::broken {
namespace {

/// A copy keeps its caller until it is done.
struct CopyBlocks : Honest {
  using Honest::copy;
  void copy(void* to, const void* from, uint64_t bytes, Stream& stream) override {
    Device::copy(to, from, bytes, stream);
    stream.synchronize();
  }
};

/// One kind of call keeps its caller until its work is done; many: the 600th fill of the instance, and all after it.
struct Blocks : Honest {
  using Honest::copy;
  void copy(std::span<const pliant_copy> copies, Stream& stream) override {
    Device::copy(copies, stream);
    if (way == "batch") stream.synchronize();
  }
  void fill(void* to, uint8_t byte, uint64_t bytes, Stream& stream) override {
    Device::fill(to, byte, bytes, stream);
    if (way == "fill" || (way == "many" && ++fills >= 600)) stream.synchronize();
  }
  void reduce(void* to, std::span<const void* const> from, Elements elements, ReduceOp op, double scale,
              Stream& stream) override {
    Device::reduce(to, from, elements, op, scale, stream);
    if (way == "reduce") stream.synchronize();
  }
  void cast(void* to, DType to_type, const void* from, Elements elements, Stream& stream) override {
    Device::cast(to, to_type, from, elements, stream);
    if (way == "cast") stream.synchronize();
  }
  void record(Event& event, Stream& stream) override {
    Device::record(event, stream);
    if (way == "record") stream.synchronize();
  }
  std::atomic<int> fills{0};
};

}  // namespace

std::vector<Fault> async_faults() {
  return {{"copy-blocks", {}, make<CopyBlocks>},
          {"blocks", {"batch", "fill", "many", "reduce", "cast", "record"}, make<Blocks>}};
}

}  // namespace pliant::broken
