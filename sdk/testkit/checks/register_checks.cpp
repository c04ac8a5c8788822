// Memory of the program that is pinned.
#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <memory>

#include "testkit/checks/accelerator_checks.hpp"
#include "testkit/gate.hpp"
#include "testkit/values.hpp"

namespace pliant::testkit {

namespace {

using Slots = pliant_accelerator;

constexpr uint64_t kOwnPage = 4096;
constexpr uint64_t kOwnBytes = 16 * kOwnPage;

/// Whole pages of the program, so that a driver which pins pages pins nothing else.
class OwnPages {
 public:
  explicit OwnPages(uint64_t bytes = kOwnBytes) : memory_(std::aligned_alloc(kOwnPage, bytes)) {
    if (memory_ == nullptr) skip("there is no memory for it");
  }
  ~OwnPages() { std::free(memory_); }
  OwnPages(const OwnPages&) = delete;
  OwnPages& operator=(const OwnPages&) = delete;
  [[nodiscard]] unsigned char* at(uint64_t offset = 0) const { return static_cast<unsigned char*>(memory_) + offset; }

 private:
  void* memory_;
};

Outcome registered(const Accelerator& accelerator, const void* pointer, uint64_t bytes) {
  if (accelerator.slots().register_host == nullptr) skip("it lacks the optional register_host");
  expect(accelerator.slots().unregister_host != nullptr, "it has register_host, and no unregister_host");
  return accelerator.call(&Slots::register_host, const_cast<void*>(pointer), bytes);
}

void unregister(const Accelerator& accelerator, const void* pointer) {
  accelerator.slots().unregister_host(accelerator.self(), const_cast<void*>(pointer));
}

/// Registered while it lives. Skips the check where the device cannot.
class Registered {
 public:
  Registered(const Accelerator& accelerator, const unsigned char* pointer, uint64_t bytes)
      : accelerator_(accelerator), pointer_(pointer) {
    const Outcome outcome = registered(accelerator, pointer, bytes);
    if (outcome.status == PLIANT_UNIMPLEMENTED) skip(outcome.message);
    must("register_host", outcome);
  }
  ~Registered() { unregister(accelerator_, pointer_); }
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;

