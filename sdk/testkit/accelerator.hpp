// An accelerator under test, called through its slots as any host would, and handles that are destroyed in time.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "pliant/abi/accelerator.h"
#include "pliant/abi/collectives.h"
#include "pliant/abi/ipc.h"
#include "pliant/abi/stream_memory.h"
#include "pliant/sdk/sized.hpp"
#include "testkit/check.hpp"
#include "testkit/plugin.hpp"

namespace pliant::testkit {

/// What a slot answered.
struct Outcome {
  int32_t status = PLIANT_OK;
  std::string message;
  [[nodiscard]] bool ok() const { return status == PLIANT_OK; }
  [[nodiscard]] std::string text() const;
};

/// Fails the check unless the answer is OK.
void must(const char* slot, const Outcome& outcome);

const char* status_name(int32_t status);

using Bytes = std::vector<unsigned char>;

/// An instance of the plugin. Fails the check when it cannot be made, and skips it when there is no device.
class Accelerator {
 public:
  enum class Devices { kNeeded, kAnyNumber };
  explicit Accelerator(const Subject& subject, Devices wanted = Devices::kNeeded);

  /// `accelerator.call(&pliant_accelerator::alloc, 0, ...)`
  template <class... Parameters, class... Arguments>
  Outcome call(int32_t (*pliant_accelerator::*slot)(void*, Parameters...), const Arguments&... arguments) const {
    return answer(slots().*slot, arguments...);
  }
  template <class... Parameters, class... Arguments>
  Outcome call(int32_t (*pliant_collectives::*slot)(void*, Parameters...), const Arguments&... arguments) const {
    return answer((*collectives_).*slot, arguments...);
  }
  /// Slots that the plugin does not have are NULL; so in the other tables.
  [[nodiscard]] const pliant_accelerator& slots() const { return slots_; }
  /// NULL when it has no collectives.
  [[nodiscard]] const pliant_collectives* collectives() const { return collectives_ ? &*collectives_ : nullptr; }
  /// NULL when it has no memory between processes.
  [[nodiscard]] const pliant_ipc* ipc() const { return ipc_ ? &*ipc_ : nullptr; }
  template <class... Parameters, class... Arguments>
  Outcome call(int32_t (*pliant_ipc::*slot)(void*, Parameters...), const Arguments&... arguments) const {
    return answer((*ipc_).*slot, arguments...);
  }
  /// NULL when it has no memory in stream order.
  [[nodiscard]] const pliant_stream_memory* stream_memory() const {
    return stream_memory_ ? &*stream_memory_ : nullptr;
  }
  template <class... Parameters, class... Arguments>
  Outcome call(int32_t (*pliant_stream_memory::*slot)(void*, Parameters...), const Arguments&... arguments) const {
    return answer((*stream_memory_).*slot, arguments...);
  }
  [[nodiscard]] void* self() const { return instance_.self(); }
  [[nodiscard]] int32_t devices() const { return devices_; }
  [[nodiscard]] bool has(uint32_t capability) const { return (capabilities_ & capability) != 0; }

  /// Move bytes between the host and memory of any sort, and wait.
  void write(void* to, const void* from, uint64_t bytes) const;
  void read(void* to, const void* from, uint64_t bytes) const;

 private:
  template <class... Parameters, class... Arguments>
  Outcome answer(int32_t (*slot)(void*, Parameters...), const Arguments&... arguments) const {
    pliant_error error = blank_error();
    const int32_t status = slot(self(), Converted<Arguments>{arguments}..., &error);
    return {status, status == PLIANT_OK ? "" : error.message};
  }
  /// Becomes what the slot takes: literals of the checks are small and not negative where a slot takes unsigned ones.
  template <class A>
  struct Converted {
    const A& value;
    template <class P>
    operator P() const {  // NOLINT(google-explicit-constructor)
      if constexpr (std::is_integral_v<P>) {
        return static_cast<P>(value);
      } else {
        return value;
      }
    }
  };
  void move(void* to, const void* from, uint64_t bytes) const;

  OpenedPlugin plugin_;
  OptionRow options_;
  OwnInstance instance_;
  pliant_accelerator slots_{};
  std::optional<pliant_collectives> collectives_;
  std::optional<pliant_ipc> ipc_;
  std::optional<pliant_stream_memory> stream_memory_;
  int32_t devices_ = 0;
  uint32_t capabilities_ = 0;
};

class Memory {
 public:
  Memory(const Accelerator& accelerator, uint64_t bytes, int32_t kind = PLIANT_MEMORY_DEVICE, int32_t device = 0);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  [[nodiscard]] unsigned char* at(uint64_t offset = 0) const { return static_cast<unsigned char*>(pointer_) + offset; }

 private:
  const Accelerator& accelerator_;
  int32_t kind_;
  int32_t device_;
  void* pointer_ = nullptr;
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

class Stream {
 public:
  explicit Stream(const Accelerator& accelerator, int32_t device = 0, int32_t role = PLIANT_STREAM_COMPUTE,
                  int32_t priority = PLIANT_PRIORITY_NORMAL);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator pliant_stream*() const { return handle_; }  // NOLINT(google-explicit-constructor)
  [[nodiscard]] Outcome synchronize() const;
  /// Fails the check when enqueued work failed.
  void wait() const { must("stream_synchronize", synchronize()); }
  [[nodiscard]] bool done() const;

 private:
  const Accelerator& accelerator_;
  pliant_stream* handle_ = nullptr;
};

class Event {
 public:
  explicit Event(const Accelerator& accelerator, uint32_t flags = 0, int32_t device = 0);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  operator pliant_event*() const { return handle_; }  // NOLINT(google-explicit-constructor)
  void record(const Stream& stream) const;
  [[nodiscard]] bool done() const;
  void wait() const;

 private:
  const Accelerator& accelerator_;
  pliant_event* handle_ = nullptr;
};

/// Runs `call` on a thread of its own and fails the check, saying `what`, when it has not returned after kReturnMs.
inline constexpr int32_t kReturnMs = 3000;
void returns_soon(const std::string& what, const std::function<void()>& call);

}  // namespace pliant::testkit
