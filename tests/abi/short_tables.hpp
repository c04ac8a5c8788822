// What a test tells the plugin short_tables by the environment, and bytes behind which nothing can be read or written.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstring>
#include <new>

namespace pliant::test {

inline constexpr const char* kShortSection = "PLIANT_TEST_SHORT_SECTION";  ///< of its kind
inline constexpr const char* kShortTable = "PLIANT_TEST_SHORT_TABLE";      ///< the id of the table that is meant
inline constexpr const char* kShortBytes = "PLIANT_TEST_SHORT_BYTES";      ///< that it has
inline constexpr const char* kShortNull = "PLIANT_TEST_SHORT_NULL";        ///< offset of the slot that is NULL

/// A copy of `bytes` bytes, up to a page, the next of which belongs to nobody.
class AtPageEnd {
 public:
  AtPageEnd(const void* from, size_t bytes)
      : pages_(::mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)), bytes_(bytes) {
    if (pages_ == MAP_FAILED || ::mprotect(static_cast<std::byte*>(pages_) + kPage, kPage, PROT_NONE) != 0) {
      throw std::bad_alloc();
    }
    std::memcpy(get(), from, bytes);
  }
  ~AtPageEnd() { ::munmap(pages_, 2 * kPage); }
  AtPageEnd(const AtPageEnd&) = delete;
  AtPageEnd& operator=(const AtPageEnd&) = delete;
  [[nodiscard]] void* get() const { return static_cast<std::byte*>(pages_) + kPage - bytes_; }

 private:
  static constexpr size_t kPage = 4096;
  void* pages_;
  size_t bytes_;
};

}  // namespace pliant::test
