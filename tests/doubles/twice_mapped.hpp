// TwiceMapped: memory of the software devices, as their users have it and as the doubles do.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

namespace soft {

/// Memory of a file that is mapped twice: `address` is what the user gets, without access where the memory is a
/// device's, which has an address and is out of the CPU's reach; the double itself uses `inside`.
struct TwiceMapped {
  TwiceMapped() = default;
  ~TwiceMapped() {
    if (is_lent) return;
    if (address != nullptr && address != inside) ::munmap(address, mapped);
    if (inside != nullptr) ::munmap(inside, mapped);
    if (fd >= 0) ::close(fd);
  }
  TwiceMapped(const TwiceMapped&) = delete;
  TwiceMapped& operator=(const TwiceMapped&) = delete;

  /// A new file without a name. False when there is none to be had.
  [[nodiscard]] bool make(const char* name, uint64_t file_bytes, bool on_device) {
    fd = ::memfd_create(name, MFD_CLOEXEC);
    return fd >= 0 && ::ftruncate(fd, static_cast<off_t>(file_bytes)) == 0 && map(fd, file_bytes, on_device);
  }
  /// A file that is there; it stays its owner's. False when there is no room.
  [[nodiscard]] bool map(int file, uint64_t file_bytes, bool on_device) {
    mapped = file_bytes;
    inside = map(file, PROT_READ | PROT_WRITE);
    address = on_device ? map(file, PROT_NONE) : inside;
    return address != nullptr && inside != nullptr;
  }

  /// Memory that is there, and stays its owner's.
  void lend(void* at, uint64_t bytes) {
    address = inside = static_cast<std::byte*>(at);
    mapped = bytes;
    is_lent = true;
  }

  std::byte* address = nullptr;
  std::byte* inside = nullptr;
  uint64_t mapped = 0;
  int fd = -1;
  bool is_lent = false;

 private:
  [[nodiscard]] std::byte* map(int file, int access) const {
    void* at = ::mmap(nullptr, mapped, access, MAP_SHARED, file, 0);
    return at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at);
  }
};

}  // namespace soft
