// Tables of slots that are shorter than this host's, of every kind and every extension: what began with the table is
// asked for by name, what came later is not there.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <span>
#include <string>

#include "plugin/option_values.hpp"
#include "plugin/plugin.hpp"
#include "short_tables.hpp"

using namespace pliant;

namespace {

/// Opens the plugin with one table that is cut; its own table, or that of the extension, as the host sees it.
Result<std::vector<std::byte>> opened(const sdk::Kind& kind, std::string_view id, size_t table_size, size_t bytes,
                                      size_t null_at = 0) {
  ::setenv(test::kShortSection, std::string(kind.section).c_str(), 1);
  ::setenv(test::kShortTable, std::string(id).c_str(), 1);
  ::setenv(test::kShortBytes, std::to_string(bytes).c_str(), 1);
  ::setenv(test::kShortNull, std::to_string(null_at).c_str(), 1);
  auto plugin = plugin::Plugin::open(PLIANT_SHORT_TABLES, kind);
  if (!plugin) return failed(std::move(plugin));
  const auto copy = [&](const void* table) {
    const auto* const first = static_cast<const std::byte*>(table);
    return std::vector<std::byte>(first, first + table_size);
  };
  if (id == kind.id) return copy((*plugin)->table());
  auto instance = plugin::Instance::create(std::move(*plugin), plugin::OptionValues());
  if (!instance) return failed(std::move(instance));
  const Result<const std::byte*> table = instance->extension<std::byte>(id);
  if (!table) return tl::unexpected<Error>(table.error());
  if (*table == nullptr) return failed(Status::kNotFound, "it has no such extension");
  return copy(*table);
}

bool has_slot(const std::vector<std::byte>& table, size_t offset) {
  const void* slot = nullptr;
  std::memcpy(&slot, table.data() + offset, sizeof(slot));
  return slot != nullptr;
}

void hold_to_size(const sdk::Kind& kind, std::string_view id, size_t table_size, std::span<const sdk::Slot> slots) {
  CAPTURE(std::string(id));
  const size_t needed = slots.back().offset + sizeof(void*);
  for (size_t bytes = 4; bytes < needed; bytes += 4) {
    CAPTURE(bytes);
    const auto refused = opened(kind, id, table_size, bytes);
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().origin() == Origin::kPlugin);
    const std::string wanted = fmt::format("is too short: {} bytes, {} needs {}", bytes, id, needed);
    CHECK_MESSAGE(refused.error().message().find(wanted) != std::string::npos, refused.error().message());
  }
  for (const sdk::Slot& slot : slots) {
    const auto refused = opened(kind, id, table_size, table_size, slot.offset);
    REQUIRE_FALSE(refused.has_value());
    const std::string wanted = fmt::format("slot '{}' of its ", slot.name);
    CHECK_MESSAGE(refused.error().message().find(wanted) != std::string::npos, refused.error().message());
  }
  for (size_t bytes = needed; bytes <= table_size + 24; bytes += 4) {
    CAPTURE(bytes);
    const auto table = opened(kind, id, table_size, bytes);
    REQUIRE_MESSAGE(table.has_value(), table.error().message());
    for (size_t at = 8; at < table_size; at += 8) CHECK(has_slot(*table, at) == (at + 8 <= bytes));
  }
}

}  // namespace

TEST_CASE("a table that lacks a slot which it began with is refused by name, and later slots are not there") {
  for (const sdk::Kind& kind : sdk::kinds()) {
    hold_to_size(kind, kind.id, kind.table_size, kind.slots);
    for (const sdk::Extension& one : kind.extensions) hold_to_size(kind, one.id, one.table_size, one.slots);
  }
}

TEST_CASE("an extension of another kind is not asked for") {
  const auto none = opened(*sdk::kind_of("lr"), PLIANT_COLLECTIVES, sizeof(pliant_collectives), 8);
  REQUIRE_FALSE(none.has_value());
  CHECK(none.error().status() == Status::kNotFound);
}
