// BROKEN: one kind of call, the option `slot`, keeps its caller until its work is done.
#include <atomic>
#include <string>

#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct Blocks : Honest<Blocks> {
  std::string slot = "batch";
  std::atomic<int> fills{0};
  static void options(pliant::sdk::Options<Blocks>& table) {
    table.add("slot", &Blocks::slot, "What blocks; many is the 600th fill of the instance, and all after it.")
        .choices({"batch", "fill", "many", "reduce", "cast", "record"});
  }
  using Device::copy;
  void copy(std::span<const pliant_copy> copies, Stream& stream) {
    Device::copy(copies, stream);
    if (slot == "batch") stream.synchronize();
  }
  void fill(void* to, uint8_t byte, uint64_t bytes, Stream& stream) {
    Device::fill(to, byte, bytes, stream);
    if (slot == "fill" || (slot == "many" && ++fills >= 600)) stream.synchronize();
  }
  void reduce(void* to, std::span<const void* const> from, pliant::sdk::Elements elements, pliant::sdk::ReduceOp op,
              double scale, Stream& stream) {
    Device::reduce(to, from, elements, op, scale, stream);
    if (slot == "reduce") stream.synchronize();
  }
  void cast(void* to, pliant::sdk::DType to_type, const void* from, pliant::sdk::Elements elements, Stream& stream) {
    Device::cast(to, to_type, from, elements, stream);
    if (slot == "cast") stream.synchronize();
  }
  void record(Event& event, Stream& stream) {
    Device::record(event, stream);
    if (slot == "record") stream.synchronize();
  }
};

}  // namespace

PLIANT_BROKEN(Blocks, "blocks")
