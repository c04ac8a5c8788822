// OpenedPlugin: a plugin file as a plain C host sees it, by dlopen and the ABI headers alone, so that the checks do not
// inherit a mistake of our own host.
#pragma once

#include <dlfcn.h>

#include <deque>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "pliant/abi/plugin.h"
#include "pliant/sdk/failure.hpp"
#include "pliant/sdk/sized.hpp"
#include "testkit/check.hpp"
#include "testkit/draws.hpp"

namespace pliant::testkit {

/// A library handle and its record.
class OpenedPlugin {
 public:
  explicit OpenedPlugin(const std::filesystem::path& file) : handle_(dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) throw std::runtime_error(dlerror());
    const auto entry = reinterpret_cast<pliant_plugin_entry>(dlsym(handle_, PLIANT_PLUGIN_ENTRY_SYMBOL));
    if (entry == nullptr) throw std::runtime_error(file.string() + " has no entry symbol");
    record_ = entry();
    if (record_ == nullptr) throw std::runtime_error(file.string() + " returned no record");
  }
  ~OpenedPlugin() { dlclose(handle_); }
  OpenedPlugin(const OpenedPlugin&) = delete;
  OpenedPlugin& operator=(const OpenedPlugin&) = delete;

  [[nodiscard]] const pliant_plugin& record() const { return *record_; }
  [[nodiscard]] pliant_option option(uint32_t i) const {
    const auto* rows = reinterpret_cast<const unsigned char*>(record_->options);
    return sdk::widened<pliant_option>(rows + i * record_->option_stride);
  }

 private:
  void* handle_;
  const pliant_plugin* record_ = nullptr;
};

/// A setting that the plugin has no option for; its text is for the user.
struct BadSetting : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// One value for each option of a plugin: what the user set, or the default, or something in range where the user would
/// have to choose.
class OptionRow {
 public:
  /// Throws BadSetting.
  explicit OptionRow(const OpenedPlugin& plugin, const Settings& settings = {}) {
    for (uint32_t i = 0; i < plugin.record().option_count; ++i) values_.push_back(start_value(plugin.option(i)));
    for (const auto& [key, text] : settings) set(plugin, key, text);
  }
  OptionRow(const OptionRow&) = delete;
  OptionRow& operator=(const OptionRow&) = delete;

  void set_integer(size_t i, int64_t value) {
    values_[i].is_set = 1;
    if (values_[i].type == PLIANT_INT_LIST) {
      values_[i].integers = integers_.emplace_back(std::vector<int64_t>{value}).data();
      values_[i].count = 1;
    } else {
      values_[i].integer = value;
    }
  }
  void set_real(size_t i, double value) {
    values_[i].is_set = 1;
    values_[i].real = value;
  }
  /// Gives about half of the options, those of `fixed` apart, values of their ranges. Texts without choices stay.
  void draw(const OpenedPlugin& plugin, const Settings& fixed, Draws& draws);
  /// `text` as the option's type; lists have commas between their elements.
  void set(const OpenedPlugin& plugin, const std::string& key, const std::string& text);
  [[nodiscard]] pliant_option_values view() const {
    return {sizeof(pliant_option_values), static_cast<uint32_t>(values_.size()), sizeof(pliant_value), values_.data()};
  }

 private:
  pliant_value start_value(const pliant_option& option) {
    pliant_value value{};
    if (option.default_value != nullptr) value = sdk::widened(*option.default_value);
    value.struct_size = sizeof(pliant_value);
    if (option.default_value != nullptr) return value;
    value.type = option.type;
    if ((option.flags & PLIANT_OPTION_REQUIRED) == 0) return value;
    value.is_set = 1;
    value.integer = in_range(option, 64);
    value.real = 1.0;
    value.text = {"", 0};
    if (option.choice_count > 0) value.text = {option.choices[0], std::string(option.choices[0]).size()};
    value.count = option.list_min > 1 ? option.list_min : 1;
    value.integers = integers_.emplace_back(value.count, in_range(option, 2)).data();
    value.reals = reals_.emplace_back(value.count, 1.0).data();
    value.texts = texts_.emplace_back(value.count, value.text).data();
    return value;
  }
  static int64_t in_range(const pliant_option& option, int64_t wish) {
    if ((option.flags & PLIANT_OPTION_HAS_MIN) != 0 && wish < option.int_min) return option.int_min;
    if ((option.flags & PLIANT_OPTION_HAS_MAX) != 0 && wish > option.int_max) return option.int_max;
    return wish;
  }

  std::vector<pliant_value> values_;
  std::deque<std::vector<int64_t>> integers_;
  std::deque<std::vector<double>> reals_;
  std::deque<std::vector<pliant_str>> texts_;
  std::deque<std::vector<std::string>> words_;  // what texts_ views
};

using sdk::blank_error;

/// A host that offers a log and no extension.
inline const pliant_host& quiet_host() {
  static const pliant_host kHost{sizeof(pliant_host), PLIANT_ABI_MINOR, nullptr, [](void*, int32_t, pliant_str) {},
                                 [](void*, const char*) -> const void* { return nullptr; }};
  return kHost;
}

/// One instance made by the plugin itself.
class OwnInstance {
 public:
  OwnInstance(const OpenedPlugin& plugin, const OptionRow& options) : plugin_(plugin) {
    const pliant_option_values values = options.view();
    status_ = plugin.record().create(&quiet_host(), &values, &self_, &error_);
  }
  ~OwnInstance() {
    if (self_ != nullptr) plugin_.record().destroy(self_);
  }
  OwnInstance(const OwnInstance&) = delete;
  OwnInstance& operator=(const OwnInstance&) = delete;

  [[nodiscard]] int32_t status() const { return status_; }
  [[nodiscard]] std::string message() const { return error_.message; }
  /// Status and message of create.
  [[nodiscard]] std::string text() const { return std::to_string(status_) + ": " + message(); }
  [[nodiscard]] void* self() const { return self_; }
  [[nodiscard]] const pliant_plugin& record() const { return plugin_.record(); }

 private:
  const OpenedPlugin& plugin_;
  void* self_ = nullptr;
  pliant_error error_ = blank_error();
  int32_t status_ = PLIANT_OK;
};

/// The state of an instance as bytes, read back in portions of `portion` bytes.
struct SavedState {
  std::string bytes;
  size_t portion = 4096;
  size_t at = 0;

  int32_t save_from(const OwnInstance& instance, pliant_error& error) {
    const pliant_writer writer{sizeof(pliant_writer), 0, this,
                               [](void* self, const void* from, uint64_t size) -> int32_t {
                                 static_cast<SavedState*>(self)->bytes.append(static_cast<const char*>(from), size);
                                 return PLIANT_OK;
                               }};
    return instance.record().save(instance.self(), &writer, &error);
  }
  int32_t load_into(const OwnInstance& instance, pliant_error& error) {
    at = 0;
    const pliant_reader reader{
        sizeof(pliant_reader), 0, this, [](void* self, void* to, uint64_t size, uint64_t* got) -> int32_t {
          auto& state = *static_cast<SavedState*>(self);
          *got = state.bytes.copy(static_cast<char*>(to), std::min<size_t>(size, state.portion), state.at);
          state.at += *got;
          return PLIANT_OK;
        }};
    return instance.record().load(instance.self(), &reader, &error);
  }
};

}  // namespace pliant::testkit
