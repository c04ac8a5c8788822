// BROKEN: a communicator grows a file without a look at the limit, and the signal kills.
#include <sys/mman.h>
#include <unistd.h>

#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct FileTooLarge : Honest<FileTooLarge> {
  pliant_comm_id make_comm_id(int32_t world_size) {
    const int file = ::memfd_create("broken", MFD_CLOEXEC);
    const bool grew = ::ftruncate(file, 2 << 20U) == 0;
    ::close(file);
    if (!grew) throw pliant::sdk::Failure(PLIANT_RESOURCE_EXHAUSTED, "no shared memory");
    return Device::make_comm_id(world_size);
  }
};

}  // namespace

PLIANT_BROKEN(FileTooLarge, "file-too-large")
