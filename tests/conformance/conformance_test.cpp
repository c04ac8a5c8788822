// What every plugin owes to every host. Runs over the one file that PLIANT_CONFORMANCE_PLUGIN names.
#include <doctest/doctest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <regex>
#include <set>

#include "abi/elf_reader.hpp"
#include "conformance/exercise.hpp"
#include "conformance/opened_plugin.hpp"
#include "plugin/plugin.hpp"

namespace {

namespace fs = std::filesystem;
using namespace pliant::test;  // NOLINT(google-build-using-namespace)

fs::path plugin_file() {
  const char* file = std::getenv("PLIANT_CONFORMANCE_PLUGIN");
  REQUIRE_MESSAGE(file != nullptr, "PLIANT_CONFORMANCE_PLUGIN must name a plugin file");
  return file;
}

std::string section_of(const fs::path& file) {
  const std::string name = file.filename().string();
  return name.substr(0, name.find('-'));
}

bool is_mapped(const fs::path& file) {
  std::ifstream maps("/proc/self/maps");
  const std::string all{std::istreambuf_iterator<char>(maps), {}};
  return all.find(fs::canonical(file).string()) != std::string::npos;
}

TEST_CASE("our own host opens it, and its file name says what it is") {
  const fs::path file = plugin_file();
  const pliant::plugin::Kind* kind = pliant::plugin::kind_of(section_of(file));
  REQUIRE(kind != nullptr);
  const auto opened = pliant::plugin::Plugin::open(file, *kind);
  REQUIRE_MESSAGE(opened.has_value(), (opened ? "" : opened.error().message()));
  CHECK((*opened)->record().kind == kind->id);
  CHECK(file.filename() == section_of(file) + "-" + (*opened)->record().name + ".pliant.so");
}

TEST_CASE("it exports exactly one symbol") {
  CHECK(ElfReader(plugin_file()).exports() == std::vector<std::string>{PLIANT_PLUGIN_ENTRY_SYMBOL});
}

TEST_CASE("its record is complete") {
  const OpenedPlugin plugin(plugin_file());
  const pliant_plugin& record = plugin.record();
  CHECK(record.struct_size >= sizeof(pliant_plugin));
  CHECK(record.min_host_minor <= PLIANT_ABI_MINOR);
  CHECK(std::regex_match(record.name, std::regex("[a-z0-9][a-z0-9._-]*")));
  CHECK(std::regex_match(record.version, std::regex("[0-9]+\\.[0-9]+\\.[0-9]+([-+].*)?")));
  CHECK(std::regex_match(record.summary, std::regex(".+")));
  CHECK((record.create != nullptr));
  CHECK((record.destroy != nullptr));
  CHECK_MESSAGE((record.save == nullptr) == (record.load == nullptr), "save and load come together");
  REQUIRE(record.vtable != nullptr);
  const auto bytes = *static_cast<const uint32_t*>(record.vtable);
  CHECK(bytes >= pliant::plugin::kind_of(section_of(plugin_file()))->vtable_size);
  for (uint32_t at = 8; at + sizeof(void*) <= bytes; at += sizeof(void*)) {
    CAPTURE(at);
    const void* slot = nullptr;
    std::memcpy(&slot, static_cast<const char*>(record.vtable) + at, sizeof(slot));
    CHECK(slot != nullptr);
  }
}

TEST_CASE("every option has a name, a sentence that explains it and a default inside its range") {
  const OpenedPlugin plugin(plugin_file());
  std::set<std::string> keys;
  for (uint32_t i = 0; i < plugin.record().option_count; ++i) {
    const pliant_option& option = plugin.option(i);
    REQUIRE(option.key != nullptr);
    CAPTURE(std::string(option.key));
    CHECK(std::regex_match(option.key, std::regex("[a-z][a-z0-9_]*")));
    CHECK(keys.insert(option.key).second);
    REQUIRE(option.doc != nullptr);
    CHECK(std::regex_match(option.doc, std::regex(".+[.]")));
    CHECK(option.unit != nullptr);
    CHECK(option.type >= PLIANT_BOOL);
    CHECK(option.type <= PLIANT_STRING_LIST);
    const bool bounded_below = (option.flags & PLIANT_OPTION_HAS_MIN) != 0;
    const bool bounded_above = (option.flags & PLIANT_OPTION_HAS_MAX) != 0;
    if (bounded_below && bounded_above) CHECK(option.int_min <= option.int_max);
    if (option.default_value == nullptr) continue;
    const pliant_value& value = *option.default_value;
    CHECK(value.type == option.type);
    if (option.type == PLIANT_INT) {
      if (bounded_below) CHECK(value.integer >= option.int_min);
      if (bounded_above) CHECK(value.integer <= option.int_max);
    }
    if (option.type == PLIANT_FLOAT) {
      if (bounded_below) CHECK(value.real >= option.float_min);
      if (bounded_above) CHECK(value.real <= option.float_max);
    }
    if (option.type == PLIANT_STRING && option.choice_count > 0) {
      const std::string text(value.text.data, value.text.size);
      CHECK(std::count(option.choices, option.choices + option.choice_count, text) == 1);
    }
  }
}

TEST_CASE("its defaults make a working instance") {
  const OpenedPlugin plugin(plugin_file());
  const OptionRow options(plugin);
  const OwnInstance instance(plugin, options);
  REQUIRE_MESSAGE(instance.status() == PLIANT_OK, instance.message());
  CHECK_FALSE(exercise(instance).empty());
}

TEST_CASE("at the limits of each option it makes an instance or says why not") {
  const OpenedPlugin plugin(plugin_file());
  for (uint32_t i = 0; i < plugin.record().option_count; ++i) {
    const pliant_option& option = plugin.option(i);
    CAPTURE(std::string(option.key));
    for (const uint32_t side : {uint32_t{PLIANT_OPTION_HAS_MIN}, uint32_t{PLIANT_OPTION_HAS_MAX}}) {
      if ((option.flags & side) == 0) continue;
      OptionRow options(plugin);
      const bool low = side == PLIANT_OPTION_HAS_MIN;
      if (option.type == PLIANT_INT || option.type == PLIANT_INT_LIST) {
        options.set_integer(i, low ? option.int_min : option.int_max);
      } else if (option.type == PLIANT_FLOAT) {
        options.set_real(i, low ? option.float_min : option.float_max);
      } else {
        continue;
      }
      const OwnInstance instance(plugin, options);
      if (instance.status() == PLIANT_OK) {
        CHECK(instance.self() != nullptr);
        continue;
      }
      CAPTURE(instance.message());
      CHECK(instance.self() == nullptr);
      CHECK_FALSE(instance.message().empty());
      CHECK_MESSAGE(instance.status() != PLIANT_INTERNAL, "an allowed value is no bug of the plugin");
    }
  }
}

TEST_CASE("a thousand instances come and go") {
  const OpenedPlugin plugin(plugin_file());
  const OptionRow options(plugin);
  for (int i = 0; i < 1000; ++i) {
    const OwnInstance instance(plugin, options);
    REQUIRE_MESSAGE(instance.status() == PLIANT_OK, instance.message());
  }
}

TEST_CASE("two instances do not know of each other") {
  const OpenedPlugin plugin(plugin_file());
  const OptionRow options(plugin);
  std::string alone;
  {
    const OwnInstance only(plugin, options);
    alone = exercise(only);
  }
  const OwnInstance first(plugin, options);
  auto second = std::make_unique<OwnInstance>(plugin, options);
  CHECK(exercise(first) == alone);
  CHECK(exercise(*second) == alone);
  second.reset();
  const std::string again = exercise(first);  // what has state goes on from there
  if (plugin.record().save == nullptr) CHECK(again == alone);
  CHECK(exercise(OwnInstance(plugin, options)) == alone);
}

TEST_CASE("saved state comes back byte for byte, in portions of any size") {
  const OpenedPlugin plugin(plugin_file());
  if (plugin.record().save == nullptr) return;  // a plugin without state has nothing to save
  const OptionRow options(plugin);
  const OwnInstance used(plugin, options);
  exercise(used);
  pliant_error error = blank_error();
  SavedState saved;
  REQUIRE(saved.save_from(used, error) == PLIANT_OK);
  for (const size_t portion : {size_t{1}, size_t{7}, size_t{4096}}) {
    const OwnInstance fresh(plugin, options);
    saved.portion = portion;
    REQUIRE_MESSAGE(saved.load_into(fresh, error) == PLIANT_OK, error.message);
    SavedState again;
    REQUIRE(again.save_from(fresh, error) == PLIANT_OK);
    CHECK(again.bytes == saved.bytes);
  }
}

TEST_CASE("state that is cut short or has bytes left over is refused and changes nothing") {
  const OpenedPlugin plugin(plugin_file());
  if (plugin.record().save == nullptr) return;
  const OptionRow options(plugin);
  const OwnInstance instance(plugin, options);
  exercise(instance);
  pliant_error error = blank_error();
  SavedState before;
  REQUIRE(before.save_from(instance, error) == PLIANT_OK);
  std::vector<std::string> damaged{before.bytes + "x"};
  for (size_t size = 0; size < before.bytes.size(); size += 1 + before.bytes.size() / 64) {
    damaged.push_back(before.bytes.substr(0, size));
  }
  for (const std::string& bytes : damaged) {
    CAPTURE(bytes.size());
    SavedState state;
    state.bytes = bytes;
    error = blank_error();
    CHECK(state.load_into(instance, error) != PLIANT_OK);
    CHECK(std::string(error.message) != "");
    SavedState after;
    REQUIRE(after.save_from(instance, error) == PLIANT_OK);
    CHECK(after.bytes == before.bytes);
  }
}

TEST_CASE("an unknown extension is not there, and that is no error") {
  const OpenedPlugin plugin(plugin_file());
  if (plugin.record().extension == nullptr) return;
  const OptionRow options(plugin);
  const OwnInstance instance(plugin, options);
  REQUIRE(instance.status() == PLIANT_OK);
  for (const char* id : {"", "pliant.no-such-thing/0", "pliant.trace/0x"}) {
    CHECK(plugin.record().extension(instance.self(), id) == nullptr);
  }
}

TEST_CASE("closing it takes it out of memory") {
  const fs::path file = plugin_file();
  {
    const OpenedPlugin plugin(file);
    const OptionRow options(plugin);
    const OwnInstance instance(plugin, options);
    exercise(instance);
    CHECK(is_mapped(file));
  }
  CHECK_FALSE(is_mapped(file));
}

}  // namespace
