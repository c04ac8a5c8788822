#include "base/environment.hpp"

#include <linux/capability.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>

namespace pliant {

bool elevated() noexcept {
  return ::getauxval(AT_SECURE) != 0;
}

const char* environment_variable(const char* name) noexcept {
  return elevated() ? nullptr : std::getenv(name);
}

bool drop_elevated_rights() noexcept {
  if (!elevated()) return true;
  const uid_t user = ::getuid();
  const gid_t group = ::getgid();
  if (::setresgid(group, group, group) != 0 || ::setresuid(user, user, user) != 0) return false;
  if (user == 0) return true;
  // Those that the file gave.
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3]{};
  return ::syscall(SYS_capset, &header, none) == 0;
}

}  // namespace pliant
