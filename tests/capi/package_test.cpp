// libpliant in a package of its own: which plugins it finds, wherever the program lies, and whom it trusts to change
// them.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "pliant.h"
#include "scratch_folder.hpp"

namespace fs = std::filesystem;
using pliant::test::ScratchFolder;

namespace {

/// Whether a file of this user may have `group`, whose members are not this user alone: a group of the user's name is
/// its own.
bool is_of_others(gid_t group) {
  const passwd* const user = ::getpwuid(::geteuid());
  const std::string name = user == nullptr ? "" : user->pw_name;
  const ::group* const found = ::getgrgid(group);
  return group != 0 && (found == nullptr || name != found->gr_name);
}

/// A group that a test may give its files to and that is not private: of root any, of others one that they are in.
std::optional<gid_t> strangers() {
  constexpr gid_t kOfNobody = 54321;
  if (::geteuid() == 0) return kOfNobody;
  std::vector<gid_t> own(static_cast<size_t>(std::max(0, ::getgroups(0, nullptr))));
  own.resize(static_cast<size_t>(std::max(0, ::getgroups(static_cast<int>(own.size()), own.data()))));
  own.push_back(::getegid());
  for (const gid_t group : own) {
    if (is_of_others(group)) return group;
  }
  return std::nullopt;
}

/// ctest shows the test as skipped then, and not as passed.
bool has_strangers() {
  if (strangers()) return true;
  MESSAGE("skipped: this user is in no group with others, and may give its files to none");
  return false;
}

/// A copy of the library at `library` and of one plugin at `plugins`, below a new folder.
class Package {
 public:
  Package(const std::string& file, const std::string& plugin_folder)
      : library_(folder_ / file), plugins_(folder_ / plugin_folder) {
    fs::create_directories(library_.parent_path());
    fs::create_directories(plugins_);
    fs::copy_file(PLIANT_C_LIBRARY, library_);
    fs::copy_file(std::string(PLIANT_PLUGIN_DIR) + "/elasticity-v0.1.pliant.so", plugin());
    for (const auto& entry : fs::recursive_directory_iterator(folder_.path())) ::chmod(entry.path().c_str(), 0755);
    ::chmod(folder_.path().c_str(), 0755);
  }
  ~Package() {
    if (handle_ != nullptr) ::dlclose(handle_);
  }
  Package(const Package&) = delete;
  Package& operator=(const Package&) = delete;

  [[nodiscard]] fs::path plugin() const { return plugins_ / "elasticity-v0.1.pliant.so"; }
  [[nodiscard]] const fs::path& plugins() const { return plugins_; }
  [[nodiscard]] const fs::path& library() const { return library_; }
  [[nodiscard]] const fs::path& root() const { return folder_.path(); }

  /// What the library of this package says to a config that uses the policy `name`; empty: nothing.
  std::string refusal_of(const std::string& name) {
    if (handle_ == nullptr) handle_ = ::dlopen(library_.c_str(), RTLD_NOW | RTLD_LOCAL);
    REQUIRE(handle_ != nullptr);
    const auto parse = reinterpret_cast<decltype(&pliant_config_parse)>(::dlsym(handle_, "pliant_config_parse"));
    const auto release = reinterpret_cast<decltype(&pliant_config_free)>(::dlsym(handle_, "pliant_config_free"));
    const auto message = reinterpret_cast<decltype(&pliant_last_message)>(::dlsym(handle_, "pliant_last_message"));
    const std::string toml = "config_version = 1\n[elasticity]\nuse = \"" + name + "\"\n[elasticity.\"" + name +
                             "\"]\nmax_train_batch_size = 16\nmicro_batch_sizes = [2]\n";
    pliant_config_options_t options = PLIANT_INIT(pliant_config_options_t);
    options.needs = "elasticity";
    options.flags = PLIANT_CONFIG_NO_ENVIRONMENT;
    pliant_config_t* config = nullptr;
    if (parse(toml.data(), toml.size(), &options, &config, nullptr) != PLIANT_OK) return message(nullptr);
    release(config);
    return {};
  }

