// Faults of digests.
#include "faults.hpp"

namespace pliant::broken {
namespace {

/// tail: the last of more than 256 blocks is forgotten; early: it runs at once; blocks: it keeps its caller.
struct DigestWrong : Honest {
  void digest_blocks(uint64_t* to, const void* from, uint64_t blocks, Stream& stream) override {
    if (way == "early") return sdk::digest_blocks(to, from, blocks);
    Device::digest_blocks(to, from, way == "tail" && blocks > 256 ? blocks - 1 : blocks, stream);
    if (way == "blocks") stream.synchronize();
  }
};

}  // namespace

std::vector<Fault> digest_faults() {
  return {{"digest-wrong", {"tail", "early", "blocks"}, make<DigestWrong>}};
}

}  // namespace pliant::broken