 private:
  const Accelerator& accelerator_;
  const unsigned char* pointer_;
};

/// PLIANT_MEMORY_* of what is there, 0 for none; empty base and device where there is none.
pliant_pointer_info told_of(const Accelerator& accelerator, const void* pointer) {
  if (accelerator.slots().pointer_info == nullptr) skip("it lacks the optional pointer_info");
  pliant_pointer_info found{};
  found.struct_size = sizeof(found);
  must("pointer_info", accelerator.call(&Slots::pointer_info, pointer, &found));
  return found;
}

void registered_known(const Subject& subject) {
  const Accelerator accelerator(subject);
  const OwnPages pages;
  const unsigned char* const begin = pages.at(kOwnPage);
  constexpr uint64_t kLength = 3 * kOwnPage;
  for (int round = 0; round < 3; ++round) {
    {
      const Registered held(accelerator, begin, kLength);
      for (const uint64_t offset : std::initializer_list<uint64_t>{0, 1, kOwnPage, kLength - 1}) {
        const pliant_pointer_info found = told_of(accelerator, begin + offset);
        const std::string what = "byte " + std::to_string(offset) + " of registered memory";
        expect(found.memory == PLIANT_MEMORY_PINNED, "pointer_info reports " + what + " as memory of kind " +
                                                         std::to_string(found.memory) + ", not as pinned memory");
        const auto* const base = static_cast<const unsigned char*>(found.base);
        const bool holds = base == nullptr || (base <= begin && base + found.bytes >= begin + kLength);
        expect(holds, "pointer_info gives a range of " + what + " that does not hold all that was registered");
      }
    }
    expect(told_of(accelerator, begin).memory == 0, "pointer_info knows memory that was unregistered");
  }
}

void registered_copies(const Subject& subject) {
  const Accelerator accelerator(subject);
  const OwnPages pages;
  const Registered held(accelerator, pages.at(), kOwnBytes);
  const Memory device(accelerator, kOwnBytes);
  const Stream stream(accelerator);
  const Bytes wanted = drawn_bytes(subject.seed, 1, kOwnBytes);
  std::memcpy(pages.at(), wanted.data(), kOwnBytes);
  const auto copy = [&](void* to, const void* from, uint64_t bytes) {
    must("copy_async", accelerator.call(&Slots::copy_async, to, from, bytes, stream));
  };
  {
    Gate gate;
    gate.hold(accelerator, stream);
    returns_soon("copies between registered memory and the device, on a blocked stream,", [&] {
      copy(device.at(), pages.at(), kOwnBytes);
      copy(pages.at(1), device.at(kOwnPage + 3), kOwnPage);
    });
    expect(!stream.done(), "stream_query reports a stream as done while a host function on it waits");
  }
  stream.wait();
  Bytes got(kOwnBytes);
  accelerator.read(got.data(), device.at(), kOwnBytes);
  expect(got == wanted, "a copy from registered memory to the device moves other bytes");
  const bool back = std::equal(pages.at(1), pages.at(1) + kOwnPage, wanted.begin() + kOwnPage + 3);
  expect(back && *pages.at() == wanted[0] && *pages.at(kOwnPage + 1) == wanted[kOwnPage + 1],
         "a copy from the device to the middle of registered memory moves other bytes");
}

void registered_refused(const Subject& subject) {
  const Accelerator accelerator(subject);
  const OwnPages pages;
  const Registered held(accelerator, pages.at(kOwnPage), 4 * kOwnPage);
  const auto refuses = [&](const void* pointer, uint64_t bytes, const std::string& what) {
    const Outcome outcome = registered(accelerator, pointer, bytes);
    expect(outcome.status == PLIANT_INVALID_ARGUMENT && !outcome.message.empty(),
           "register_host of " + what + " returned " + outcome.text() + ", not PLIANT_INVALID_ARGUMENT with a message");
  };
  refuses(nullptr, 64, "NULL");
  refuses(pages.at(), 0, "0 bytes");
  refuses(pages.at(kOwnPage), 4 * kOwnPage, "memory that is registered already");
  refuses(pages.at(2 * kOwnPage), kOwnPage, "a part of registered memory");
  refuses(pages.at(), 2 * kOwnPage, "memory whose end is registered already");
  refuses(pages.at(), 8 * kOwnPage, "memory whose middle is registered already");
  const Memory pinned(accelerator, kOwnPage, PLIANT_MEMORY_PINNED);
  refuses(pinned.at(), 64, "pinned memory from alloc");
}

/// Until it is unregistered by the pointer that it was registered with.
void registered_stays(const Subject& subject) {
  const Accelerator accelerator(subject);
  const OwnPages pages;
  const Registered held(accelerator, pages.at(), 2 * kOwnPage);
  for (const unsigned char* const other :
       {static_cast<unsigned char*>(nullptr), pages.at(8), pages.at(kOwnPage), pages.at(2 * kOwnPage)}) {
    unregister(accelerator, other);
  }
  const Outcome again = registered(accelerator, pages.at(), 2 * kOwnPage);
  expect(again.status == PLIANT_INVALID_ARGUMENT,
         "unregister_host of other pointers took memory that stays registered: it can be registered again");
  const Memory device(accelerator, 64);
  accelerator.write(device.at(), pages.at(8), 64);
}

/// The program may free its memory, and another piece of it may come to lie there.
void registered_many(const Subject& subject) {
  const Accelerator accelerator(subject);
  const Memory device(accelerator, kOwnPage);
  const Stream stream(accelerator);
  for (int i = 0; i < 100; ++i) {
    const OwnPages pages(2 * kOwnPage);
    const Registered first(accelerator, pages.at(), kOwnPage);
    const Registered second(accelerator, pages.at(kOwnPage), kOwnPage);
    std::memset(pages.at(), i, 2 * kOwnPage);
    const void* const from = pages.at(kOwnPage);
    must("copy_async", accelerator.call(&Slots::copy_async, static_cast<void*>(device.at()), from, kOwnPage, stream));
    stream.wait();
  }
  unsigned char last = 0;
  accelerator.read(&last, device.at(kOwnPage - 1), 1);
  expect(last == 99, "a copy from memory that was registered for the hundredth time moves other bytes");
}

}  // namespace

std::vector<Check> register_checks() {
  return {
      {"register.known", "registered memory is pinned memory until it is unregistered", registered_known},
      {"register.copies", "copies from and to registered memory return at once and move its bytes", registered_copies},
      {"register.refused", "memory that is registered already or comes from alloc is refused with a message",
       registered_refused},
      {"register.stays", "memory stays registered when other pointers are unregistered", registered_stays},
      {"register.many", "memory is registered and unregistered repeatedly, at neighbouring addresses", registered_many},
  };
}

}  // namespace pliant::testkit
