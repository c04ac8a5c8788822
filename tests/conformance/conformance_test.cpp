// What our own host says of a plugin that the kit has found in order. Runs over the one file that
// PLIANT_CONFORMANCE_PLUGIN names.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>

#include "plugin/plugin.hpp"

namespace {

namespace fs = std::filesystem;

TEST_CASE("our own host opens it, and its file name says what it is") {
  const char* named = std::getenv("PLIANT_CONFORMANCE_PLUGIN");
  REQUIRE_MESSAGE(named != nullptr, "PLIANT_CONFORMANCE_PLUGIN must name a plugin file");
  const fs::path file = named;
  const std::string section = file.filename().string().substr(0, file.filename().string().find('-'));
  const pliant::plugin::Kind* kind = pliant::plugin::kind_of(section);
  REQUIRE(kind != nullptr);
  const auto opened = pliant::plugin::Plugin::open(file, *kind);
  REQUIRE_MESSAGE(opened.has_value(), (opened ? "" : opened.error().message()));
  CHECK((*opened)->record().kind == kind->id);
  CHECK(file.filename() == section + "-" + (*opened)->record().name + ".pliant.so");
}

}  // namespace