  /// What umask 002 leaves: the group of strangers may write `path` and what is below it.
  void open_to_strangers(const fs::path& path) const {
    const gid_t group = strangers().value();
    const auto open = [group](const fs::path& one) {
      REQUIRE(::chown(one.c_str(), static_cast<uid_t>(-1), group) == 0);
      REQUIRE(::chmod(one.c_str(), 0775) == 0);
    };
    open(path);
    if (!fs::is_directory(path)) return;
    for (const auto& entry : fs::recursive_directory_iterator(path)) open(entry.path());
  }

 private:
  ScratchFolder folder_;
  fs::path library_;
  fs::path plugins_;
  void* handle_ = nullptr;
};

}  // namespace

TEST_CASE("a library finds the plugins that were installed with it, and not those beside the program") {
  for (const auto& installed :
       {std::pair{"lib/libpliant.so.0", "lib/pliant/plugins-1"},
        std::pair{"lib/x86_64-linux-gnu/libpliant.so.0", "lib/pliant/plugins-1"},
        std::pair{"lib64/libpliant.so.0", "lib64/pliant/plugins-1"},
        std::pair{"site-packages/pliant/_core.so", "site-packages/pliant/lib/pliant/plugins-1"}}) {
    CAPTURE(installed.first);
    Package package(installed.first, installed.second);
    CHECK(package.refusal_of("v0.1").empty());
    // `exact` is beside the program's and the build's plugins, not in this package.
    const std::string missing = package.refusal_of("exact");
    CHECK(missing.find(package.plugins().string() + " (installed)") != std::string::npos);
    CHECK(missing.find(PLIANT_PLUGIN_DIR) == std::string::npos);
  }
}

TEST_CASE("a library that was moved by a link finds the plugins of the file that it is") {
  Package package("lib/libpliant.so.0.1.0", "lib/pliant/plugins-1");
  const ScratchFolder elsewhere;
  fs::create_symlink(package.library(), elsewhere / "libpliant.so.0");
  void* const handle = ::dlopen((elsewhere / "libpliant.so.0").c_str(), RTLD_NOW | RTLD_LOCAL);
  REQUIRE(handle != nullptr);
  CHECK(package.refusal_of("v0.1").empty());  // the same library to the loader, under its first name
  ::dlclose(handle);
}

TEST_CASE("who may change a library may change the plugins that came with it") {
  if (!has_strangers()) return;
  Package package("lib/libpliant.so.0", "lib/pliant/plugins-1");
  package.open_to_strangers(package.root());
  CHECK(package.refusal_of("v0.1").empty());
}

TEST_CASE("plugins that more people may change than their library are refused") {
  if (!has_strangers()) return;
  Package package("lib/libpliant.so.0", "lib/pliant/plugins-1");
  package.open_to_strangers(package.plugins());
  CHECK(package.refusal_of("v0.1").find("can be changed by its group") != std::string::npos);
}

TEST_CASE("plugins that everybody may change are refused, whatever the library is") {
  Package package("lib/libpliant.so.0", "lib/pliant/plugins-1");
  ::chmod(package.library().c_str(), 0777);
  ::chmod(package.plugin().c_str(), 0777);
  CHECK(package.refusal_of("v0.1").find("can be changed by every user") != std::string::npos);
}

TEST_CASE("a plugin from elsewhere keeps the strict check, however open the library is") {
  if (!has_strangers()) return;
  Package package("lib/libpliant.so.0", "lib/pliant/plugins-1");
  package.open_to_strangers(package.root());
  fs::create_directories(package.root() / "elsewhere");
  fs::rename(package.plugin(), package.root() / "elsewhere/elasticity-other.pliant.so");
  fs::create_symlink(package.root() / "elsewhere/elasticity-other.pliant.so", package.plugin());
  CHECK(package.refusal_of("v0.1").find("can be changed by its group") != std::string::npos);
}
