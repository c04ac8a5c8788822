// An accelerator plugin, called through its slots as any host would; no core in between.
#pragma once

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cuda_runtime.hpp"
#include "folders.hpp"
#include "level_zero_driver.hpp"
#include "pliant/abi/plugin.h"
#include "pliant/sdk/calls.hpp"

namespace pliant_test {

/// What a slot answered, and what that is in words.
struct Outcome : pliant::sdk::Answer {
  Outcome() = default;
  Outcome(pliant::sdk::Answer answer) : Answer(std::move(answer)) {}
  [[nodiscard]] std::string text() const { return std::to_string(status) + ": " + message; }
};

inline const char* const kHostFile = pliant::test::in_folder(PLIANT_PLUGIN_DIR, "accelerator-host.pliant.so");
inline const char* const kSimFile = pliant::test::in_folder(PLIANT_TESTKIT_PLUGIN_DIR, "accelerator-sim.pliant.so");

inline const char* const kLevelZeroFile =
    pliant::test::in_folder(PLIANT_PLUGIN_DIR, "accelerator-level_zero.pliant.so");
inline const char* const kCudaFile = pliant::test::in_folder(PLIANT_PLUGIN_DIR, "accelerator-cuda.pliant.so");

/// The plugin that tests of any accelerator run on: that of the host, unless PLIANT_TEST_ACCELERATOR asks for Level
/// Zero on its software driver: `level_zero`, `level_zero_validated` with the loader's own checks,
/// `level_zero_reordered` with delays, and commands that overtake each other, `level_zero_without_kernels`; or for cuda
/// on its software runtime: `cuda`, `cuda_delayed`, `cuda_without_kernels`.
inline const char* tested_file() {
  const char* wanted = std::getenv("PLIANT_TEST_ACCELERATOR");
  if (wanted == nullptr) return kHostFile;
  const std::string name = wanted;
  if (name.rfind("cuda", 0) == 0) {
    use_software_cuda();
    if (name == "cuda_delayed") {
      ::setenv("PLIANT_SOFT_CUDA_SEED", "7", 1);
      ::setenv("PLIANT_SOFT_CUDA_MAX_DELAY_US", "20", 1);
    } else if (name == "cuda_without_kernels") {
      ::setenv("PLIANT_SOFT_CUDA_NO_KERNELS", "1", 1);
    }
    return kCudaFile;
  }
  use_software_driver();
  if (name == "level_zero_validated") {
    ::setenv("ZE_ENABLE_VALIDATION_LAYER", "1", 1);
    ::setenv("ZE_ENABLE_PARAMETER_VALIDATION", "1", 1);
  } else if (name == "level_zero_reordered") {
    ::setenv("PLIANT_SOFT_ZE_SEED", "7", 1);
    ::setenv("PLIANT_SOFT_ZE_MAX_DELAY_US", "20", 1);
  } else if (name == "level_zero_without_kernels") {
    ::setenv("PLIANT_SOFT_ZE_FAIL_MODULE", "1", 1);
  } else if (name != "level_zero") {
    throw std::runtime_error("PLIANT_TEST_ACCELERATOR=" + name + " is no accelerator of these tests");
  }
  return kLevelZeroFile;
}

struct OptionSettings {
  std::map<std::string, int64_t> integers;
  std::map<std::string, double> reals;
  std::map<std::string, std::vector<int64_t>> integer_lists;
  std::map<std::string, std::string> texts = {};
};

class Device {
 public:
  explicit Device(const OptionSettings& settings = {}, const char* file = tested_file()) : file_(file) {
    library_ = ::dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) throw std::runtime_error(::dlerror());
    const auto entry = reinterpret_cast<pliant_plugin_entry>(::dlsym(library_, PLIANT_PLUGIN_ENTRY_SYMBOL));
    record_ = entry();
    std::vector<pliant_value> values;
    for (uint32_t i = 0; i < record_->option_count; ++i) values.push_back(value_of(record_->options[i], settings));
    const pliant_option_values view{sizeof(view), record_->option_count, sizeof(pliant_value), values.data()};
    pliant_error error{};
    error.struct_size = sizeof(error);
    host_.struct_size = sizeof(host_);
    host_.context = this;
    host_.log = [](void* context, int32_t, pliant_str line) {
      auto& device = *static_cast<Device*>(context);
      const std::lock_guard lock(device.logging_);
      device.log_.emplace_back(line.data, line.size);
    };
    if (record_->create(&host_, &view, &self_, &error) != PLIANT_OK) {
      ::dlclose(library_);
      throw std::runtime_error(error.message);
    }
    const void* const collectives = record_->extension(self_, PLIANT_COLLECTIVES);
    if (collectives != nullptr) collectives_ = {*static_cast<const pliant_collectives*>(collectives), self_};
  }
  virtual ~Device() {
    if (library_ == nullptr) return;
    record_->destroy(self_);
    ::dlclose(library_);
    if (file_ == kLevelZeroFile) check_software_driver_is_clean();
    if (file_ == kCudaFile) check_software_cuda_is_clean();
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  /// Destroys the instance, and nothing else of this object works any more.
  void let_go() { record_->destroy(std::exchange(self_, nullptr)); }

  [[nodiscard]] const pliant_accelerator& slots() const {
    return *static_cast<const pliant_accelerator*>(record_->vtable);
  }
  [[nodiscard]] const pliant_collectives& collectives() const {
    if (!collectives_) throw std::runtime_error("the plugin has no collectives");
    return collectives_.table();
  }
  [[nodiscard]] const pliant_plugin& record() const { return *record_; }
  [[nodiscard]] const void* extension(const char* id) const { return record_->extension(self_, id); }
  /// Throws when there is no such extension.
  template <class Table>
  [[nodiscard]] pliant::sdk::Calls<Table> extension_calls(const char* id) const {
    const void* const table = extension(id);
    if (table == nullptr) throw std::runtime_error(std::string("there is no ") + id);
    return {*static_cast<const Table*>(table), self_};
  }
  [[nodiscard]] void* self() const { return self_; }
  [[nodiscard]] pliant::sdk::Calls<pliant_accelerator> calls() const { return {slots(), self_}; }
  [[nodiscard]] const pliant::sdk::Calls<pliant_collectives>& collective_calls() const { return collectives_; }
  [[nodiscard]] virtual Outcome synchronize(pliant_stream* stream) const {
    return call(&pliant_accelerator::stream_synchronize, stream);
  }
  [[nodiscard]] std::string name() const { return record_->name; }
  /// What the plugin has logged.
  [[nodiscard]] std::vector<std::string> log() const {
    const std::lock_guard lock(logging_);
    return log_;
  }

  /// `device.call(&pliant_accelerator::alloc, 0, ...)`
  template <class... Parameters, class... Arguments>
  Outcome call(int32_t (*pliant_accelerator::*slot)(void*, Parameters...), const Arguments&... arguments) const {
    return calls().ask(slot, arguments...);
  }
  /// `device.call(&pliant_collectives::barrier, comm, stream)`
  template <class... Parameters, class... Arguments>
  Outcome call(int32_t (*pliant_collectives::*slot)(void*, Parameters...), const Arguments&... arguments) const {
    static_cast<void>(collectives());
    return collectives_.ask(slot, arguments...);
  }

 protected:
  /// Of an instance that somebody else owns.
  Device(const pliant_plugin& record, void* self, const pliant::sdk::Calls<pliant_collectives>& collectives)
      : file_(nullptr), record_(&record), collectives_(collectives), self_(self) {}

 private:
  static pliant_value value_of(const pliant_option& option, const OptionSettings& settings) {
    pliant_value value{};
    if (option.default_value != nullptr) value = *option.default_value;
    value.struct_size = sizeof(value);
    value.type = option.type;
    if (const auto i = settings.integers.find(option.key); i != settings.integers.end()) {
      value.is_set = 1;
      value.integer = i->second;
    }
    if (const auto r = settings.reals.find(option.key); r != settings.reals.end()) {
      value.is_set = 1;
      value.real = r->second;
    }
    if (const auto l = settings.integer_lists.find(option.key); l != settings.integer_lists.end()) {
      value.is_set = 1;
      value.count = l->second.size();
      value.integers = l->second.data();
    }
    if (const auto t = settings.texts.find(option.key); t != settings.texts.end()) {
      value.is_set = 1;
      value.text = {t->second.data(), t->second.size()};
    }
    return value;
  }

  const char* const file_;
  pliant_host host_{};
  mutable std::mutex logging_;
  std::vector<std::string> log_;
  void* library_ = nullptr;
  const pliant_plugin* record_ = nullptr;
  pliant::sdk::Calls<pliant_collectives> collectives_;
  void* self_ = nullptr;
};

/// Handles that end in time. All throw when the plugin refuses.
class Stream {
 public:
  explicit Stream(const Device& device, int32_t role = PLIANT_STREAM_COMPUTE, int32_t on = 0)
      : device_(device), handle_(pliant::sdk::make_stream(device.calls(), on, role)) {}
  operator pliant_stream*() const { return handle_; }
  [[nodiscard]] Outcome synchronize() const { return device_.synchronize(handle_); }

