// Files that are no plugin, are cut off, or that anybody could have replaced.
#include <doctest/doctest.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <vector>

#include "negative/pliant_process.hpp"
#include "plugin/acl.hpp"
#include "plugin/plugin.hpp"

namespace {

namespace fs = std::filesystem;
using pliant::test::Outcome;
using pliant::test::run_pliant;
using pliant::test::ScratchFolder;

const std::string kGood = std::string(NEGATIVE_PLUGIN_DIR) + "/elasticity-good.pliant.so";
constexpr const char* kConfig = "config_version = 1\n[plugins]\ndirs = [\"plugins\"]\n[elasticity]\nuse = \"good\"\n";

/// A folder with a config and plugins/elasticity-good.pliant.so of `bytes`.
struct Installed : ScratchFolder {
  explicit Installed(const std::string& bytes) {
    write("pliant.toml", kConfig);
    file = write("plugins/elasticity-good.pliant.so", bytes);
  }
  [[nodiscard]] Outcome plan() const { return run_pliant(*this, {"plan", "pliant.toml"}); }
  fs::path file;
};

void check_refused(const Outcome& outcome, const std::string& reason) {
  CAPTURE(outcome.err);
  CHECK(outcome.exit_code == 3);
  CHECK(outcome.out.empty());
  CHECK(outcome.err.find("pliant.toml:5:7: error: ") == 0);
  CHECK(outcome.err.find(reason) != std::string::npos);
}

}  // namespace

TEST_CASE("a plugin found through dirs of the config is used from any working directory") {
  const Installed installed(pliant::test::read_all(kGood));
  CHECK(installed.plan().exit_code == 0);
  const ScratchFolder elsewhere;
  CHECK(run_pliant(elsewhere, {"plan", (installed.path() / "pliant.toml").string()}).exit_code == 0);
}

TEST_CASE("a missing plugin lists the directories that were searched and the near names there") {
  const Installed installed(pliant::test::read_all(kGood));
  installed.write("pliant.toml",
                  "config_version = 1\n[plugins]\ndirs = [\"plugins\"]\n[elasticity]\nuse = \"goood\"\n");
  const Outcome outcome = installed.plan();
  check_refused(outcome, "elasticity plugin 'goood' is not installed: no elasticity-goood.pliant.so in");
  CHECK(outcome.err.find((installed.path() / "plugins").string() + " ([plugins] dirs)") != std::string::npos);
  CHECK(outcome.err.find("did you mean 'good'?") != std::string::npos);
}

TEST_CASE("the working directory is not searched for plugins") {
  const Installed installed(pliant::test::read_all(kGood));
  fs::rename(installed.file, installed.path() / "elasticity-good.pliant.so");
  check_refused(installed.plan(), "is not installed");
}

TEST_CASE("a broken plugin stops the search: a whole one in a later directory is not used instead") {
  const Installed installed("not a library");
  const Outcome outcome =
      run_pliant(installed, {"plan", "pliant.toml"}, {std::string("PLIANT_PLUGIN_PATH=") + NEGATIVE_PLUGIN_DIR});
  check_refused(outcome, "it is not an ELF shared library");
}

TEST_CASE("a file that is no shared library is refused") {
  check_refused(Installed("not a library").plan(), "is refused: it is not an ELF shared library");
  check_refused(Installed("").plan(), "is refused: it is empty");
  const Installed program(pliant::test::read_all(kGood));
  fs::remove(program.file);
  fs::create_directory(program.file);
  check_refused(program.plan(), "it is not a regular file");
}

TEST_CASE("a plugin cut off at any length is refused, and the process lives") {
  const std::string whole = pliant::test::read_all(kGood);
  const ::pliant::plugin::Kind& kind = *::pliant::plugin::kind_of("elasticity");
  const ScratchFolder folder;
  for (size_t length = 0; length < whole.size(); length += 1 + whole.size() / 97) {
    CAPTURE(length);
    const fs::path file = folder.write("elasticity-good.pliant.so", whole.substr(0, length));
    const auto opened = ::pliant::plugin::Plugin::open(file, kind);
    REQUIRE_FALSE(opened);
    CHECK(opened.error().origin() == ::pliant::Origin::kPlugin);
    CHECK(opened.error().message().find(file.string()) != std::string::npos);
  }
  check_refused(Installed(whole.substr(0, whole.size() / 2)).plan(), "it is truncated: ");
}

TEST_CASE("a plugin that everybody may write is refused with the command that mends it") {
  const Installed installed(pliant::test::read_all(kGood));
  fs::permissions(installed.file, fs::perms(0666));
  const Outcome outcome = installed.plan();
  check_refused(outcome, "can be changed by every user (mode 0666)");
  CHECK(outcome.err.find("chmod go-w '" + installed.file.string() + "'") != std::string::npos);
  fs::permissions(installed.file, fs::perms(0644));
  CHECK(installed.plan().exit_code == 0);
}

