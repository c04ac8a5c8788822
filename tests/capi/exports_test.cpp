// What libpliant shows to the dynamic loader: its functions, under a version, and no library that a machine may lack.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <regex>
#include <set>
#include <string>
#include <string_view>

#include "pliant.h"
#include "scratch_folder.hpp"
#include "testkit/elf_reader.hpp"

using pliant::testkit::ElfReader;

namespace {

std::set<std::string> declared_functions() {
  const std::string text = pliant::test::read_all(std::string(PLIANT_SOURCE_DIR) + "/tests/capi/signatures.h");
  const std::regex function(R"((pliant_\w+)\((?!\*))");
  std::set<std::string> names;
  for (std::sregex_iterator at(text.begin(), text.end(), function), end; at != end; ++at) names.insert((*at)[1]);
  return names;
}

}  // namespace

TEST_CASE("libpliant exports the functions of its header and nothing else") {
  const auto exports = ElfReader(PLIANT_C_LIBRARY).exports();
  std::set<std::string> functions;
  for (const std::string& name : exports) {
    if (name != "PLIANT_0.1") functions.insert(name);  // the version itself
  }
  CHECK(functions == declared_functions());
}

TEST_CASE("the functions of libpliant have a version") {
  CHECK(::dlvsym(RTLD_DEFAULT, "pliant_check_version", "PLIANT_0.1") != nullptr);
  CHECK(::dlvsym(RTLD_DEFAULT, "pliant_check_version", "PLIANT_9.9") == nullptr);
}

TEST_CASE("libpliant needs the C and C++ runtime only") {
  const std::set<std::string_view> allowed{"libstdc++.so.",  "libgcc_s.so.", "libc.so.",   "libm.so.",
                                           "libpthread.so.", "librt.so.",    "libdl.so.",  "ld-linux",
                                           "libasan.so.",    "libubsan.so.", "libtsan.so."};
  for (const std::string& library : ElfReader(PLIANT_C_LIBRARY).needed()) {
    CAPTURE(library);
    CHECK(std::any_of(allowed.begin(), allowed.end(), [&](std::string_view prefix) {
      return std::string_view(library).substr(0, prefix.size()) == prefix;
    }));
  }
  CHECK(ElfReader(PLIANT_C_LIBRARY).run_paths().empty());
}

TEST_CASE("a program that was linked with libpliant asks for its major version") {
  const auto needed = ElfReader("/proc/self/exe").needed();
  CHECK(std::count(needed.begin(), needed.end(), "libpliant.so." + std::to_string(PLIANT_VERSION_MAJOR)) == 1);
}
