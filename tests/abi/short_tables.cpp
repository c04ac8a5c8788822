// A plugin of any kind whose tables end where the environment says, with nothing readable behind them. Its slots do
// nothing.
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "pliant/abi/plugin.h"
#include "pliant/sdk/kinds.hpp"
#include "short_tables.hpp"

namespace {

using namespace pliant::test;

int32_t nothing(void*) {
  return PLIANT_UNIMPLEMENTED;
}

std::string setting(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

/// A table of `bytes`, or of as many as the environment says for `id`. Lives as long as the process.
const void* table_of(std::string_view id, size_t bytes) {
  static std::vector<std::unique_ptr<AtPageEnd>> kept;
  const bool is_meant = setting(kShortTable) == id;
  if (is_meant) bytes = std::stoul(setting(kShortBytes));
  std::vector<std::byte> made(bytes);
  const auto size = static_cast<uint32_t>(bytes);
  std::memcpy(made.data(), &size, sizeof(size));
  const auto slot = reinterpret_cast<const void*>(&nothing);
  for (size_t at = 8; at + 8 <= bytes; at += 8) {
    if (!is_meant || std::to_string(at) != setting(kShortNull)) std::memcpy(made.data() + at, &slot, sizeof(slot));
  }
  kept.push_back(std::make_unique<AtPageEnd>(made.data(), bytes));
  return kept.back()->get();
}

const pliant::sdk::Kind& kind() {
  return *pliant::sdk::kind_of(setting(kShortSection));
}

int32_t create(const pliant_host*, const pliant_option_values*, void** self, pliant_error*) {
  static int object = 0;
  *self = &object;
  return PLIANT_OK;
}

const void* extension(void*, const char* id) {
  const pliant::sdk::Extension* const known = pliant::sdk::extension_of(kind(), id);
  return known == nullptr ? nullptr : table_of(id, known->table_size);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const pliant_plugin* pliant_plugin_entry_v1() {
  static pliant_plugin record{};
  record.struct_size = sizeof(record);
  record.option_stride = sizeof(pliant_option);
  record.kind = kind().id.data();
  record.name = "short";
  record.version = "0.0.1";
  record.summary = "Tables that end early";
  record.create = &create;
  record.destroy = [](void*) {};
  record.vtable = table_of(kind().id, kind().table_size);
  record.extension = &extension;
  return &record;
}
