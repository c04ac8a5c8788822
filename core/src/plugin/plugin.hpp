// Plugin: an opened and checked plugin library. Instance: one object it made. Both keep the library loaded.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "pliant/abi/plugin.h"
#include "pliant/sdk/kinds.hpp"

namespace pliant::plugin {

using sdk::Kind;
using sdk::kind_of;
using sdk::kinds;

/// Checked values of an option table, owning what the views of the ABI point to.
class OptionValues {
 public:
  OptionValues();
  ~OptionValues();
  OptionValues(OptionValues&&) noexcept;
  OptionValues& operator=(OptionValues&&) noexcept;
  [[nodiscard]] const pliant_option_values& view() const;

  struct State;
  [[nodiscard]] State& state() { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

class Plugin {
 public:
  /// Trust check, load, ABI checks; in this order. Errors have Origin::kPlugin and name the file and the reason.
  static Result<std::shared_ptr<const Plugin>> open(const std::filesystem::path& file, const Kind& kind);
  ~Plugin();
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

  /// Fields that an older plugin does not know are zero.
  [[nodiscard]] const pliant_plugin& record() const;
  /// The table of its kind, as this host knows it: slots that an older plugin does not have are NULL.
  [[nodiscard]] const void* table() const;
  [[nodiscard]] const std::filesystem::path& file() const;
  [[nodiscard]] const Kind& kind() const;
  /// Row i of the option table, with fields that an older plugin does not know zeroed.
  [[nodiscard]] const std::vector<pliant_option>& options() const;
  /// The services that this host offers to instances; lives as long as the plugin.
  [[nodiscard]] const pliant_host& host() const;

  struct State;
  struct Library;

 private:
  explicit Plugin(std::unique_ptr<State> state);
  static Result<std::shared_ptr<const Plugin>> opened(const std::filesystem::path& file, const Kind& kind);
  std::unique_ptr<State> state_;
};

/// One instance. Movable; destroys the object, then lets the library go.
class Instance {
 public:
  /// `host`: the services it gets; nullptr = the plugin's own, which log. Must outlive the instance.
  static Result<Instance> create(std::shared_ptr<const Plugin> plugin, const OptionValues& values,
                                 const pliant_host* host = nullptr);
  ~Instance();
  Instance(Instance&& other) noexcept;
  Instance& operator=(Instance&& other) noexcept;

  [[nodiscard]] void* self() const { return self_; }
  [[nodiscard]] const Plugin& plugin() const { return *plugin_; }
  /// The slots of the kind. Those that every plugin has were checked at open, any other may be NULL.
  template <class Table>
  [[nodiscard]] const Table& table() const {
    return *static_cast<const Table*>(plugin_->table());
  }
  /// An optional power of its kind by its id, as this host knows its table: slots that an older plugin does not have
  /// are NULL, but for those that the extension began with. One that lacks such a slot is an error that names it.
  /// nullptr where the instance has no such power. Lives as long as the instance. Thread-safe.
  template <class Table>
  [[nodiscard]] Result<const Table*> extension(std::string_view id) const {
    const Result<const void*> table = extension_as(id);
    if (!table) return tl::unexpected<Error>(table.error());
    return static_cast<const Table*>(*table);
  }
  /// State as bytes; empty for a plugin without state.
  [[nodiscard]] Result<std::string> save() const;
  Result<> load(std::string_view saved);

 private:
  struct Extensions;

  Instance();
  [[nodiscard]] Result<const void*> extension_as(std::string_view id) const;

  std::shared_ptr<const Plugin> plugin_;
  std::unique_ptr<Extensions> extensions_;  // those that were asked for
  void* self_ = nullptr;
};

/// A zeroed error struct to hand to a plugin.
pliant_error fresh_error();
/// `sampler 'seqlen': <message>`, with the status; a plugin that set no message gets one. kInvalidArgument,
/// kOutOfRange, kFailedPrecondition and kIncompatibleWorldSize have Origin::kInput (the user's options), everything
/// else kPlugin.
Error to_error(const Plugin& plugin, int32_t status, const pliant_error& error);

}  // namespace pliant::plugin
