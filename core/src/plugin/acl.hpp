// POSIX access control lists, as far as they let somebody write.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace pliant::plugin {

/// A user or group that an access control list names and lets write.
struct AclWriter {
  bool is_group = false;
  id_t id = 0;  ///< uid or gid
  bool operator==(const AclWriter&) const = default;
};

/// Those of the list of `file` that its mask leaves the right to write; owner, owning group and others are the mode's.
/// Empty without a list, and on a file system that has none. kDataLoss for a list that cannot be read.
Result<std::vector<AclWriter>> acl_writers(const std::filesystem::path& file);

/// The same for the value of the attribute system.posix_acl_access. kDataLoss for bytes that are none.
Result<std::vector<AclWriter>> parse_acl(std::string_view value);

}  // namespace pliant::plugin
