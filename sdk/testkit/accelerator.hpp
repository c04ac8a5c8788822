// An accelerator under test, called through its slots as any host would, and handles that are destroyed in time.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "pliant/abi/accelerator.h"
#include "pliant/abi/collectives.h"
#include "pliant/abi/ipc.h"
#include "pliant/abi/optimizer.h"
#include "pliant/abi/stream_memory.h"
#include "pliant/sdk/calls.hpp"
#include "testkit/check.hpp"
#include "testkit/plugin.hpp"

namespace pliant::testkit {

/// What a slot answered, and what that is in words.
struct Outcome : sdk::Answer {
  Outcome() = default;
  Outcome(sdk::Answer answer) : sdk::Answer(std::move(answer)) {}  // NOLINT(google-explicit-constructor)
  [[nodiscard]] std::string text() const;
};

/// Fails the check unless the answer is OK.
void must(const char* slot, const Outcome& outcome);

const char* status_name(int32_t status);

/// Handles of the SDK throw what a slot refuses; here it fails the check, with the slot's name.
template <class Make>
auto made_by(const char* slot, Make&& make) {
  try {
    return make();
  } catch (const sdk::Failure& refused) {
    fail(std::string(slot) + " returned " + Outcome(sdk::Answer{refused.status(), refused.what(), ""}).text());
  }
}

using Bytes = std::vector<unsigned char>;

/// An instance of the plugin. Fails the check when it cannot be made, and skips it when there is no device.
class Accelerator {
 public:
  enum class Devices { kNeeded, kAnyNumber };
  explicit Accelerator(const Subject& subject, Devices wanted = Devices::kNeeded);

  /// `accelerator.call(&pliant_accelerator::alloc, 0, ...)`
  template <class Table, class... Parameters, class... Arguments>
  Outcome call(int32_t (*Table::*slot)(void*, Parameters...), const Arguments&... arguments) const {
    return calls<Table>().ask(slot, arguments...);
  }
  /// Slots that the plugin does not have are NULL. Empty when it has no such table.
  template <class Table>
  [[nodiscard]] const sdk::Calls<Table>& calls() const {
    return std::get<Part<Table>>(parts_).calls;
  }
  [[nodiscard]] const pliant_accelerator& slots() const { return calls<pliant_accelerator>().table(); }
  /// NULL when it has no collectives; so in the others.
  [[nodiscard]] const pliant_collectives* collectives() const { return table<pliant_collectives>(); }
  [[nodiscard]] const pliant_ipc* ipc() const { return table<pliant_ipc>(); }
  [[nodiscard]] const pliant_stream_memory* stream_memory() const { return table<pliant_stream_memory>(); }
  [[nodiscard]] const pliant_optimizer* optimizer() const { return table<pliant_optimizer>(); }
  [[nodiscard]] void* self() const { return instance_.self(); }
  [[nodiscard]] int32_t devices() const { return devices_; }
  /// It was built against headers whose pliant_error has `rank` and `device`; an older one is not held to them.
  [[nodiscard]] bool says_whom() const { return plugin_.record().abi_minor >= 1; }
  [[nodiscard]] bool has(uint32_t capability) const { return (capabilities_ & capability) != 0; }

  /// Move bytes between the host and memory of any sort, and wait.
  void write(void* to, const void* from, uint64_t bytes) const;
  void read(void* to, const void* from, uint64_t bytes) const;

 private:
  /// A table of the plugin, as the kit knows it.
  template <class Table>
  struct Part {
    Table table{};
    sdk::Calls<Table> calls;
  };
  template <class Table>
  [[nodiscard]] const Table* table() const {
    return calls<Table>() ? &calls<Table>().table() : nullptr;
  }
  template <class Table>
  void take(const void* given);
  void move(void* to, const void* from, uint64_t bytes) const;

  OpenedPlugin plugin_;
  OptionRow options_;
  OwnInstance instance_;
  std::tuple<Part<pliant_accelerator>, Part<pliant_collectives>, Part<pliant_ipc>, Part<pliant_stream_memory>,
             Part<pliant_optimizer>>
      parts_;
  int32_t devices_ = 0;
  uint32_t capabilities_ = 0;
  mutable std::mutex moving_;
  mutable sdk::OwnedStream mover_;
};

class Memory {
 public:
  Memory(const Accelerator& accelerator, uint64_t bytes, int32_t kind = PLIANT_MEMORY_DEVICE, int32_t device = 0);
  [[nodiscard]] unsigned char* at(uint64_t offset = 0) const {
    return static_cast<unsigned char*>(memory_.get()) + offset;
  }

 private:
  sdk::OwnedMemory memory_;
};

/// Room for `bytes` bytes, `offset` bytes past the alignment of device memory, between guards that must not change.
class Guarded {
 public:
  Guarded(const Accelerator& accelerator, uint64_t bytes, uint64_t offset = 0);
  [[nodiscard]] unsigned char* at() const { return memory_.at(kGuard + offset_); }
  void set(const Bytes& bytes) const { accelerator_.write(at(), bytes.data(), bytes.size()); }
  /// Fails the check when a guard has changed; `what` says after which work.
  [[nodiscard]] Bytes get(const std::string& what) const;

 private:
  static constexpr uint64_t kGuard = 256;
  static constexpr unsigned char kPattern = 0xA5;
  const Accelerator& accelerator_;
  uint64_t bytes_;
  uint64_t offset_;
  Memory memory_;
};

class Event;

class Stream {
 public:
  explicit Stream(const Accelerator& accelerator, int32_t device = 0, int32_t role = PLIANT_STREAM_COMPUTE,
                  int32_t priority = PLIANT_PRIORITY_NORMAL);
  operator pliant_stream*() const { return handle_; }  // NOLINT(google-explicit-constructor)
  [[nodiscard]] Outcome synchronize() const;
  /// Fails the check when enqueued work failed.
  void wait() const { must("stream_synchronize", synchronize()); }
  [[nodiscard]] bool done() const;
  /// What is enqueued from now on waits for the event.
  void wait_for(const Event& event) const;
  /// Its handle, which this object has no more.
  [[nodiscard]] sdk::OwnedStream take() { return std::move(handle_); }

 private:
  sdk::OwnedStream handle_;
};

class Event {
 public:
  explicit Event(const Accelerator& accelerator, uint32_t flags = 0, int32_t device = 0);
  /// Of another process. The handle's descriptor stays the caller's.
  Event(const Accelerator& accelerator, const pliant_ipc_handle& handle);
  operator pliant_event*() const { return handle_; }  // NOLINT(google-explicit-constructor)
  void record(const Stream& stream) const;
  [[nodiscard]] bool done() const;
  [[nodiscard]] Outcome synchronize() const;
  void wait() const { must("event_synchronize", synchronize()); }

 private:
  sdk::OwnedEvent handle_;
};

/// Runs `call` on a thread of its own and fails the check, saying `what`, when it has not returned after kReturnMs.
inline constexpr int32_t kReturnMs = 3000;
void returns_soon(const std::string& what, const std::function<void()>& call);

}  // namespace pliant::testkit
