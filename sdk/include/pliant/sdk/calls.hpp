// How a host calls the slots of a plugin, and handles that end in time: one way for the core, the conformance kit and
// everybody else who opens plugins.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "pliant/abi/accelerator.h"
#include "pliant/abi/base.h"
#include "pliant/abi/collectives.h"
#include "pliant/abi/ipc.h"
#include "pliant/sdk/failure.hpp"
#include "pliant/sdk/kinds.hpp"

namespace pliant::sdk {

/// What a slot answered.
struct Answer {
  int32_t status = PLIANT_OK;
  std::string message;  ///< "" with PLIANT_OK
  std::string options;  ///< keys of the options that it is about, the likeliest first, with a space between
  int32_t rank = -1;    ///< that it is about, as in pliant_error; -1: none, or its plugin knows no such field
  int32_t device = -1;  ///< likewise
  [[nodiscard]] bool ok() const { return status == PLIANT_OK; }
};

namespace detail {

/// Becomes what the slot takes. A number that does not fit is refused.
template <class Given>
struct Argument {
  const Given& value;
  template <class Taken>
  operator Taken() const {  // NOLINT(google-explicit-constructor)
    if constexpr (std::is_same_v<Taken, Given> || !std::is_integral_v<Taken> || !std::is_integral_v<Given>) {
      return value;
    } else {
      const auto taken = static_cast<Taken>(value);
      if (static_cast<Given>(taken) != value || (taken < Taken{}) != (value < Given{})) {
        throw Failure(PLIANT_OUT_OF_RANGE, "the slot takes no such number: " + std::to_string(value));
      }
      return taken;
    }
  }
};

template <size_t kSize>
std::string text_of(const char (&given)[kSize]) {
  return {given, std::find(given, given + kSize, '\0')};
}

/// "SLOT threw across the border: WHAT", as far as there is room.
inline int32_t set_threw(pliant_error& error, const char* slot, const char* what) noexcept {
  make_blank(error);
  error.status = PLIANT_INTERNAL;
  size_t at = 0;
  for (const std::string_view part : {std::string_view(slot), std::string_view(" threw across the border: "),
                                      std::string_view(what == nullptr ? "" : what)}) {
    const size_t count = std::min(part.size(), sizeof(error.message) - 1 - at);
    std::copy_n(part.data(), count, error.message + at);
    at += count;
  }
  return error.status;
}

inline Failure failure_of(int32_t status, const pliant_error& error) {
  return Failure(status, text_of(error.message), text_of(error.options))
      .about_rank(error.rank)
      .about_device(error.device);
}

}  // namespace detail

/// The status that `body` returns, which calls one slot of a plugin. No exception may cross the border, and one of a
/// plugin that was built without this SDK may all the same: it is PLIANT_INTERNAL, `error` says which `slot` threw
/// what, and `threw`, where that is asked for, that it did. Costs nothing where nothing is thrown. `slot` becomes a
/// const char* then.
template <class Name, class Body>
int32_t fenced(pliant_error& error, const Name& slot, Body&& body, bool* threw = nullptr) {
  try {
    return body();
  } catch (const std::exception& thrown) {
    if (threw != nullptr) *threw = true;
    return detail::set_threw(error, slot, thrown.what());
  } catch (...) {
    if (threw != nullptr) *threw = true;
    return detail::set_threw(error, slot, "an exception other than std::exception");
  }
}

/// Calls slot(self, arguments..., &error) and returns its status; `error` is made blank before. PLIANT_UNIMPLEMENTED
/// for a slot that is NULL; for one that throws what fenced() says, and `name` is the slot's.
template <class Name, class... Parameters, class... Arguments>
int32_t call(const Name& name, void* self, pliant_error& error, int32_t (*slot)(void*, Parameters...),
             const Arguments&... arguments) {
  make_blank(error);
  if (slot == nullptr) {
    return detail::set_error(&error, PLIANT_UNIMPLEMENTED,
                             "the plugin does not have this call; it may have been built for an older Pliant");
  }
  // Arguments become what the slot takes outside of the fence: one that does not fit is the caller's.
  const auto with = [&](Parameters... taken) { return fenced(error, name, [&] { return slot(self, taken...); }); };
  return with(detail::Argument<Arguments>{arguments}..., &error);
}
/// A table of slots and the instance that they belong to. Both live longer than this. As thread-safe as the slots.
template <class Table>
class Calls {
 public:
  Calls() = default;
  Calls(const Table& table, void* self) : table_(&table), self_(self) {}

