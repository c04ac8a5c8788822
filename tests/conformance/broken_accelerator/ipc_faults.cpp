// Faults of memory and events between processes.
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "faults.hpp"

namespace pliant::broken {
namespace {

/// Nothing wrong, and its memory and events go to other processes.
struct HonestIpc : Honest {
  HonestIpc() : Honest({.ipc = true}) {}
  static bool is_imported(const Event& event) { return event.shared() != nullptr && !event.shared()->is_own(); }
};

/// A handle belongs to an address, not to the allocation there.
class HandleStale : public HonestIpc {
 public:
  ~HandleStale() override {
    for (const auto& [pointer, handle] : handles_) ::close(handle.descriptor);
  }
  pliant_ipc_handle export_memory(int32_t device, const void* pointer) override {
    const auto found = handles_.find(pointer);
    if (found != handles_.end()) {
      pliant_ipc_handle again = found->second;
      again.descriptor = ::dup(again.descriptor);
      return again;
    }
    pliant_ipc_handle made = Device::export_memory(device, pointer);
    pliant_ipc_handle kept = made;
    kept.descriptor = ::dup(made.descriptor);
    handles_.emplace(pointer, kept);
    return made;
  }

 private:
  std::map<const void*, pliant_ipc_handle> handles_;
};

/// Imported memory is a copy as of the import.
struct ImportCopies : HonestIpc {
  void* import_memory(int32_t device, const pliant_ipc_handle& handle) override {
    auto* const there = static_cast<std::byte*>(Device::import_memory(device, handle));
    uint64_t bytes = 0;
    std::memcpy(&bytes, handle.bytes + 40, sizeof(bytes));
    std::vector<std::byte> copy(there, there + bytes);
    Device::release_memory(device, there);
    void* const at = copy.data();
    copies.emplace(at, std::move(copy));
    return at;
  }
  void release_memory(int32_t, void* pointer) override { copies.erase(pointer); }
  std::map<void*, std::vector<std::byte>> copies;
};

/// Memory that was freed can still be imported.
struct FreeShares : HonestIpc {
  void free(int32_t device, Memory memory, void* pointer) override {
    if (memory != Memory::kExchange) Device::free(device, memory, pointer);
  }
};

/// Each handle leaves a descriptor behind.
struct ExportLeaks : HonestIpc {
  pliant_ipc_handle export_memory(int32_t device, const void* pointer) override {
    const pliant_ipc_handle made = Device::export_memory(device, pointer);
    [[maybe_unused]] const int left_behind = ::dup(made.descriptor);
    return made;
  }
};

/// What is not exchange memory gets a handle, too.
struct ExportAny : HonestIpc {
  pliant_ipc_handle export_memory(int32_t device, const void* pointer) override {
    try {
      return Device::export_memory(device, pointer);
    } catch (const Failure&) {
      pliant_ipc_handle made{};
      made.bytes[0] = 1;
      made.descriptor = -1;
      return made;
    }
  }
};

/// The host is told that whatever another process recorded is done.
struct PeerEventDone : HonestIpc {
  using Honest::query;
  bool query(Event& event) override { return is_imported(event) || Device::query(event); }
  using Honest::synchronize;
  void synchronize(Event& event) override {
    if (!is_imported(event)) Device::synchronize(event);
  }
};

/// Streams do not wait for events of other processes.
struct PeerEventUnwaited : HonestIpc {
  void wait(Stream& stream, Event& event) override {
    if (!is_imported(event)) Device::wait(stream, event);
  }
};

/// An event for other processes is recorded at once, not in stream order.
struct PeerEventEarly : HonestIpc {
  void record(Event& event, Stream& stream) override {
    if (event.shared() == nullptr) return Device::record(event, stream);
    Stream idle(nullptr, 1);
    Device::record(event, idle);
  }
};

/// A stream waits for the latest recording of another process, whichever that is meanwhile.
struct PeerEventLatest : HonestIpc {
  void wait(Stream& stream, Event& event) override {
    if (!is_imported(event)) return Device::wait(stream, event);
    stream.enqueue([shared = event.shared()->shared_from_this()] {
      while (!shared->is_over(shared->state(shared->latest()))) std::this_thread::yield();
    });
  }
};

/// A stream goes on as if nothing were when the process dies that recorded its event.
struct PeerEventUntold : HonestIpc {
  void wait(Stream& stream, Event& event) override {
    if (!is_imported(event)) return Device::wait(stream, event);
    auto own = std::make_shared<Stream>(nullptr, uint64_t{1});
    Device::wait(*own, event);
    stream.enqueue([own] {
      try {
        own->synchronize();
      } catch (const Failure&) {
      }
    });
  }
};

/// Whatever handle of an event comes is taken.
struct PeerEventAny : HonestIpc {
  std::unique_ptr<Event> import_event(int32_t device, const pliant_ipc_handle& handle) override {
    try {
      return Device::import_event(device, handle);
    } catch (const Failure&) {
      return std::make_unique<Event>(false);
    }
  }
};

}  // namespace

std::vector<Fault> ipc_faults() {
  return {{"handle-stale", {}, make<HandleStale>},
          {"import-copies", {}, make<ImportCopies>},
          {"free-shares", {}, make<FreeShares>},
          {"export-leaks", {}, make<ExportLeaks>},
          {"export-any", {}, make<ExportAny>},
          {"peer-event-done", {}, make<PeerEventDone>},
          {"peer-event-unwaited", {}, make<PeerEventUnwaited>},
          {"peer-event-early", {}, make<PeerEventEarly>},
          {"peer-event-latest", {}, make<PeerEventLatest>},
          {"peer-event-untold", {}, make<PeerEventUntold>},
          {"peer-event-any", {}, make<PeerEventAny>}};
}

}  // namespace pliant::broken
