// BROKEN: without file descriptors it refuses streams, and does not say why.
#include <fcntl.h>
#include <unistd.h>

#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct FilesUnnamed : Honest<FilesUnnamed> {
  std::unique_ptr<Stream> make_stream(int32_t device, pliant::sdk::StreamUse use) {
    const int file = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (file < 0) throw pliant::sdk::Failure(PLIANT_RESOURCE_EXHAUSTED, "");
    ::close(file);
    return Device::make_stream(device, use);
  }
};

}  // namespace

PLIANT_BROKEN(FilesUnnamed, "files-unnamed")
