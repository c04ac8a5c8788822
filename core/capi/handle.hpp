// Handles: what every struct behind one begins with, and how one that is no handle of its kind is refused.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include "failure.hpp"

namespace pliant::capi {

/// What the memory of a handle begins with. Numbers that no pointer and no small count is.
enum class Tag : uint64_t {
  kFreed = 0x70'4c'69'41'6e'54'00'00,
  kConfig,
  kPlanner,
  kPlan,
  kDataset,
  kBatches,
  kBatch,
  kMicroBatches,
  kBalancer,
  kAssignment,
  kLearningRate,
  kSession,
  kRecord,
  kAccelerator,
  kBuffer,
  kStream,
  kEvent,
  kCommunicator,
  kSharded,
  kImported,
  kReport,
  kComparison,
};

/// The first base of every struct behind a handle.
template <Tag kTag>
class Handle {
 public:
  static constexpr Tag kOwnTag = kTag;
  Handle() = default;
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

 protected:
  ~Handle() { tag_ = Tag::kFreed; }

 private:
  std::atomic<Tag> tag_{kTag};  // atomic so that the last store is made
};

/// The struct behind `handle`. Throws for NULL and for what is no handle of its kind, as far as its first bytes tell.
template <class Struct>
[[nodiscard]] Struct& given(Struct* handle) {
  if (handle == nullptr) throw wrong(std::string("the ") + Struct::kName + " is NULL");
  Tag tag{};
  // Its first bytes alone are looked at: it may be no handle at all.
  // NOLINTNEXTLINE(bugprone-undefined-memory-manipulation)
  if (reinterpret_cast<uintptr_t>(handle) % alignof(Tag) == 0) std::memcpy(&tag, handle, sizeof(tag));
  if (tag != Struct::kOwnTag) {
    throw wrong(std::string("this is no ") + Struct::kName + ": it is another handle, or was freed");
  }
  return *handle;
}

/// Of a handle whose calls are [serial]. Begins with its tag, too.
template <Tag kTag>
class SerialHandle : public Handle<kTag> {
 public:
  std::atomic<bool> is_busy{false};
};

/// A call on a handle that is [serial]: throws kFailedPrecondition while another one is under way.
template <class Struct>
class Turn {
 public:
  explicit Turn(Struct* handle) : handle_(given(handle)) {
    if (handle_.is_busy.exchange(true, std::memory_order_acquire)) {
      throw Error(Status::kFailedPrecondition,
                  std::string("another thread's call on this ") + Struct::kName + " is under way");
    }
  }
  ~Turn() { handle_.is_busy.store(false, std::memory_order_release); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  Struct* operator->() const { return &handle_; }

 private:
  Struct& handle_;
};

/// Of a handle whose calls are [maker]. Begins with its tag, too.
template <Tag kTag>
class MakerHandle : public Handle<kTag> {
 public:
  const std::thread::id maker = std::this_thread::get_id();
  const pid_t process = ::getpid();
};

/// Throws kFailedPrecondition in a process that was forked from the one that made the handle.
template <class Struct>
void require_own_process(const Struct& known) {
  if (known.process == ::getpid()) return;
  throw Error(Status::kFailedPrecondition,
              std::string("this ") + Struct::kName + " is the parent's: a process that was forked has none");
}

/// The struct behind a handle that is [maker]: throws kFailedPrecondition for another thread, and in a forked process.
template <class Struct>
[[nodiscard]] Struct& makers(Struct* handle) {
  Struct& known = given(handle);
  require_own_process(known);
  if (known.maker == std::this_thread::get_id()) return known;
  throw Error(Status::kFailedPrecondition,
              std::string("this ") + Struct::kName + " is called by the thread that made it, and by no other");
}

/// Makes what `make` returns the caller's, who asked for it at `to`; *to is NULL where it throws.
template <class Struct, class Make>
int32_t hand_out(Struct** to, pliant_error_t* error, Make&& make) noexcept {
  return answer(error, [&] {
    require(to, Struct::kName);
    *to = nullptr;
    std::unique_ptr<Struct> made = make();
    *to = made.release();
  });
}

template <class Struct>
int32_t free_any(Struct* handle) noexcept {
  return answer(nullptr, [&] {
    if (handle != nullptr) delete &given(handle);
  });
}
template <class Struct>
int32_t free_serial(Struct* handle) noexcept {
  return answer(nullptr, [&] {
    if (handle == nullptr) return;
    Struct& gone = given(handle);
    if (gone.is_busy.exchange(true, std::memory_order_acquire)) {
      throw Error(Status::kFailedPrecondition,
                  std::string("this ") + Struct::kName + " is not freed: a call on it is under way");
    }
    delete &gone;
  });
}

}  // namespace pliant::capi