  /// There is such a table.
  explicit operator bool() const { return table_ != nullptr; }
  [[nodiscard]] const Table& table() const { return *table_; }
  [[nodiscard]] const Table* operator->() const { return table_; }
  [[nodiscard]] void* self() const { return self_; }
  /// A plugin that was built for an older Pliant may have fewer slots.
  template <class Slot>
  [[nodiscard]] bool has(Slot Table::*slot) const {
    return of_table(slot) != nullptr;
  }

  /// `calls.ask(&pliant_accelerator::alloc, 0, PLIANT_MEMORY_DEVICE, 4096, &pointer)`
  template <class... Parameters, class... Arguments>
  Answer ask(int32_t (*Table::*slot)(void*, Parameters...), const Arguments&... arguments) const {
    pliant_error error;
    const int32_t status = call(SlotName<decltype(slot)>{table_, slot}, self_, error, of_table(slot), arguments...);
    if (status == PLIANT_OK) return {};
    return {status, detail::text_of(error.message), detail::text_of(error.options), error.rank, error.device};
  }
  /// Throws Failure unless the slot answers PLIANT_OK.
  template <class... Parameters, class... Arguments>
  void must(int32_t (*Table::*slot)(void*, Parameters...), const Arguments&... arguments) const {
    pliant_error error;
    const int32_t status = call(SlotName<decltype(slot)>{table_, slot}, self_, error, of_table(slot), arguments...);
    if (status != PLIANT_OK) throw detail::failure_of(status, error);
  }

 private:
  template <class Slot>
  [[nodiscard]] Slot of_table(Slot Table::*slot) const {
    return table_ == nullptr ? nullptr : table_->*slot;
  }

  /// Looks the name up once it is wanted.
  template <class Slot>
  struct SlotName {
    const Table* table;
    Slot slot;
    operator const char*() const {  // NOLINT(google-explicit-constructor)
      const auto* const at = reinterpret_cast<const char*>(&(table->*slot));
      const auto offset = static_cast<size_t>(at - reinterpret_cast<const char*>(table));
      for (const sdk::Slot& one : detail::kSlotsOf<Table>) {
        if (one.offset == offset) return one.name.data();
      }
      return "a call";  // a slot that the table did not begin with
    }
  };

