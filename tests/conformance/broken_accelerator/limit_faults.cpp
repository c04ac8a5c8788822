// Faults of what takes files and shared memory.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "faults.hpp"

namespace pliant::broken {
namespace {

/// Every stream leaves a file descriptor open.
struct StreamKeepsFile : Honest {
  std::unique_ptr<Stream> make_stream(int32_t device, sdk::StreamUse use) override {
    static_cast<void>(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    return Device::make_stream(device, use);
  }
};

/// Without file descriptors it refuses streams, and does not say why.
struct FilesUnnamed : Honest {
  std::unique_ptr<Stream> make_stream(int32_t device, sdk::StreamUse use) override {
    const int file = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (file < 0) throw Failure(PLIANT_RESOURCE_EXHAUSTED, "");
    ::close(file);
    return Device::make_stream(device, use);
  }
};

/// A communicator grows a file without a look at the limit, and the signal kills.
struct FileTooLarge : Honest {
  pliant_comm_id make_comm_id(int32_t world_size) override {
    const int file = ::memfd_create("broken", MFD_CLOEXEC);
    const bool grew = ::ftruncate(file, 2 << 20U) == 0;
    ::close(file);
    if (!grew) throw Failure(PLIANT_RESOURCE_EXHAUSTED, "no shared memory");
    return Device::make_comm_id(world_size);
  }
};

}  // namespace

std::vector<Fault> limit_faults() {
  return {{"stream-keeps-file", {}, make<StreamKeepsFile>},
          {"files-unnamed", {}, make<FilesUnnamed>},
          {"file-too-large", {}, make<FileTooLarge>}};
}

}  // namespace pliant::broken
