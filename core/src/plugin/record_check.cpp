// The plugin record and its vtable, field by field.
#include "plugin/record_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "pliant/sdk/sized.hpp"

namespace pliant::plugin {

namespace {

constexpr uint32_t kMostOptions = 4096;
constexpr uint64_t kLargestStride = 1U << 16;

std::string_view before_revision(std::string_view kind) {
  return kind.substr(0, kind.find('/'));
}

std::string name_objection(const pliant_plugin& record, const Kind& kind) {
  if (record.kind == nullptr || record.name == nullptr || record.version == nullptr || record.summary == nullptr) {
    return "kind, name, version or summary of its record is NULL";
  }
  const std::string_view declared = record.kind;
  if (declared != kind.id) {
    if (before_revision(declared) == before_revision(kind.id)) {
      return fmt::format("it is built for {}, this host offers {}; rebuild it against this host's SDK", declared,
                         kind.id);
    }
    return fmt::format("its kind is {}, but [{}] needs {}", declared, kind.section, kind.id);
  }
  if (!valid_plugin_name(record.name)) {
    return fmt::format("its name '{}' has characters other than a-z, 0-9, '.', '_' and '-'", record.name);
  }
  return {};
}

std::string copy_options(const pliant_plugin& record, std::vector<pliant_option>& options) {
  if (record.option_count == 0) return {};
  if (record.options == nullptr)
    return fmt::format("it declares {} options, but its table is NULL", record.option_count);
  if (record.option_count > kMostOptions) return fmt::format("it declares {} options", record.option_count);
  if (record.option_stride < sizeof(uint32_t) || record.option_stride > kLargestStride) {
    return fmt::format("the rows of its option table are {} bytes apart", record.option_stride);
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(record.options);
  for (uint32_t i = 0; i < record.option_count; ++i) {
    const unsigned char* row = bytes + i * record.option_stride;
    uint32_t size = 0;
    std::memcpy(&size, row, sizeof(size));
    const size_t needed = sdk::bytes_to(&pliant_option::list_max);
    if (size < needed || size > record.option_stride) {
      return fmt::format("row {} of its option table claims {} bytes; the rows are {} apart and need {}", i + 1, size,
                         record.option_stride, needed);
    }
    options.push_back(sdk::widened<pliant_option>(row));
  }
  return {};
}

}  // namespace

bool valid_plugin_name(std::string_view name) {
  const auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  if (name.empty() || name.size() > 64 || !plain(name.front())) return false;
  return std::all_of(name.begin(), name.end(), [&](char c) { return plain(c) || c == '.' || c == '_' || c == '-'; });
}

std::string record_objection(const pliant_plugin* record, const Kind& kind, std::vector<pliant_option>& options) {
  if (record == nullptr) return "its entry returned no record: it could not build its option table";
  if (const size_t needed = sdk::bytes_to(&pliant_plugin::extension); record->struct_size < needed) {
    return fmt::format("its record is too short: {} bytes, this host needs {}", record->struct_size, needed);
  }
  if (record->min_host_minor > PLIANT_ABI_MINOR) {
    return fmt::format("it needs a host with ABI {}.{} or later, this host offers {}.{}; update pliant",
                       PLIANT_ABI_MAJOR, record->min_host_minor, PLIANT_ABI_MAJOR, PLIANT_ABI_MINOR);
  }
  if (std::string why = name_objection(*record, kind); !why.empty()) return why;
  if (record->create == nullptr || record->destroy == nullptr) return "create or destroy of its record is NULL";
  if ((record->save == nullptr) != (record->load == nullptr))
    return "it has only one of save and load; it needs both or none";
  if (std::string why = sdk::missing_slots(record->vtable, "vtable", kind.id, kind.slots); !why.empty()) return why;
  if (std::string why = copy_options(*record, options); !why.empty()) return why;
  return table_objection(options);
}

}  // namespace pliant::plugin