  const Table* table_ = nullptr;
  void* self_ = nullptr;
};

/// A handle that one slot makes and another, `kDestroy`, ends. Empty, or owned by this object alone.
template <class Table, class Handle, auto kDestroy>
class Owned {
 public:
  Owned() = default;
  explicit Owned(const Calls<Table>& calls) : calls_(calls) {}
  ~Owned() { reset(); }
  Owned(Owned&& other) noexcept : calls_(other.calls_), handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(calls_, other.calls_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;

  /// Where the slot that makes it writes it. What was there ends.
  [[nodiscard]] Handle** out() {
    reset();
    return &handle_;
  }
  void reset() {
    if (Handle* const ended = std::exchange(handle_, nullptr); ended != nullptr) {
      (calls_.table().*kDestroy)(calls_.self(), ended);
    }
  }
  [[nodiscard]] Handle* get() const { return handle_; }
  operator Handle*() const { return handle_; }  // NOLINT(google-explicit-constructor)
  [[nodiscard]] const Calls<Table>& calls() const { return calls_; }

 private:
  Calls<Table> calls_;
  Handle* handle_ = nullptr;
};

using OwnedStream = Owned<pliant_accelerator, pliant_stream, &pliant_accelerator::stream_destroy>;
using OwnedEvent = Owned<pliant_accelerator, pliant_event, &pliant_accelerator::event_destroy>;
using OwnedComm = Owned<pliant_collectives, pliant_comm, &pliant_collectives::comm_destroy>;

/// Throws Failure. `role`: PLIANT_STREAM_..., `priority`: PLIANT_PRIORITY_...
inline OwnedStream make_stream(const Calls<pliant_accelerator>& calls, int32_t device,
                               int32_t role = PLIANT_STREAM_COMPUTE, int32_t priority = PLIANT_PRIORITY_NORMAL) {
  OwnedStream made(calls);
  calls.must(&pliant_accelerator::stream_create, device, role, priority, made.out());
  return made;
}

/// Throws Failure. `flags`: 0 or PLIANT_EVENT_...
inline OwnedEvent make_event(const Calls<pliant_accelerator>& calls, int32_t device, uint32_t flags = 0) {
  OwnedEvent made(calls);
  calls.must(&pliant_accelerator::event_create, device, flags, made.out());
  return made;
}

/// An event of another process for this one; the handle's descriptor stays the caller's. Throws Failure. `calls`: of
/// the accelerator, which ends it.
inline OwnedEvent import_event(const Calls<pliant_accelerator>& calls, const Calls<pliant_ipc>& ipc, int32_t device,
                               const pliant_ipc_handle& handle) {
  OwnedEvent made(calls);
  ipc.must(&pliant_ipc::import_event, device, &handle, made.out());
  return made;
}

/// Memory of an accelerator. Empty, or owned by this object alone.
class OwnedMemory {
 public:
  OwnedMemory() = default;
  /// Throws Failure. `kind`: PLIANT_MEMORY_...
  OwnedMemory(const Calls<pliant_accelerator>& calls, int32_t device, int32_t kind, uint64_t bytes)
      : calls_(calls), device_(device), kind_(kind) {
    calls.must(&pliant_accelerator::alloc, device, kind, bytes, &pointer_);
  }
  /// At a multiple of `alignment`: throws PLIANT_UNIMPLEMENTED where the plugin has no alloc_aligned.
  OwnedMemory(const Calls<pliant_accelerator>& calls, int32_t device, int32_t kind, uint64_t bytes, uint64_t alignment)
      : calls_(calls), device_(device), kind_(kind) {
    calls.must(&pliant_accelerator::alloc_aligned, device, kind, bytes, alignment, &pointer_);
  }
  ~OwnedMemory() { reset(); }
  OwnedMemory(OwnedMemory&& other) noexcept { *this = std::move(other); }
  OwnedMemory& operator=(OwnedMemory&& other) noexcept {
    std::swap(calls_, other.calls_);
    std::swap(device_, other.device_);
    std::swap(kind_, other.kind_);
    std::swap(pointer_, other.pointer_);
    return *this;
  }
  OwnedMemory(const OwnedMemory&) = delete;
  OwnedMemory& operator=(const OwnedMemory&) = delete;

  void reset() {
    if (void* const ended = std::exchange(pointer_, nullptr); ended != nullptr) {
      calls_->free(calls_.self(), device_, kind_, ended);
    }
  }
  [[nodiscard]] void* get() const { return pointer_; }

 private:
  Calls<pliant_accelerator> calls_;
  int32_t device_ = 0;
  int32_t kind_ = PLIANT_MEMORY_DEVICE;
  void* pointer_ = nullptr;
};

/// Memory of another process that is mapped in this one. Empty, or owned by this object alone.
class ImportedMemory {
 public:
  ImportedMemory() = default;
  /// Throws Failure. The handle's descriptor stays the caller's.
  ImportedMemory(const Calls<pliant_ipc>& ipc, int32_t device, const pliant_ipc_handle& handle)
      : ipc_(ipc), device_(device) {
    ipc.must(&pliant_ipc::import_memory, device, &handle, &pointer_);
  }
  ~ImportedMemory() { reset(); }
  ImportedMemory(ImportedMemory&& other) noexcept { *this = std::move(other); }
  ImportedMemory& operator=(ImportedMemory&& other) noexcept {
    std::swap(ipc_, other.ipc_);
    std::swap(device_, other.device_);
    std::swap(pointer_, other.pointer_);
    return *this;
  }
  ImportedMemory(const ImportedMemory&) = delete;
  ImportedMemory& operator=(const ImportedMemory&) = delete;

  void reset() {
    if (void* const ended = std::exchange(pointer_, nullptr); ended != nullptr) {
      ipc_->release_memory(ipc_.self(), device_, ended);
    }
  }
  [[nodiscard]] void* get() const { return pointer_; }

 private:
  Calls<pliant_ipc> ipc_;
  int32_t device_ = 0;
  void* pointer_ = nullptr;
};

}  // namespace pliant::sdk
