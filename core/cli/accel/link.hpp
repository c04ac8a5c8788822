// Link: an accelerator plugin by its slots, for what the embedding API does not show: events, reductions, casts.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "accelerator/collectives_of.hpp"
#include "accelerator/stream_memory.hpp"
#include "pliant/sdk/failure.hpp"
#include "plugin/plugin.hpp"

namespace pliant::cli {

/// What a device says of itself.
struct DeviceSeen {
  std::string name;
  uint64_t memory_bytes = 0;
  bool host_visible = false;
  bool fixed_order = false;
  bool shared_memory = false;
  bool exchange_memory = false;
  bool own_collectives = false;  ///< its plugin has the extension PLIANT_COLLECTIVES
  bool collectives = false;      ///< it has, or the accelerator is there that carries generic ones
};

/// A handle that its plugin destroys.
template <class Handle>
class Owned {
 public:
  using Destroy = void (*)(void*, Handle*);
  Owned() = default;
  Owned(void* self, Destroy destroy, Handle* handle) : self_(self), destroy_(destroy), handle_(handle) {}
  ~Owned() {
    if (handle_ != nullptr) destroy_(self_, handle_);
  }
  Owned(Owned&& other) noexcept
      : self_(other.self_), destroy_(other.destroy_), handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(self_, other.self_);
    std::swap(destroy_, other.destroy_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  [[nodiscard]] Handle* get() const { return handle_; }

 private:
  void* self_ = nullptr;
  Destroy destroy_ = nullptr;
  Handle* handle_ = nullptr;
};

class Link {
 public:
  /// `config` was opened with needs.accelerator.
  explicit Link(const Config& config);

  [[nodiscard]] int32_t device_count() const;
  /// Where there are none: what the plugin says is missing; "" when it says nothing.
  [[nodiscard]] std::string why_no_devices() const;
  [[nodiscard]] DeviceSeen device(int32_t device) const;
  /// Its own, or generic ones.
  [[nodiscard]] detail::CollectivesOf& collectives() const { return *collectives_; }

  [[nodiscard]] Owned<pliant_stream> make_stream(int32_t device) const;
  [[nodiscard]] Owned<pliant_event> make_event(int32_t device) const;
  /// Joins; `id` is what the rank that called make_id got.
  [[nodiscard]] Owned<pliant_comm> join(int32_t device, const pliant_comm_id& id, int32_t rank, int32_t ranks) const;
  void synchronize(const Owned<pliant_stream>& stream) const;
  /// Device memory in stream order.
  [[nodiscard]] void* take(int32_t device, uint64_t bytes, const Owned<pliant_stream>& stream) const;
  void give_back(int32_t device, void* pointer, const Owned<pliant_stream>& stream) const;

  /// Calls a slot of the accelerator (or, below, of its collectives); throws what it reports.
  template <class... Parameters, class... Arguments>
  void call(int32_t (*pliant_accelerator::*slot)(void*, Parameters...), Arguments... arguments) const {
    checked(self(), table().*slot, arguments...);
  }
  template <class... Parameters, class... Arguments>
  void call(int32_t (*pliant_collectives::*slot)(void*, Parameters...), Arguments... arguments) const {
    checked(collectives().self(), collectives().table().*slot, arguments...);
  }

  [[nodiscard]] const plugin::Plugin& plugin() const { return instance_->plugin(); }
  [[nodiscard]] const pliant_accelerator& table() const { return instance_->table<pliant_accelerator>(); }
  [[nodiscard]] void* self() const { return instance_->self(); }

 private:
  /// Runs body; what it throws as sdk::Failure becomes an Error of this accelerator.
  template <class Body>
  auto told(Body&& body) const {
    try {
      return body();
    } catch (const sdk::Failure& failure) {
      pliant_error error = plugin::fresh_error();
      sdk::detail::set_error(&error, failure.status(), failure.what());
      throw plugin::to_error(instance_->plugin(), failure.status(), error);
    }
  }
  template <class Slot, class... Arguments>
  void checked(void* self, Slot slot, Arguments... arguments) const {
    pliant_error error = plugin::fresh_error();
    const int32_t status = slot(self, arguments..., &error);
    if (status != PLIANT_OK) throw plugin::to_error(instance_->plugin(), status, error);
  }
  std::unique_ptr<const plugin::Instance> instance_;  // where it is when this moves: collectives_ refers to it
  std::unique_ptr<detail::StreamMemory> stream_memory_;
  std::unique_ptr<detail::CollectivesOf> collectives_;
};

/// Memory of a device, or pinned. Movable.
class Memory {
 public:
  Memory() = default;
  Memory(const Link& link, int32_t device, int32_t kind, uint64_t bytes);
  ~Memory();
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;
  [[nodiscard]] void* pointer() const { return pointer_; }
  [[nodiscard]] uint64_t bytes() const { return bytes_; }

 private:
  const Link* link_ = nullptr;
  void* pointer_ = nullptr;
  uint64_t bytes_ = 0;
  int32_t device_ = 0;
  int32_t kind_ = 0;
};

}  // namespace pliant::cli