TEST_CASE("a plugin in a directory that everybody may write is refused, even a sticky one") {
  const Installed installed(pliant::test::read_all(kGood));
  fs::permissions(installed.file.parent_path(), fs::perms(0777));
  check_refused(installed.plan(), "chmod go-w '" + installed.file.parent_path().string() + "'");
  ::chmod(installed.file.parent_path().c_str(), 01777);
  check_refused(installed.plan(), "can be changed by every user (mode 1777)");
}

TEST_CASE("a link is followed before the file is judged") {
  const Installed installed(pliant::test::read_all(kGood));
  const fs::path open_to_all = installed.path() / "shared";
  fs::create_directory(open_to_all);
  fs::permissions(open_to_all, fs::perms(0777));
  fs::rename(installed.file, open_to_all / "real.so");
  fs::create_symlink(open_to_all / "real.so", installed.file);
  check_refused(installed.plan(), "chmod go-w '" + open_to_all.string() + "'");
}

TEST_CASE("a plugin of another user is refused") {
  if (::geteuid() != 0) {
    MESSAGE("skipped: only root gives a file to another user");
    return;
  }
  const Installed installed(pliant::test::read_all(kGood));
  REQUIRE(::chown(installed.file.c_str(), 12345, 12345) == 0);
  check_refused(installed.plan(), "(uid 12345), not to root, to you or to the owner of this program");
}

/// An access control list of the mode bits of `file` and one more entry: `tag` 2 is a user, 8 a group. False where the
/// file system has no such lists.
bool add_to_list(const fs::path& file, uint16_t tag, uint16_t rights, uint32_t id, uint16_t mask) {
  struct Entry {
    uint16_t tag, rights;
    uint32_t id;
  };
  constexpr uint32_t kNobody = UINT32_MAX;
  const bool user = tag == 2;
  const Entry group_of_owner{4, 5, kNobody};
  const Entry named{tag, rights, id};
  const Entry entries[] = {{1, 7, kNobody},
                           user ? named : group_of_owner,
                           user ? group_of_owner : named,
                           {16, mask, kNobody},
                           {32, 5, kNobody}};
  std::string value("\2\0\0\0", 4);
  value.append(reinterpret_cast<const char*>(entries), sizeof(entries));
  return ::setxattr(file.c_str(), "system.posix_acl_access", value.data(), value.size(), 0) == 0;
}

TEST_CASE("a plugin that an access control list lets another user or group write is refused") {
  for (const bool folder : {false, true}) {
    const Installed installed(pliant::test::read_all(kGood));
    const fs::path changed = folder ? installed.file.parent_path() : installed.file;
    if (!add_to_list(changed, 2, 5, 12345, 7)) return;  // no lists on this file system
    CHECK(installed.plan().exit_code == 0);             // may read
    REQUIRE(add_to_list(changed, 2, 7, 12345, 5));
    CHECK(installed.plan().exit_code == 0);  // the mask takes the right away
    REQUIRE(add_to_list(changed, 2, 7, 12345, 7));
    CHECK(installed.plan().exit_code == 3);
    // With the group of the owner private, as it may be, the mode bits say nothing.
    const auto refused = [&](uint16_t tag) {
      REQUIRE(add_to_list(changed, tag, 7, 12345, 7));
      return pliant::plugin::acl_writers(changed).value() == std::vector<pliant::plugin::AclWriter>{{tag == 8, 12345}};
    };
    CHECK(refused(2));
    CHECK(refused(8));
  }
}

TEST_CASE("an access control list that is none is an error, not a free pass") {
  using pliant::plugin::parse_acl;
  CHECK_FALSE(parse_acl("").has_value());
  CHECK_FALSE(parse_acl(std::string("\1\0\0\0", 4)).has_value());
  CHECK_FALSE(parse_acl(std::string("\2\0\0\0\2\0", 6)).has_value());
  CHECK(parse_acl(std::string("\2\0\0\0", 4))->empty());
  const std::string user("\2\0\7\0\x39\x30\0\0", 8);  // rwx for uid 12345
  CHECK(parse_acl(std::string("\2\0\0\0", 4) + user)->size() == 1);
  CHECK(parse_acl(std::string("\2\0\0\0", 4) + user + std::string("\x10\0\5\0\0\0\0\0", 8))->empty());
}

TEST_CASE("an empty --plugin-dir is an error, not a search in the working directory") {
  const Installed installed(pliant::test::read_all(kGood));
  fs::rename(installed.file, installed.path() / "elasticity-good.pliant.so");
  for (const std::vector<std::string>& words : {std::vector<std::string>{"plan", "pliant.toml"},
                                                {"plugin", "list"},
                                                {"plugin", "list", "--config", "pliant.toml"}}) {
    std::vector<std::string> more = words;
    more.insert(more.end(), {"--plugin-dir", ""});
    const Outcome outcome = run_pliant(installed, more);
    CAPTURE(outcome.err);
    CHECK(outcome.exit_code == 2);
    CHECK(outcome.err.find("--plugin-dir is empty") != std::string::npos);
  }
  const Outcome path = run_pliant(installed, {"plugin", "list"}, {"PLIANT_PLUGIN_PATH=:"});
  CHECK(path.out.find("good") == std::string::npos);
  installed.write("pliant.toml", "config_version = 1\n[plugins]\ndirs = [\"\"]\n");
  CHECK(installed.plan().err.find("pliant.toml:3:9: error: plugins.dirs has an empty element") == 0);
}