 private:
  const Device& device_;
  pliant::sdk::OwnedStream handle_;
};

class Event {
 public:
  explicit Event(const Device& device, bool timing = false)
      : handle_(pliant::sdk::make_event(device.calls(), 0, timing ? uint32_t{PLIANT_EVENT_TIMING} : 0U)) {}
  operator pliant_event*() const { return handle_; }
  [[nodiscard]] bool done() const {
    int32_t done = -1;
    handle_.calls().must(&pliant_accelerator::event_query, handle_, &done);
    return done != 0;
  }

 private:
  pliant::sdk::OwnedEvent handle_;
};

class Comm {
 public:
  Comm(const Device& device, const pliant_comm_id& id, int32_t rank, int32_t world_size)
      : handle_(device.collective_calls()),
        outcome_(device.call(&pliant_collectives::comm_create, 0, &id, rank, world_size, handle_.out())) {}
  operator pliant_comm*() const { return handle_; }
  /// What comm_create said.
  [[nodiscard]] const Outcome& made() const { return outcome_; }
  [[nodiscard]] Outcome status(int32_t timeout_ms) const {
    if (handle_.get() == nullptr) return outcome_;
    return handle_.calls().ask(&pliant_collectives::comm_status, handle_, timeout_ms);
  }
  void abort() const { handle_.calls()->comm_abort(handle_.calls().self(), handle_); }
  void destroy() { handle_.reset(); }

 private:
  pliant::sdk::OwnedComm handle_;
  Outcome outcome_;
};

}  // namespace pliant_test
