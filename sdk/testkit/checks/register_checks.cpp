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

constexpr uint64_t kPage = 4096;
constexpr uint64_t kRegistered = 16 * kPage;

/// Whole pages of the program, so that a driver which pins pages pins nothing else.
class OwnPages {
 public:
  explicit OwnPages(uint64_t bytes = kRegistered) : memory_(std::aligned_alloc(kPage, bytes)) {
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
  if (accelerator.slots().register_host == nullptr) skip("it does not have the optional register_host");
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
pliant_pointer_info info_of(const Accelerator& accelerator, const void* pointer) {
  if (accelerator.slots().pointer_info == nullptr) skip("it does not have the optional pointer_info");
  pliant_pointer_info found{};
  found.struct_size = sizeof(found);
  must("pointer_info", accelerator.call(&Slots::pointer_info, pointer, &found));
  return found;
}

void known_as_pinned(const Subject& subject) {
  const Accelerator accelerator(subject);
  const OwnPages pages;
  const unsigned char* const begin = pages.at(kPage);
  constexpr uint64_t kLength = 3 * kPage;
  for (int round = 0; round < 3; ++round) {
    {
      const Registered held(accelerator, begin, kLength);
      for (const uint64_t offset : std::initializer_list<uint64_t>{0, 1, kPage, kLength - 1}) {
        const pliant_pointer_info found = info_of(accelerator, begin + offset);
        const std::string what = "byte " + std::to_string(offset) + " of registered memory";
        expect(found.memory == PLIANT_MEMORY_PINNED, "pointer_info takes " + what + " for memory of kind " +
                                                         std::to_string(found.memory) + ", not for pinned memory");
        const auto* const base = static_cast<const unsigned char*>(found.base);
        const bool holds = base == nullptr || (base <= begin && base + found.bytes >= begin + kLength);
        expect(holds, "pointer_info tells a range of " + what + " that does not hold all that was registered");
      }
    }
    expect(info_of(accelerator, begin).memory == 0, "pointer_info knows memory that is registered no more");
  }
}

void copies(const Subject& subject) {
  const Accelerator accelerator(subject);
  const OwnPages pages;
  const Registered held(accelerator, pages.at(), kRegistered);
  const Memory device(accelerator, kRegistered);
  const Stream stream(accelerator);
  const Bytes wanted = drawn_bytes(subject.seed, 1, kRegistered);
  std::memcpy(pages.at(), wanted.data(), kRegistered);
  const auto copy = [&](void* to, const void* from, uint64_t bytes) {
    must("copy_async", accelerator.call(&Slots::copy_async, to, from, bytes, stream));
  };
  {
    Gate gate;
    gate.hold(accelerator, stream);
    returns_soon("copies between registered memory and the device, on a stream that stands,", [&] {
      copy(device.at(), pages.at(), kRegistered);
      copy(pages.at(1), device.at(kPage + 3), kPage);
    });
    expect(!stream.done(), "stream_query says that a stream is done while a host function on it waits");
  }
  stream.wait();
  Bytes got(kRegistered);
  accelerator.read(got.data(), device.at(), kRegistered);
  expect(got == wanted, "a copy from registered memory to the device moves other bytes");
  const bool back = std::equal(pages.at(1), pages.at(1) + kPage, wanted.begin() + kPage + 3);
  expect(back && *pages.at() == wanted[0] && *pages.at(kPage + 1) == wanted[kPage + 1],
         "a copy from the device to the middle of registered memory moves other bytes");
}

void odd_registrations(const Subject& subject) {
  const Accelerator accelerator(subject);
  const OwnPages pages;
  const Registered held(accelerator, pages.at(kPage), 4 * kPage);
  const auto refuses = [&](const void* pointer, uint64_t bytes, const std::string& what) {
    const Outcome outcome = registered(accelerator, pointer, bytes);
    expect(outcome.status == PLIANT_INVALID_ARGUMENT && !outcome.message.empty(),
           "register_host of " + what + " answered " + outcome.text() + ", not PLIANT_INVALID_ARGUMENT in words");
  };
  refuses(nullptr, 64, "NULL");
  refuses(pages.at(), 0, "0 bytes");
  refuses(pages.at(kPage), 4 * kPage, "memory that is registered already");
  refuses(pages.at(2 * kPage), kPage, "a part of registered memory");
  refuses(pages.at(), 2 * kPage, "memory whose end is registered already");
  const Memory pinned(accelerator, kPage, PLIANT_MEMORY_PINNED);
  refuses(pinned.at(), 64, "pinned memory that alloc gave");
}

/// Until it is unregistered by the pointer that it was registered with.
void stays(const Subject& subject) {
  const Accelerator accelerator(subject);
  const OwnPages pages;
  const Registered held(accelerator, pages.at(), 2 * kPage);
  for (const unsigned char* const other :
       {static_cast<unsigned char*>(nullptr), pages.at(8), pages.at(kPage), pages.at(2 * kPage)}) {
    unregister(accelerator, other);
  }
  const Outcome again = registered(accelerator, pages.at(), 2 * kPage);
  expect(again.status == PLIANT_INVALID_ARGUMENT,
         "unregister_host of other pointers took memory that stays registered: it can be registered again");
  const Memory device(accelerator, 64);
  accelerator.write(device.at(), pages.at(8), 64);
}

/// The program may free its memory, and another piece of it may come to lie there.
void many(const Subject& subject) {
  const Accelerator accelerator(subject);
  const Memory device(accelerator, kPage);
  const Stream stream(accelerator);
  for (int i = 0; i < 100; ++i) {
    const OwnPages pages(2 * kPage);
    const Registered first(accelerator, pages.at(), kPage);
    const Registered second(accelerator, pages.at(kPage), kPage);
    std::memset(pages.at(), i, 2 * kPage);
    const void* const from = pages.at(kPage);
    must("copy_async", accelerator.call(&Slots::copy_async, static_cast<void*>(device.at()), from, kPage, stream));
    stream.wait();
  }
  unsigned char last = 0;
  accelerator.read(&last, device.at(kPage - 1), 1);
  expect(last == 99, "a copy from memory that was registered for the hundredth time moves other bytes");
}

}  // namespace

std::vector<Check> register_checks() {
  return {
      {"register.known", "registered memory is pinned memory, and none once it is unregistered", known_as_pinned},
      {"register.copies", "copies from and to registered memory return at once and move its bytes", copies},
      {"register.refused", "memory that is registered already, or given by alloc, is refused in words", odd_registrations},
      {"register.stays", "memory stays registered whatever other pointers are unregistered", stays},
      {"register.many", "memory is registered and unregistered again and again, side by side", many},
  };
}

}  // namespace pliant::testkit
