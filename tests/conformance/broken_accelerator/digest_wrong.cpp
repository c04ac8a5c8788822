// BROKEN: digests are wrong in one way, the option `fault`.
#include <string>

#include "honest.hpp"
#include "pliant/sdk/block_digest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct DigestWrong : Honest<DigestWrong> {
  std::string fault = "tail";
  static void options(pliant::sdk::Options<DigestWrong>& table) {
    table
        .add(
            "fault", &DigestWrong::fault,
            "tail: the last of more than 256 blocks is forgotten; early: it runs at once; blocks: it keeps its caller.")
        .choices({"tail", "early", "blocks"});
  }
  void digest_blocks(uint64_t* to, const void* from, uint64_t blocks, Stream& stream) {
    if (fault == "early") return pliant::sdk::digest_blocks(to, from, blocks);
    Device::digest_blocks(to, from, fault == "tail" && blocks > 256 ? blocks - 1 : blocks, stream);
    if (fault == "blocks") stream.synchronize();
  }
};

}  // namespace

PLIANT_BROKEN(DigestWrong, "digest-wrong")
