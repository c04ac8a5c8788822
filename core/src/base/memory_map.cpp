// Reads /proc/self/maps.
#include "base/memory_map.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <string>

#include "base/durable_file.hpp"

namespace pliant {
namespace {

constexpr size_t kAtOnce = size_t{1} << 16;

/// Empty where it cannot be read.
std::string text_of_map() {
  const FileDescriptor fd(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
  std::string text;
  while (fd.get() >= 0) {
    const size_t had = text.size();
    text.resize(had + kAtOnce);
    const ssize_t more = ::read(fd.get(), text.data() + had, kAtOnce);
    text.resize(had + static_cast<size_t>(std::max<ssize_t>(more, 0)));
    if (more == 0) break;
    if (more < 0 && errno != EINTR) return {};
  }
  return text;
}

}  // namespace

// "7f0c1000-7f0c3000 rw-p 00000000 00:00 0 [heap]"
void MemoryMap::take(std::string_view line) {
  Range range{};
  const char* const end = line.data() + line.size();
  const auto first = std::from_chars(line.data(), end, range.first, 16);
  if (first.ec != std::errc{} || first.ptr == end || *first.ptr != '-') return;
  const auto last = std::from_chars(first.ptr + 1, end, range.end, 16);
  if (last.ec != std::errc{} || end - last.ptr < 3) return;
  range.reads = last.ptr[1] == 'r';
  range.writes = last.ptr[2] == 'w';
  Range* const before = ranges_.empty() ? nullptr : &ranges_.back();
  if (before != nullptr && range.first <= before->end && range.reads == before->reads &&
      range.writes == before->writes) {
    before->end = std::max(before->end, range.end);
  } else {
    ranges_.push_back(range);
  }
}

void MemoryMap::read() {
  const std::string text = text_of_map();
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    take(line);
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
  }
}

std::optional<MemoryMap::Refusal> MemoryMap::refusal_of(const void* memory, uint64_t bytes, Access access) {
  if (!is_read_) read();
  is_read_ = true;
  if (ranges_.empty()) return std::nullopt;
  const auto first = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(memory));
  const uint64_t end = bytes > UINT64_MAX - first ? UINT64_MAX : first + bytes;
  uint64_t next = first;
  auto range = std::upper_bound(ranges_.begin(), ranges_.end(), first,
                                [](uint64_t byte, const Range& one) { return byte < one.end; });
  for (; next < end; next = range->end, ++range) {
    if (range == ranges_.end() || range->first > next || !range->reads) return Refusal{next - first, false};
    if (access == Access::kReadWrite && !range->writes) return Refusal{next - first, true};
  }
  return std::nullopt;
}

}  // namespace pliant
