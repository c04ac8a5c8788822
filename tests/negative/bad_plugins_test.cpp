// Every way in which a plugin can break its contract ends with exit code 3, its file name and the reason.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "negative/pliant_process.hpp"

namespace {

using pliant::test::Outcome;
using pliant::test::run_pliant;
using pliant::test::ScratchFolder;

struct Case {
  std::string name;
  std::string reason;  ///< must be in the message
};

Outcome plan_with(const ScratchFolder& folder, const std::string& name) {
  folder.write("pliant.toml", "config_version = 1\n[elasticity]\nuse = \"" + name + "\"\n");
  return run_pliant(folder, {"plan", "pliant.toml", "--plugin-dir", NEGATIVE_PLUGIN_DIR});
}

const std::vector<Case>& refused_when_opened() {
  static const std::vector<Case> kCases{
      {"no-symbol", "it lacks the symbol pliant_plugin_entry_v1"},
      {"other-major", "it is built for plugin ABI 7, this host offers 1"},
      {"too-new", "it needs a host with ABI 1.99 or later, this host offers 1.1; update pliant"},
      {"undefined-symbol", "cannot load it: "},
      {"undefined-symbol", "nobody_defines_this"},
      {"null-record", "its entry returned no record"},
      {"short-record", "its record is too short: 24 bytes"},
      {"null-vtable", "its vtable is NULL"},
      {"short-vtable", "its vtable is too short: 8 bytes"},
      {"null-slot", "slot 'plan' of its vtable is NULL"},
      {"wrong-kind", "its kind is pliant.lr_rule/0, but [elasticity] needs pliant.elasticity_policy/0"},
      {"other-revision", "it is built for pliant.elasticity_policy/7, this host offers pliant.elasticity_policy/0"},
      {"null-name", "kind, name, version or summary of its record is NULL"},
      {"another-name", "its file name says 'another-name', but its record says 'somebody-else'"},
      {"no-create", "create or destroy of its record is NULL"},
      {"only-save", "it has only one of save and load; it needs both or none"},
      {"null-options", "it declares 2 options, but its table is NULL"},
      {"zero-stride", "the rows of its option table are 0 bytes apart"},
      {"null-key", "row 2 of its option table has no valid key"},
      {"bad-key", "row 2 of its option table has no valid key"},
      {"duplicate-key", "option 'first' of its table: the key is not unique"},
      {"null-doc", "option 'second' of its table: its doc is missing"},
      {"null-unit", "option 'second' of its table: its unit is NULL"},
      {"default-out-of-range", "option 'second' of its table: its default 50 is outside its range"},
      {"empty-range", "option 'second' of its table: its range is empty"},
      {"unknown-type", "option 'second' of its table: type 99 is unknown"},
      {"default-of-another-type", "its default has another type"},
      {"default-points-nowhere", "its default is NULL"},
      {"null-choices", "its choices are NULL"},
      {"short-option", "row 2 of its option table claims 16 bytes"},
      {"required-with-default", "it is required but has a default"},
      {"row-file-that-is-no-string", "option 'second' of its table: it names a file of rows but is no free string"},
      {"ids-without-offsets", "its option table names a file for the ids of rows but none for their offsets"},
  };
  return kCases;
}

}  // namespace

TEST_CASE("the plugin that the broken ones are made from works") {
  const ScratchFolder folder;
  const Outcome outcome = plan_with(folder, "good");
  CHECK_MESSAGE(outcome.exit_code == 0, outcome.err);
}

TEST_CASE("a plugin that breaks the ABI is refused with its file, the reason and exit code 3") {
  const ScratchFolder folder;
  for (const Case& refused : refused_when_opened()) {
    CAPTURE(refused.name);
    const Outcome outcome = plan_with(folder, refused.name);
    CAPTURE(outcome.err);
    CHECK(outcome.exit_code == 3);
    CHECK(outcome.out.empty());
    CHECK(outcome.err.find("pliant.toml:3:7: error: plugin ") == 0);
    CHECK(outcome.err.find("elasticity-" + refused.name + ".pliant.so is refused: ") != std::string::npos);
    CHECK(outcome.err.find(refused.reason) != std::string::npos);
  }
}

TEST_CASE("a plugin that throws in create is named with its own words, guarded or not") {
  const ScratchFolder folder;
  for (const std::string name : {"throws", "throws-across"}) {
    const Outcome outcome = plan_with(folder, name);
    CAPTURE(outcome.err);
    CHECK(outcome.exit_code == 3);
    CHECK(outcome.err.find("elasticity '" + name + "': ") != std::string::npos);
    CHECK(outcome.err.find("the moon is in the wrong phase") != std::string::npos);
  }
}

TEST_CASE("a plugin that reports success without an instance is refused") {
  const ScratchFolder folder;
  const Outcome outcome = plan_with(folder, "create-makes-nothing");
  CHECK(outcome.exit_code == 3);
  CHECK(outcome.err.find("create returned success but no instance") != std::string::npos);
}

TEST_CASE("a status that the ABI does not have is reported as one") {
  const ScratchFolder folder;
  const Outcome outcome = plan_with(folder, "create-silent");
  CHECK(outcome.exit_code == 3);
  CHECK(outcome.err.find("failed with status 77 and gave no message (status 77 is not defined by the ABI)") !=
        std::string::npos);
}

TEST_CASE("plugin list shows the broken ones as refused and the whole one as it is") {
  const ScratchFolder folder;
  const Outcome outcome = run_pliant(folder, {"plugin", "list", "--json", "--plugin-dir", NEGATIVE_PLUGIN_DIR});
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.out.find("\"name\":\"good\"") != std::string::npos);
  CHECK(outcome.out.find("\"status\":\"refused\"") != std::string::npos);
  CHECK(outcome.err.find("is refused: its vtable is NULL") != std::string::npos);
}
