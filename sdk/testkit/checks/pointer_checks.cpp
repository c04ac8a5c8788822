// What the plugin says of pointers: kind, device and range of its memory, and nothing of any other.
#include <algorithm>
#include <initializer_list>

#include "testkit/accelerator.hpp"
#include "testkit/checks/accelerator_checks.hpp"

namespace pliant::testkit {

namespace {

using Slots = pliant_accelerator;

constexpr uint64_t kBytes = 1000003;

pliant_pointer_info asked(const Accelerator& accelerator, const void* pointer) {
  if (accelerator.slots().pointer_info == nullptr) skip("it lacks the optional pointer_info");
  pliant_pointer_info found{};
  found.struct_size = sizeof(found);
  must("pointer_info", accelerator.call(&Slots::pointer_info, pointer, &found));
  expect(found.struct_size == sizeof(found), "pointer_info changed struct_size, which is the host's");
  return found;
}

struct Kind {
  int32_t memory;
  const char* words;
  uint32_t capability;  ///< 0: always there
};
constexpr Kind kKindsOfMemory[] = {{PLIANT_MEMORY_DEVICE, "device memory", 0},
                                   {PLIANT_MEMORY_PINNED, "pinned memory", 0},
                                   {PLIANT_MEMORY_SHARED, "shared memory", PLIANT_CAP_SHARED_MEMORY},
                                   {PLIANT_MEMORY_EXCHANGE, "exchange memory", PLIANT_CAP_EXCHANGE_MEMORY},
                                   {PLIANT_MEMORY_WINDOW, "window memory", PLIANT_CAP_WINDOW_MEMORY}};

bool is_on_device(int32_t memory) {
  return memory == PLIANT_MEMORY_DEVICE || memory == PLIANT_MEMORY_EXCHANGE || memory == PLIANT_MEMORY_WINDOW;
}

void known_at(const pliant_pointer_info& found, const Kind& kind, int32_t device, const unsigned char* begin,
              uint64_t offset) {
  const std::string what = "byte " + std::to_string(offset) + " of " + std::to_string(kBytes) + " bytes of " +
                           kind.words + " of device " + std::to_string(device);
  expect(found.memory != 0, "pointer_info does not know " + what);
  const bool is_kind = found.memory == kind.memory || (is_on_device(found.memory) && is_on_device(kind.memory));
  expect(is_kind, "pointer_info reports " + what + " as memory of kind " + std::to_string(found.memory));
  const bool of_none = found.device == -1 && !is_on_device(kind.memory);
  expect(found.device == device || of_none,
         "pointer_info reports " + what + " as memory of device " + std::to_string(found.device));
  if (found.base == nullptr) return expect(found.bytes == 0, "pointer_info gives bytes of " + what + ", and no base");
  const auto base = reinterpret_cast<uintptr_t>(found.base);
  const auto first = reinterpret_cast<uintptr_t>(begin);
  expect(base <= first && found.bytes >= kBytes + (first - base), "pointer_info says that the allocation of " + what +
                                                                      " is " + std::to_string(found.bytes) +
                                                                      " bytes, which do not hold it");
}

void known(const Subject& subject) {
  const Accelerator accelerator(subject);
  for (int32_t device = 0; device < accelerator.devices(); ++device) {
    for (const Kind& kind : kKindsOfMemory) {
      if (kind.capability != 0 && !accelerator.has(kind.capability)) continue;
      const Memory before(accelerator, kBytes, kind.memory, device);
      const Memory after(accelerator, kBytes, kind.memory, device);
      for (const Memory* memory : {&before, &after}) {
        for (const uint64_t offset : std::initializer_list<uint64_t>{0, 1, kBytes / 2, kBytes - 1}) {
          known_at(asked(accelerator, memory->at(offset)), kind, device, memory->at(), offset);
        }
      }
      const pliant_pointer_info one = asked(accelerator, before.at());
      const pliant_pointer_info other = asked(accelerator, after.at());
      const auto end_of = [](const pliant_pointer_info& found) {
        return static_cast<const char*>(found.base) + found.bytes;
      };
      const bool apart =
          one.base == nullptr || other.base == nullptr || end_of(one) <= other.base || end_of(other) <= one.base;
      expect(apart, std::string("pointer_info says that two allocations of ") + kind.words + " overlap");
    }
  }
}

void unknown(const Subject& subject) {
  const Accelerator accelerator(subject);
  const auto check = [&](const void* pointer, const std::string& what) {
    const pliant_pointer_info found = asked(accelerator, pointer);
    expect(found.memory == 0, "pointer_info reports " + what + " as memory of kind " + std::to_string(found.memory));
    expect(found.device == -1 && found.base == nullptr && found.bytes == 0,
           "pointer_info does not know " + what + " but gives its device or range");
  };
  const int on_stack = 0;
  const std::vector<int> on_heap(1000);
  static const int kGlobal = 0;
  check(nullptr, "NULL");
  check(&on_stack, "memory of the stack");
  check(on_heap.data(), "memory from malloc");
  check(&kGlobal, "a constant of the program");
  for (const int32_t kind : {PLIANT_MEMORY_DEVICE, PLIANT_MEMORY_PINNED}) {
    const void* freed = nullptr;
    {
      const Memory memory(accelerator, kBytes, kind);
      freed = memory.at();
    }
    check(freed, kind == PLIANT_MEMORY_DEVICE ? "device memory that was freed" : "pinned memory that was freed");
  }
}

/// A struct of an older host ends before `base`.
void older_host(const Subject& subject) {
  const Accelerator accelerator(subject);
  static_cast<void>(asked(accelerator, nullptr));  // skips where there is no such slot
  const Memory memory(accelerator, kBytes);
  const int own = 0;
  pliant_pointer_info found{};
  found.struct_size = offsetof(pliant_pointer_info, base);
  found.base = &own;
  found.bytes = 42;
  const void* const pointer = memory.at();
  must("pointer_info", accelerator.call(&Slots::pointer_info, pointer, &found));
  expect(found.base == &own && found.bytes == 42,
         "pointer_info wrote past struct_size; PLIANT_HAS shows which fields the host knows");
  expect(found.memory != 0, "pointer_info says nothing to a host whose struct ends before base");
}

}  // namespace

std::vector<Check> pointer_checks() {
  return {
      {"pointer.known", "pointer_info gives kind, device and a containing range of memory from alloc", known},
      {"pointer.unknown", "plain memory and freed memory belong to no accelerator", unknown},
      {"pointer.older_host", "a host with an older pointer_info struct gets the fields that fit", older_host},
  };
}

}  // namespace pliant::testkit
