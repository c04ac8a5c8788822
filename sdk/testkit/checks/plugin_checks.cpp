// What every plugin of any kind owes to every host.
#include "testkit/checks/plugin_checks.hpp"

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <regex>

#include "pliant/sdk/kinds.hpp"
#include "testkit/elf_reader.hpp"
#include "testkit/exercise.hpp"
#include "testkit/plugin.hpp"

namespace pliant::testkit {

namespace {

void exports(const Subject& subject) {
  const std::vector<std::string> found = ElfReader(subject.file).exports();
  std::string names;
  for (const std::string& name : found) names += (names.empty() ? "" : ", ") + name;
  expect(found == std::vector<std::string>{PLIANT_PLUGIN_ENTRY_SYMBOL},
         "it exports " + std::to_string(found.size()) + " symbols: " + names.substr(0, 300) +
             "; only " PLIANT_PLUGIN_ENTRY_SYMBOL " may be seen (link with the SDK's plugin.map)");
}

/// Of an instance, because its class offers them.
void extension_slots(const OwnInstance& instance, const sdk::Kind& kind) {
  const auto find = instance.record().extension;
  if (find == nullptr) return;
  for (const sdk::Extension& extension : kind.extensions) {
    const std::string id(extension.id);
    const void* const table = find(instance.self(), id.c_str());
    if (table == nullptr) continue;
    const std::string lacks = sdk::missing_slots(table, "table of " + id, id, extension.slots);
    expect(lacks.empty(), lacks);
  }
}

void complete(const Subject& subject) {
  const OpenedPlugin plugin(subject.file);
  const pliant_plugin& record = plugin.record();
  constexpr size_t kLeast = offsetof(pliant_plugin, extension) + sizeof(pliant_plugin::extension);
  expect(record.struct_size >= kLeast,
         "the record has " + std::to_string(record.struct_size) + " bytes, not " + std::to_string(kLeast));
  expect(record.min_host_minor <= PLIANT_ABI_MINOR,
         "it requires a host of ABI minor " + std::to_string(record.min_host_minor));
  const auto text = [](const char* given, const char* what, const char* form) {
    expect(given != nullptr && std::regex_match(given, std::regex(form)),
           std::string(what) + " is " + (given == nullptr ? "NULL" : "'" + std::string(given) + "'") + ", not " + form);
  };
  text(record.kind, "its kind", "pliant\\.[a-z_]+/[0-9]+");
  text(record.name, "its name", "[a-z0-9][a-z0-9._-]*");
  text(record.version, "its version", "[0-9]+\\.[0-9]+\\.[0-9]+([-+].*)?");
  text(record.summary, "its summary", ".+");
  expect(record.create != nullptr && record.destroy != nullptr, "create or destroy is NULL");
  expect((record.save == nullptr) == (record.load == nullptr), "only one of save and load is NULL");
  for (const sdk::Kind& kind : sdk::kinds()) {
    if (kind.id != record.kind) continue;
    const std::string lacks = sdk::missing_slots(record.vtable, "table of slots", kind.id, kind.slots);
    expect(lacks.empty(), lacks);
  }
}

void defaults(const Subject& subject) {
  const OpenedPlugin plugin(subject.file);
  const OptionRow options(plugin, subject.settings);
  const OwnInstance instance(plugin, options);
  expect(instance.status() == PLIANT_OK, "create returned " + instance.text());
  expect(instance.self() != nullptr, "create returned OK and created nothing");
  expect(!exercise(instance).empty(), "the instance returns nothing from any call");
}

void thousand(const Subject& subject) {
  const OpenedPlugin plugin(subject.file);
  const OptionRow options(plugin, subject.settings);
  for (int i = 1; i <= 1000; ++i) {
    const OwnInstance instance(plugin, options);
    expect(instance.status() == PLIANT_OK, "create number " + std::to_string(i) + " returned " + instance.text());
  }
}

void independent(const Subject& subject) {
  const OpenedPlugin plugin(subject.file);
  const OptionRow options(plugin, subject.settings);
  std::string alone;
  {
    const OwnInstance only(plugin, options);
    alone = exercise(only);
  }
  const OwnInstance first(plugin, options);
  auto second = std::make_unique<OwnInstance>(plugin, options);
  expect(exercise(first) == alone, "the first instance gives other results beside a second one than alone");
  expect(exercise(*second) == alone, "an instance gives other results after another one was used");
  second.reset();
  const std::string again = exercise(first);  // what has state goes on from there
  expect(plugin.record().save != nullptr || again == alone,
         "an instance without state gives other results after another one was destroyed");
  expect(exercise(OwnInstance(plugin, options)) == alone, "a later instance gives other results than the first one");
}

void extensions(const Subject& subject) {
  const OpenedPlugin plugin(subject.file);
  if (plugin.record().extension == nullptr) return;
  const OptionRow options(plugin, subject.settings);
  const OwnInstance instance(plugin, options);
  expect(instance.status() == PLIANT_OK, "create returned " + instance.text());
  for (const char* id : {"", "pliant.no-such-thing/0", "pliant.other/0x"}) {
    expect(plugin.record().extension(instance.self(), id) == nullptr,
           std::string("it offers the extension '") + id + "', which does not exist");
  }
  for (const sdk::Kind& kind : sdk::kinds()) {
    if (kind.id == plugin.record().kind) extension_slots(instance, kind);
  }
}

bool is_mapped(const std::string& file) {
  std::ifstream maps("/proc/self/maps");
  const std::string all{std::istreambuf_iterator<char>(maps), {}};
  return all.find(std::filesystem::canonical(file).string()) != std::string::npos;
}

void unmapped(const Subject& subject) {
  {
    const OpenedPlugin plugin(subject.file);
    const OptionRow options(plugin, subject.settings);
    const OwnInstance instance(plugin, options);
    exercise(instance);
  }
  expect(!is_mapped(subject.file),
         "it stays in memory after dlclose: a thread of it still runs, or it is linked as never to be unloaded "
         "(-z nodelete, or STB_GNU_UNIQUE symbols: -fno-gnu-unique)");
}

}  // namespace

std::vector<Check> plugin_checks() {
  return {
      {"plugin.exports", "it exports exactly one symbol", exports},
      {"plugin.record", "its record is complete", complete},
      {"plugin.options", "every option has a name, a sentence that explains it and a default inside its range",
       sound_options},
      {"plugin.defaults", "its defaults create a working instance", defaults},
      {"plugin.limits", "at the limits of each option it creates an instance or explains why not", option_limits},
      {"plugin.thousand", "it creates and destroys a thousand instances", thousand, 60},
      {"plugin.independent", "two instances are independent", independent},
      {"plugin.state", "loaded state is saved again byte for byte, in portions of any size", state_returns},
      {"plugin.damaged_state", "state that is cut short or has bytes left over is refused and changes nothing",
       damaged_state},
      {"plugin.extension", "its extensions have all required slots; asking for an unknown extension is not an error",
       extensions},
      {"plugin.unmapped", "dlclose unloads it", unmapped},
  };
}

}  // namespace pliant::testkit
