// What our plugin files show to the dynamic loader: one symbol, and no library that a user's machine may lack.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "pliant/abi/plugin.h"
#include "testkit/elf_reader.hpp"

namespace {

namespace fs = std::filesystem;
using pliant::testkit::ElfReader;

std::vector<fs::path> plugin_files() {
  std::vector<fs::path> files{PLIANT_OWN_PLUGIN_FILES};
  std::sort(files.begin(), files.end());
  return files;
}

TEST_CASE("there are plugin files to look at, and the plugin folders hold no others") {
  const std::vector<fs::path> built = plugin_files();
  REQUIRE(built.size() >= 3);
  for (const char* folder : {PLIANT_PLUGIN_DIR, PLIANT_TESTKIT_PLUGIN_DIR}) {
    if (!fs::exists(folder)) continue;
    for (const auto& entry : fs::directory_iterator(folder)) {
      CAPTURE(entry.path().string());
      CHECK(std::find(built.begin(), built.end(), entry.path()) != built.end());
    }
  }
}

TEST_CASE("a plugin exports the entry symbol and nothing else") {
  for (const fs::path& file : plugin_files()) {
    CAPTURE(file.string());
    CHECK(ElfReader(file).exports() == std::vector<std::string>{PLIANT_PLUGIN_ENTRY_SYMBOL});
  }
}

TEST_CASE("a plugin needs the C and C++ runtime only") {
  const std::vector<std::string_view> allowed{"libstdc++.so.",  "libgcc_s.so.", "libc.so.", "libm.so.",
                                              "libpthread.so.", "librt.so.",    "ld-linux", "libasan.so.",
                                              "libubsan.so.",   "libtsan.so."};
  for (const fs::path& file : plugin_files()) {
    CAPTURE(file.string());
    for (const std::string& library : ElfReader(file).needed()) {
      CAPTURE(library);
      CHECK(std::any_of(allowed.begin(), allowed.end(), [&](std::string_view prefix) {
        return std::string_view(library).substr(0, prefix.size()) == prefix;
      }));
    }
  }
}

TEST_CASE("a plugin carries no run path") {
  for (const fs::path& file : plugin_files()) {
    CAPTURE(file.string());
    CHECK(ElfReader(file).run_paths().empty());
  }
}

}  // namespace
