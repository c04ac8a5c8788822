// What a host may rely on in an error.
#include "testkit/instance.hpp"

#include <sstream>

namespace pliant::testkit {

namespace {

bool has_option(const OpenedPlugin& plugin, const std::string& key) {
  for (uint32_t i = 0; i < plugin.record().option_count; ++i) {
    const char* const there = plugin.option(i).key;
    if (there != nullptr && key == there) return true;
  }
  return false;
}

template <size_t kSize>
bool has_end(const char (&text)[kSize]) {
  return std::memchr(text, '\0', kSize) != nullptr;
}

}  // namespace

std::string error_fault(const OpenedPlugin& plugin, int32_t status, const pliant_error& error, size_t known) {
  const auto* const bytes = reinterpret_cast<const unsigned char*>(&error);
  if (error.struct_size != known ||
      !std::all_of(bytes + known, bytes + sizeof(error), [](unsigned char byte) { return byte == kGuard; })) {
    return "it wrote past the struct_size of an older host's error";
  }
  if (!has_end(error.message) || !has_end(error.options)) return "a text of its error is not terminated";
  if (status == PLIANT_OK) return error.message[0] == '\0' ? "" : "it returned PLIANT_OK and wrote an error";
  if (error.message[0] == '\0') return "it returned status " + std::to_string(status) + " without a message";
  std::istringstream keys(error.options);
  for (std::string key; keys >> key;) {
    if (!has_option(plugin, key)) return "its error names the unknown option '" + key + "'";
  }
  return {};
}

}  // namespace pliant::testkit
