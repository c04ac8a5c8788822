// The option table of a plugin.
#include <algorithm>
#include <regex>
#include <set>

#include "testkit/checks/plugin_checks.hpp"
#include "testkit/plugin.hpp"

namespace pliant::testkit {

namespace {

void sound_default(const pliant_option& option, const std::string& name) {
  const pliant_value& value = *option.default_value;
  expect(value.type == option.type, name + ": its default has another type");
  const bool below = (option.flags & PLIANT_OPTION_HAS_MIN) != 0;
  const bool above = (option.flags & PLIANT_OPTION_HAS_MAX) != 0;
  const std::string outside = name + ": its default is outside its range";
  if (option.type == PLIANT_INT) {
    expect(!below || value.integer >= option.int_min, outside);
    expect(!above || value.integer <= option.int_max, outside);
  }
  if (option.type == PLIANT_FLOAT) {
    expect(!below || value.real >= option.float_min, outside);
    expect(!above || value.real <= option.float_max, outside);
  }
  if (option.type == PLIANT_STRING && option.choice_count > 0) {
    const std::string text(value.text.data, value.text.size);
    expect(std::count(option.choices, option.choices + option.choice_count, text) == 1,
           name + ": its default '" + text + "' is not among its choices");
  }
}

}  // namespace

void sound_options(const Subject& subject) {
  const OpenedPlugin plugin(subject.file);
  std::set<std::string> keys;
  for (uint32_t i = 0; i < plugin.record().option_count; ++i) {
    const pliant_option& option = plugin.option(i);
    expect(option.key != nullptr, "option " + std::to_string(i) + " has no key");
    const std::string name = std::string("option ") + option.key;
    expect(std::regex_match(option.key, std::regex("[a-z][a-z0-9_]*")), name + ": a key is [a-z][a-z0-9_]*");
    expect(keys.insert(option.key).second, name + " is not unique");
    expect(option.doc != nullptr && std::regex_match(option.doc, std::regex(".+[.]")),
           name + ": its doc must be a sentence with a full stop");
    expect(option.unit != nullptr, name + ": its unit is NULL; \"\" says that it has none");
    expect(option.type >= PLIANT_BOOL && option.type <= PLIANT_STRING_LIST, name + " has an unknown type");
    if ((option.flags & PLIANT_OPTION_HAS_MIN) != 0 && (option.flags & PLIANT_OPTION_HAS_MAX) != 0) {
      expect(option.int_min <= option.int_max, name + ": its range is empty");
    }
    if (option.default_value != nullptr) sound_default(option, name);
  }
}

void option_limits(const Subject& subject) {
  const OpenedPlugin plugin(subject.file);
  for (uint32_t i = 0; i < plugin.record().option_count; ++i) {
    const pliant_option& option = plugin.option(i);
    for (const uint32_t side : {uint32_t{PLIANT_OPTION_HAS_MIN}, uint32_t{PLIANT_OPTION_HAS_MAX}}) {
      if ((option.flags & side) == 0) continue;
      OptionRow options(plugin, subject.settings);
      const bool low = side == PLIANT_OPTION_HAS_MIN;
      if (option.type == PLIANT_INT || option.type == PLIANT_INT_LIST) {
        options.set_integer(i, low ? option.int_min : option.int_max);
      } else if (option.type == PLIANT_FLOAT) {
        options.set_real(i, low ? option.float_min : option.float_max);
      } else {
        continue;
      }
      const OwnInstance instance(plugin, options);
      const std::string name = std::string("option ") + option.key + " at its " + (low ? "least" : "largest");
      if (instance.status() == PLIANT_OK) {
        expect(instance.self() != nullptr, name + ": create returned OK and created nothing");
        continue;
      }
      expect(instance.self() == nullptr, name + ": create failed and left an instance");
      expect(!instance.message().empty(), name + ": create failed without a message");
      expect(instance.status() != PLIANT_INTERNAL,
             name + ": an allowed value is an internal error: " + instance.message());
    }
  }
}

}  // namespace pliant::testkit
