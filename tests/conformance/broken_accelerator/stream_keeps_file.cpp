// BROKEN: every stream leaves a file descriptor open.
#include <fcntl.h>

#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct StreamKeepsFile : Honest<StreamKeepsFile> {
  std::unique_ptr<Stream> make_stream(int32_t device, pliant::sdk::StreamUse use) {
    static_cast<void>(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    return Device::make_stream(device, use);
  }
};

}  // namespace

PLIANT_BROKEN(StreamKeepsFile, "stream-keeps-file")
