// Ownership and permission checks of a plugin file and of the directories above it.
#include "plugin/trust.hpp"

#include <fmt/format.h>
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <system_error>
#include <vector>

namespace pliant::plugin {

namespace {

namespace fs = std::filesystem;

std::string user_name(uid_t uid) {
  std::array<char, 4096> buffer{};
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr) return {};
  return found->pw_name;
}

/// A user's own group, as useradd makes it: same name as the user and no further member.
bool private_group(gid_t gid, uid_t owner) {
  std::array<char, 16384> buffer{};
  group entry{};
  group* found = nullptr;
  if (::getgrgid_r(gid, &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr) return false;
  const std::string owner_name = user_name(owner);
  if (owner_name.empty() || owner_name != found->gr_name) return false;
  for (char** member = found->gr_mem; *member != nullptr; ++member) {
    if (owner_name != *member) return false;
  }
  return true;
}

std::vector<uid_t> trusted_owners() {
  std::vector<uid_t> owners{0, ::geteuid()};
  struct stat program {};
  if (::stat("/proc/self/exe", &program) == 0) owners.push_back(program.st_uid);
  return owners;
}

bool trusted(uid_t owner, const std::vector<uid_t>& owners) {
  for (const uid_t candidate : owners) {
    if (candidate == owner) return true;
  }
  return false;
}

tl::unexpected<Error> refused(const fs::path& file, const std::string& why) {
  return failed(Status::kFailedPrecondition, fmt::format("plugin {} is refused: {}", file.string(), why),
                ExitCode::kPlugin);
}

/// Why `component` is not trusted, or an empty text.
std::string objection(const fs::path& component, const struct stat& status, bool sticky_allowed,
                      const std::vector<uid_t>& owners) {
  if (!trusted(status.st_uid, owners)) {
    const std::string name = user_name(status.st_uid);
    return fmt::format(
        "{} belongs to user {} (uid {}), not to root, to you or to the owner of this program\n  to mend it: chown {} "
        "'{}', or "
        "install the plugin elsewhere",
        component.string(), name.empty() ? "without a name" : name, status.st_uid, ::geteuid(), component.string());
  }
  if (sticky_allowed && (status.st_mode & S_ISVTX) != 0) return {};
  if ((status.st_mode & S_IWOTH) != 0) {
    return fmt::format("{} can be changed by every user (mode {:04o})\n  to mend it: chmod go-w '{}'",
                       component.string(), status.st_mode & 07777U, component.string());
  }
  if ((status.st_mode & S_IWGRP) != 0 && !private_group(status.st_gid, status.st_uid)) {
    return fmt::format("{} can be changed by its group (mode {:04o}, gid {})\n  to mend it: chmod g-w '{}'",
                       component.string(), status.st_mode & 07777U, status.st_gid, component.string());
  }
  return {};
}

}  // namespace

Result<fs::path> trusted_file(const fs::path& file) {
  std::error_code failure;
  const fs::path canonical = fs::canonical(file, failure);
  if (failure == std::errc::no_such_file_or_directory) {
    return failed(Status::kNotFound, fmt::format("plugin {} does not exist", file.string()), ExitCode::kPlugin);
  }
  if (failure) return refused(file, failure.message());

  const std::vector<uid_t> owners = trusted_owners();
  const fs::path parent = canonical.parent_path();
  for (fs::path component = canonical;; component = component.parent_path()) {
    struct stat status {};
    if (::stat(component.c_str(), &status) != 0) {
      return refused(file, fmt::format("{}: {}", component.string(), std::generic_category().message(errno)));
    }
    if (component == canonical && !S_ISREG(status.st_mode)) return refused(file, "it is not a regular file");
    const bool above_parent = component != canonical && component != parent;
    const std::string why = objection(component, status, above_parent, owners);
    if (!why.empty()) return refused(file, why);
    if (component == component.root_path()) return canonical;
  }
}

}  // namespace pliant::plugin
