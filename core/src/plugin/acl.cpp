// Little-endian: u32 version 2, then entries of u16 tag, u16 rights, u32 id.
#include "plugin/acl.hpp"

#include <fmt/format.h>
#include <sys/xattr.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <system_error>

namespace pliant::plugin {

namespace {

constexpr const char* kAttribute = "system.posix_acl_access";
constexpr size_t kLargest = 65536;  // of any attribute on Linux
constexpr uint32_t kVersion = 2;
constexpr size_t kEntrySize = 8;
constexpr uint32_t kUser = 0x02;
constexpr uint32_t kGroup = 0x08;
constexpr uint32_t kMask = 0x10;
constexpr uint32_t kWrite = 2;

uint32_t number(std::string_view bytes, size_t at, size_t width) {
  uint32_t value = 0;
  for (size_t i = width; i-- > 0;) value = value << 8U | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

}  // namespace

Result<std::vector<AclWriter>> parse_acl(std::string_view value) {
  if (value.size() < 4 || (value.size() - 4) % kEntrySize != 0 || number(value, 0, 4) != kVersion) {
    return failed(Status::kDataLoss, "its access control list does not have version 2");
  }
  uint32_t mask = kWrite;
  std::vector<AclWriter> writers;
  for (size_t at = 4; at < value.size(); at += kEntrySize) {
    const uint32_t tag = number(value, at, 2);
    const uint32_t rights = number(value, at + 2, 2);
    if (tag == kMask) mask = rights;
    if ((tag == kUser || tag == kGroup) && (rights & kWrite) != 0) {
      writers.push_back({tag == kGroup, number(value, at + 4, 4)});
    }
  }
  if ((mask & kWrite) == 0) writers.clear();
  return writers;
}

Result<std::vector<AclWriter>> acl_writers(const std::filesystem::path& file) {
  std::array<char, kLargest> value;
  const ssize_t size = ::getxattr(file.c_str(), kAttribute, value.data(), value.size());
  if (size >= 0) {
    auto writers = parse_acl({value.data(), static_cast<size_t>(size)});
    if (writers) return writers;
    return failed(Status::kDataLoss, fmt::format("{}: {}", file.string(), writers.error().message()));
  }
  if (errno == ENODATA || errno == ENOTSUP || errno == ENOSYS) return std::vector<AclWriter>{};
  return failed(Status::kDataLoss, fmt::format("{}: cannot read its access control list: {}", file.string(),
                                               std::generic_category().message(errno)));
}

}  // namespace pliant::plugin
