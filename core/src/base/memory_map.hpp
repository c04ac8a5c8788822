// MemoryMap: which memory this process has, and what it may do there, as the kernel tells.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace pliant {

/// What the kernel said when it was first asked. Memory that is mapped and is not there all the same, as behind the end
/// of a file, it does not tell.
class MemoryMap {
 public:
  enum class Access { kRead, kReadWrite };
  struct Refusal {
    uint64_t at = 0;           ///< the first byte of the range that cannot be used so
    bool is_readable = false;  ///< it may be read, and not written
  };
  /// Why a range, bytes > 0, cannot be used so; nullopt: it can, or the kernel does not tell (no /proc). The first call
  /// reads the map: some 100 us, O(mappings); further ones are O(log mappings + those in the range).
  [[nodiscard]] std::optional<Refusal> refusal_of(const void* memory, uint64_t bytes, Access access);

 private:
  /// Neighbours of the same access are one.
  struct Range {
    uint64_t first;
    uint64_t end;
    bool reads;
    bool writes;
  };
  void read();
  void take(std::string_view line);

  bool is_read_ = false;
  std::vector<Range> ranges_;  ///< ascending
};

}  // namespace pliant
