// One object of a plugin: made, saved, loaded, destroyed; and how a plugin's refusal becomes an Error.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "pliant/sdk/calls.hpp"
#include "pliant/sdk/failure.hpp"
#include "pliant/sdk/sized.hpp"
#include "plugin/plugin.hpp"
#include "plugin/record_check.hpp"

namespace pliant::plugin {

using sdk::fenced;

namespace {

int32_t append(void* context, const void* bytes, uint64_t size) {
  try {
    static_cast<std::string*>(context)->append(static_cast<const char*>(bytes), static_cast<size_t>(size));
    return PLIANT_OK;
  } catch (...) {
    return PLIANT_RESOURCE_EXHAUSTED;
  }
}

int32_t take(void* context, void* bytes, uint64_t size, uint64_t* got) {
  auto& left = *static_cast<std::string_view*>(context);
  *got = std::min<uint64_t>(size, left.size());
  if (*got > 0) std::memcpy(bytes, left.data(), static_cast<size_t>(*got));
  left.remove_prefix(static_cast<size_t>(*got));
  return PLIANT_OK;
}

/// The text up to its end, printable.
template <size_t kSize>
std::string text_of(const char (&given)[kSize]) {
  std::string text(given, std::find(given, given + kSize, '\0'));
  for (char& c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n') || byte == 0x7f) c = ' ';
  }
  return text;
}

}  // namespace

pliant_error fresh_error() {
  return sdk::blank_error();
}

Error to_error(const Plugin& plugin, int32_t status, const pliant_error& error) {
  const bool known = status > PLIANT_OK && status <= PLIANT_DEADLINE_EXCEEDED;
  std::string text = text_of(error.message);
  if (text.empty()) text = fmt::format("failed with status {} and gave no message", status);
  if (!known) text += fmt::format(" (status {} is not defined by the ABI)", status);
  const auto mapped = known ? static_cast<Status>(status) : Status::kInternal;
  const bool users = mapped == Status::kInvalidArgument || mapped == Status::kOutOfRange ||
                     mapped == Status::kFailedPrecondition || mapped == Status::kIncompatibleWorldSize;
  Error made(mapped, fmt::format("{} '{}': {}", plugin.kind().section, plugin.record().name, text),
             users ? Origin::kInput : Origin::kPlugin);
  return made.about(text_of(error.options)).about_rank(error.rank).about_device(error.device);
}

Result<Instance> Instance::create(std::shared_ptr<const Plugin> plugin, const OptionValues& values,
                                  const pliant_host* host) {
  Instance made;
  made.plugin_ = std::move(plugin);
  const Plugin& maker = *made.plugin_;
  if (host == nullptr) host = &maker.host();
  pliant_error error = fresh_error();
  void* self = nullptr;
  const int32_t status =
      fenced(error, "create", [&] { return maker.record().create(host, &values.view(), &self, &error); });
  if (status != PLIANT_OK) return tl::unexpected<Error>(to_error(maker, status, error));
  if (self == nullptr) {
    return failed(
        Status::kInternal,
        fmt::format("{} '{}': create returned success but no instance", maker.kind().section, maker.record().name),
        Origin::kPlugin);
  }
  made.self_ = self;
  return made;
}

struct Instance::Extensions {
  std::mutex mutex;
  std::map<std::string, std::vector<std::byte>, std::less<>> tables;
};

Instance::Instance() : extensions_(std::make_unique<Extensions>()) {}

Result<const void*> Instance::extension_as(std::string_view id) const {
  const pliant_plugin& record = plugin_->record();
  const sdk::Extension* const known = sdk::extension_of(plugin_->kind(), id);
  if (record.extension == nullptr || known == nullptr) return nullptr;
  const std::lock_guard lock(extensions_->mutex);
  const auto asked = extensions_->tables.find(id);
  if (asked != extensions_->tables.end()) return asked->second.data();
  const void* given = nullptr;
  pliant_error error = fresh_error();
  const int32_t status = fenced(error, "extension", [&] {
    given = record.extension(self_, std::string(id).c_str());
    return int32_t{PLIANT_OK};
  });
  if (status != PLIANT_OK) return tl::unexpected<Error>(to_error(*plugin_, status, error));
  if (given == nullptr) return nullptr;
  const std::string lacks = sdk::missing_slots(given, fmt::format("table of {}", id), id, known->slots);
  if (!lacks.empty()) {
    return failed(Status::kInternal,
                  fmt::format("{} '{}' violates its contract: {}", plugin_->kind().section, record.name, lacks),
                  Origin::kPlugin);
  }
  std::vector<std::byte> table = sdk::widened(given, static_cast<uint32_t>(known->table_size));
  return extensions_->tables.emplace(id, std::move(table)).first->second.data();
}

Instance::~Instance() {
  if (self_ == nullptr) return;
  try {
    plugin_->record().destroy(self_);
  } catch (...) {  // nothing is left to do for an object that cannot be destroyed
  }
}

Instance::Instance(Instance&& other) noexcept
    : plugin_(std::move(other.plugin_)),
      extensions_(std::move(other.extensions_)),
      self_(std::exchange(other.self_, nullptr)) {}

Instance& Instance::operator=(Instance&& other) noexcept {
  std::swap(plugin_, other.plugin_);
  std::swap(extensions_, other.extensions_);
  std::swap(self_, other.self_);
  return *this;
}

Result<std::string> Instance::save() const {
  const pliant_plugin& record = plugin_->record();
  std::string bytes;
  if (record.save == nullptr) return bytes;
  const pliant_writer writer{sizeof(pliant_writer), 0, &bytes, &append};
  pliant_error error = fresh_error();
  const int32_t status = fenced(error, "save", [&] { return record.save(self_, &writer, &error); });
  if (status != PLIANT_OK) return tl::unexpected<Error>(to_error(*plugin_, status, error));
  return bytes;
}

Result<> Instance::load(std::string_view saved) {
  const pliant_plugin& record = plugin_->record();
  if (record.load == nullptr) {
    if (saved.empty()) return {};
    return failed(Status::kDataLoss, fmt::format("{} '{}' has no state, but {} bytes of it were saved",
                                                 plugin_->kind().section, record.name, saved.size()));
  }
  std::string_view left = saved;
  const pliant_reader reader{sizeof(pliant_reader), 0, &left, &take};
  pliant_error error = fresh_error();
  const int32_t status = fenced(error, "load", [&] { return record.load(self_, &reader, &error); });
  if (status != PLIANT_OK) return tl::unexpected<Error>(to_error(*plugin_, status, error));
  if (!left.empty()) {
    return failed(Status::kDataLoss,
                  fmt::format("{} '{}' read only {} of the {} bytes of its saved state; either another version of the "
                              "plugin saved it, or load does not read all that save writes",
                              plugin_->kind().section, record.name, saved.size() - left.size(), saved.size()),
                  Origin::kPlugin);
  }
  return {};
}

}  // namespace pliant::plugin
