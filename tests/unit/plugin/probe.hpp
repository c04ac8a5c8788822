// Opens the plugin `probe` of these tests and makes instances of it.
#pragma once

#include <doctest/doctest.h>

#include <memory>
#include <string>

#include "pliant/abi/lr_rule.h"
#include "plugin/option_values.hpp"
#include "plugin/plugin.hpp"

namespace pliant::test {

inline std::shared_ptr<const plugin::Plugin> open_probe() {
  auto opened = plugin::Plugin::open(std::string(PLUGIN_TEST_DIR) + "/lr-probe.pliant.so", *plugin::kind_of("lr"));
  REQUIRE_MESSAGE(opened, opened.error().message());
  return std::move(*opened);
}

inline plugin::OptionValues probe_options(const plugin::Plugin& probe, bool loud, const std::string& note) {
  plugin::OptionValues values;
  values.state().reset(probe.options());
  values.state().set_integer(0, loud ? 1 : 0);
  values.state().set_text(1, note);
  return values;
}

inline Result<plugin::Instance> make_probe(const std::string& note = "", bool loud = false) {
  auto probe = open_probe();
  const plugin::OptionValues values = probe_options(*probe, loud, note);
  return plugin::Instance::create(std::move(probe), values);
}

}  // namespace pliant::test