/// Whether a setgid program in `folder` gets its group.
bool setgid_works(const fs::path& folder) {
  struct statvfs of {};
  return ::geteuid() == 0 && ::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0 && ::statvfs(folder.c_str(), &of) == 0 &&
         (of.f_flag & ST_NOSUID) == 0;
}

TEST_CASE("a setgid pliant ignores the environment and the paths of its user") {
  const Installed installed(pliant::test::read_all(kGood));
  if (!setgid_works(installed.path())) {
    MESSAGE("skipped: only root makes a setgid program, where the file system runs such");
    return;
  }
  const fs::path program = installed.path() / "pliant";
  fs::copy_file(std::string(PLIANT_BIN_DIR) + "/pliant", program);
  installed.write("pliant.toml", "config_version = 1\n[plugins]\ndirs = [\"plugins\"]\n");
  const auto run = [&](const std::vector<std::string>& words) {
    return run_pliant(
        installed, words,
        {"PLIANT__RUN__WORKERS=7", "PLIANT_LOG=nonsense", std::string("PLIANT_PLUGIN_PATH=") + NEGATIVE_PLUGIN_DIR}, {},
        program.string());
  };
  const std::vector<std::string> list{"plugin", "list", "--config", "pliant.toml", "--plugin-dir", "plugins"};
  const std::vector<std::string> show{"config", "show", "pliant.toml"};
  CHECK(run(show).exit_code == 2);  // for PLIANT_LOG
  REQUIRE(::chown(program.c_str(), 0, 12345) == 0);
  REQUIRE(::chmod(program.c_str(), 02755) == 0);
  const Outcome shown = run(show);
  CAPTURE(shown.err);
  CHECK(shown.exit_code == 0);
  CHECK(shown.out.find("workers = 7") == std::string::npos);
  const Outcome listed = run(list);
  CHECK(listed.exit_code == 0);
  CHECK(listed.out.find("elasticity/good") == std::string::npos);
  CHECK(run({"plugin", "check", installed.file.string()}).err.find("another user's rights") != std::string::npos);
}

TEST_CASE("a setgid pliant reads nothing that its user may not read") {
  const Installed installed(pliant::test::read_all(kGood));
  if (!setgid_works(installed.path()) || !fs::exists("/usr/bin/setpriv")) {
    MESSAGE("skipped: only root makes a setgid program, where the file system runs such, and setpriv is needed");
    return;
  }
  REQUIRE(::chmod(installed.path().c_str(), 0755) == 0);
  const fs::path program = installed.path() / "pliant";
  fs::copy_file(std::string(PLIANT_BIN_DIR) + "/pliant", program);
  const fs::path secret = installed.write("secret.toml", "the secret of group 12345\n");
  REQUIRE(::chown(secret.c_str(), 0, 12345) == 0);
  REQUIRE(::chmod(secret.c_str(), 0640) == 0);
  REQUIRE(::chown(program.c_str(), 0, 12345) == 0);
  REQUIRE(::chmod(program.c_str(), 02755) == 0);
  const Outcome outcome = run_pliant(
      installed,
      {"--reuid=65534", "--regid=65534", "--clear-groups", program.string(), "config", "check", "secret.toml"}, {}, {},
      "/usr/bin/setpriv");
  CAPTURE(outcome.err);
  CHECK(outcome.exit_code == 2);
  CHECK(outcome.err.find("Permission denied") != std::string::npos);
  CHECK(outcome.err.find("the secret") == std::string::npos);
}

TEST_CASE("a relative entry of PLIANT_PLUGIN_PATH is an error, not a search in the working directory") {
  const Installed installed(pliant::test::read_all(kGood));
  const Outcome outcome = run_pliant(installed, {"plan", "pliant.toml"}, {"PLIANT_PLUGIN_PATH=/nowhere:plugins"});
  CHECK(outcome.exit_code == 2);
  CHECK(outcome.err.find("environment PLIANT_PLUGIN_PATH: error: entry 'plugins' of PLIANT_PLUGIN_PATH is relative") ==
        0);
}

TEST_CASE("path names one file, relative to the config, and its own name must be what use says") {
  const Installed installed(pliant::test::read_all(kGood));
  fs::rename(installed.file, installed.path() / "plugins" / "mine.so");
  const std::string config = "config_version = 1\n[elasticity]\npath = \"plugins/mine.so\"\nuse = ";
  const fs::path file = installed.write("pliant.toml", config + "\"good\"\n");
  const ScratchFolder elsewhere;
  CHECK(run_pliant(elsewhere, {"plan", file.string()}).exit_code == 0);
  installed.write("pliant.toml", config + "\"other\"\n");
  const Outcome outcome = installed.plan();
  CHECK(outcome.exit_code == 3);
  CHECK(outcome.err.find("pliant.toml:3:8: error: ") == 0);
  CHECK(outcome.err.find("calls itself 'good', but use says 'other'") != std::string::npos);
}
