// What an opened plugin holds.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/log.hpp"
#include "plugin/plugin.hpp"

namespace pliant::plugin {

struct Plugin::State {
  State();
  ~State();
  std::unique_ptr<Library> library;  // first, so that it goes last
  std::unique_ptr<Log> log;          // what host.context points to
  pliant_host host{};
  std::filesystem::path file;
  Kind kind{};
  pliant_plugin record{};
  std::vector<std::byte> table;  // of Kind::table_size bytes
  std::vector<pliant_option> options;
};

}  // namespace pliant::plugin
