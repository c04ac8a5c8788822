// The search path: order, shadowing, names.
#include "plugin/search.hpp"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "negative/pliant_process.hpp"
#include "plugin/elf_check.hpp"
#include "plugin/record_check.hpp"

using pliant::plugin::Found;
using pliant::plugin::kind_of;
using pliant::plugin::SearchDir;
using pliant::test::ScratchFolder;

namespace {

std::vector<SearchDir> two_dirs(const ScratchFolder& folder) {
  folder.write("one/lr-a.pliant.so", "");
  folder.write("two/lr-a.pliant.so", "");
  folder.write("two/lr-b.pliant.so", "");
  folder.write("two/sampler-a.pliant.so", "");
  folder.write("two/lr-.pliant.so", "");
  folder.write("two/lr-A.pliant.so", "");
  folder.write("two/README", "");
  return {{folder.path() / "one", "--plugin-dir"}, {folder.path() / "two", "installed"}, {"/nowhere", "installed"}};
}

}  // namespace

TEST_CASE("listing shows what a name opens first and what it hides after it") {
  const ScratchFolder folder;
  std::string seen;
  for (const Found& found : pliant::plugin::list(two_dirs(folder))) {
    seen += std::string(found.kind->section) + "/" + found.name + (found.shadowed ? " hidden in " : " in ") +
            found.file.parent_path().filename().string() + "\n";
  }
  CHECK(seen == "sampler/a in two\nlr/a in one\nlr/a hidden in two\nlr/b in two\n");
  CHECK(pliant::plugin::names(two_dirs(folder), *kind_of("lr")) == std::vector<std::string>{"a", "b"});
}

TEST_CASE("the first directory that has the name decides") {
  const ScratchFolder folder;
  const auto dirs = two_dirs(folder);
  CHECK(pliant::plugin::find(dirs, *kind_of("lr"), "a").value() == folder.path() / "one/lr-a.pliant.so");
  CHECK(pliant::plugin::find(dirs, *kind_of("lr"), "b").value() == folder.path() / "two/lr-b.pliant.so");
  const auto missing = pliant::plugin::find(dirs, *kind_of("lr"), "zzzzzz");
  REQUIRE_FALSE(missing);
  CHECK(missing.error().message().find("/nowhere (installed; no such directory)") != std::string::npos);
  CHECK(missing.error().message().find("installed: a, b") != std::string::npos);
}

TEST_CASE("a link that leads nowhere is found, so that it is refused and nothing else is taken") {
  const ScratchFolder folder;
  const auto dirs = two_dirs(folder);
  std::filesystem::remove(folder.path() / "one/lr-a.pliant.so");
  std::filesystem::create_symlink("/nowhere/at/all", folder.path() / "one/lr-a.pliant.so");
  CHECK(pliant::plugin::find(dirs, *kind_of("lr"), "a").value() == folder.path() / "one/lr-a.pliant.so");
}

TEST_CASE("names of plugins are lower case and have no path in them") {
  for (const char* good : {"v0.1", "a", "0", "a_b-c.d"}) CHECK(pliant::plugin::valid_plugin_name(good));
  for (const char* bad : {"", "A", ".a", "-a", "a/b", "../a", "a b", "a\n"})
    CHECK_FALSE(pliant::plugin::valid_plugin_name(bad));
  CHECK_FALSE(pliant::plugin::valid_plugin_name(std::string(65, 'a')));
}

#ifdef __SANITIZE_ADDRESS__
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// A sanitizer needs descriptors to look at an object's type, and takes it for a wrong one without.
TEST_CASE("a plugin file that cannot be read is refused with the reason of the system" * doctest::skip(kSanitized)) {
  const ScratchFolder folder;
  folder.write("lr-a.pliant.so", "not empty");
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const int lowest_free = ::dup(STDERR_FILENO);
  ::close(lowest_free);
  const rlimit none_left{static_cast<rlim_t>(lowest_free), before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none_left) == 0);
  const std::string objection = pliant::plugin::elf_objection(folder.path() / "lr-a.pliant.so");
  ::setrlimit(RLIMIT_NOFILE, &before);
  CHECK(objection == "cannot read it: Too many open files");
}
