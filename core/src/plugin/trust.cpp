// Ownership and permission checks of a plugin file and of the directories above it.
#include "plugin/trust.hpp"

#include <fmt/format.h>
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <mutex>
#include <string>
#include <system_error>
#include <vector>

#include "base/environment.hpp"
#include "plugin/acl.hpp"
#include "plugin/home.hpp"

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

/// Whether `gid` is the primary group of a user other than `owner` and root; such users are not in the group's own
/// list.
bool primary_group_of_others(gid_t gid, uid_t owner) {
  static std::mutex one_at_a_time;  // getpwent has one position for the whole process
  const std::lock_guard lock(one_at_a_time);
  bool others = false;
  ::setpwent();
  while (const passwd* user = others ? nullptr : ::getpwent()) {
    others = user->pw_gid == gid && user->pw_uid != owner && user->pw_uid != 0;
  }
  ::endpwent();
  return others;
}

/// A user's own group, as useradd makes it: same name as the user, no further member, nobody else's primary group.
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
  return !primary_group_of_others(gid, owner);
}

/// The private group of one of `owners`, as far as these have names.
bool private_group_of_any(gid_t gid, const std::vector<uid_t>& owners) {
  return std::any_of(owners.begin(), owners.end(), [gid](uid_t owner) { return private_group(gid, owner); });
}

/// Who may change a plugin file.
struct Trusted {
  std::vector<uid_t> owners;
  std::vector<gid_t> groups;  ///< beside the private groups of `owners`

  [[nodiscard]] bool has_owner(uid_t owner) const {
    return std::find(owners.begin(), owners.end(), owner) != owners.end();
  }
  [[nodiscard]] bool has_group(gid_t group) const {
    return std::find(groups.begin(), groups.end(), group) != groups.end();
  }
};

Trusted those_of_program() {
  Trusted those{{0, ::geteuid()}, {}};
  struct stat program {};
  if (::stat("/proc/self/exe", &program) == 0) those.owners.push_back(program.st_uid);
  return those;
}

/// Adds the users and groups that can change `home`, itself or a folder above it: their code runs in this process
/// already.
void add_changers(const fs::path& home, Trusted& those) {
  for (fs::path component = home;; component = component.parent_path()) {
    struct stat status {};
    if (::stat(component.c_str(), &status) != 0) return;
    those.owners.push_back(status.st_uid);
    const bool above_parent = component != home && component != home.parent_path();
    if (!above_parent || (status.st_mode & S_ISVTX) == 0) {
      if ((status.st_mode & S_IWGRP) != 0) those.groups.push_back(status.st_gid);
      if (const auto writers = acl_writers(component)) {
        for (const AclWriter& writer : *writers) (writer.is_group ? those.groups : those.owners).push_back(writer.id);
      }
    }
    if (component == component.root_path()) return;
  }
}

/// Whether `file` came with the program or library that holds this code.
bool came_with_home(const fs::path& file) {
  std::error_code failure;
  const fs::path own = fs::canonical(plugins_of_home(home_file()), failure);
  return !failure && file.parent_path() == own;
}

tl::unexpected<Error> distrusted(const fs::path& file, const std::string& why) {
  return failed(Status::kFailedPrecondition, fmt::format("plugin {} is refused: {}", file.string(), why),
                Origin::kPlugin);
}

/// Why the access control list of `component` is not trusted, or an empty text. Mode bits show its mask, not its users.
std::string list_objection(const fs::path& component, gid_t group, const Trusted& those) {
  const Result<std::vector<AclWriter>> writers = acl_writers(component);
  const std::string remedy = fmt::format("\n  to fix it: setfacl -b '{}'", component.string());
  if (!writers) return fmt::format("{}{}", writers.error().message(), remedy);
  for (const AclWriter& writer : *writers) {
    if (!writer.is_group && !those.has_owner(writer.id)) {
      const std::string name = user_name(writer.id);
      return fmt::format("{} can be changed by user {} (uid {}) through its access control list{}", component.string(),
                         name.empty() ? "without a name" : name, writer.id, remedy);
    }
    if (writer.is_group && writer.id != group && !those.has_group(writer.id) &&
        !private_group_of_any(writer.id, those.owners)) {
      return fmt::format("{} can be changed by the group with gid {} through its access control list{}",
                         component.string(), writer.id, remedy);
    }
  }
  return {};
}

/// Why `component` is not trusted, or an empty text.
std::string objection(const fs::path& component, const struct stat& status, bool sticky_allowed, const Trusted& those) {
  if (!those.has_owner(status.st_uid)) {
    const std::string name = user_name(status.st_uid);
    return fmt::format(
        "{} belongs to user {} (uid {}), not to root, to you or to the owner of this program\n  to fix it: chown {} "
        "'{}', or install the plugin elsewhere",
        component.string(), name.empty() ? "without a name" : name, status.st_uid, ::geteuid(), component.string());
  }
  if (sticky_allowed && (status.st_mode & S_ISVTX) != 0) return {};
  if ((status.st_mode & S_IWOTH) != 0) {
    return fmt::format("{} can be changed by every user (mode {:04o})\n  to fix it: chmod go-w '{}'",
                       component.string(), status.st_mode & 07777U, component.string());
  }
  if ((status.st_mode & S_IWGRP) != 0 && !those.has_group(status.st_gid) &&
      !private_group(status.st_gid, status.st_uid)) {
    return fmt::format("{} can be changed by its group (mode {:04o}, gid {})\n  to fix it: chmod g-w '{}'",
                       component.string(), status.st_mode & 07777U, status.st_gid, component.string());
  }
  return list_objection(component, status.st_gid, those);
}

}  // namespace

Result<fs::path> trusted_file(const fs::path& file) {
  std::error_code failure;
  const fs::path canonical = fs::canonical(file, failure);
  if (failure == std::errc::no_such_file_or_directory) {
    return failed(Status::kNotFound, fmt::format("plugin {} does not exist", file.string()), Origin::kPlugin);
  }
  if (failure) return distrusted(file, failure.message());

  Trusted those = those_of_program();
  if (!elevated() && came_with_home(canonical)) add_changers(home_file(), those);
  const fs::path parent = canonical.parent_path();
  for (fs::path component = canonical;; component = component.parent_path()) {
    struct stat status {};
    if (::stat(component.c_str(), &status) != 0) {
      return distrusted(file, fmt::format("{}: {}", component.string(), std::generic_category().message(errno)));
    }
    if (component == canonical && !S_ISREG(status.st_mode)) return distrusted(file, "it is not a regular file");
    const bool above_parent = component != canonical && component != parent;
    const std::string why = objection(component, status, above_parent, those);
    if (!why.empty()) return distrusted(file, why);
    if (component == component.root_path()) return canonical;
  }
}

}  // namespace pliant::plugin
