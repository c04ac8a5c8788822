// BROKEN: a backend that was written against the slots themselves, without the SDK's care; one of them, the option
// `fault`, goes wrong.
#include <atomic>
#include <cstdlib>
#include <string>

#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct SlotsWrong : Honest<SlotsWrong> {
  std::string fault = "silent";
  std::atomic<int> counted{0};
  static void options(pliant::sdk::Options<SlotsWrong>& table) {
    table
        .add("fault", &SlotsWrong::fault,
             "silent: alloc refuses without a message; blind: it writes an error that nobody gave; any_device: it "
             "takes every device; null: freeing NULL crashes; larger: device_properties writes more than the host "
             "knows; unnamed: it gives no name; counts: device_count changes its mind; roles: streams that move data "
             "are refused.")
        .choices({"silent", "blind", "any_device", "null", "larger", "unnamed", "counts", "roles"});
  }
};

}  // namespace

namespace pliant::sdk::detail {

template <class T>
struct SlotsWrongAdapter : AcceleratorAdapter<T> {
  using Base = AcceleratorAdapter<T>;
  static bool is(void* self, const char* fault) { return Base::device_of(self).fault == fault; }

  static int32_t alloc(void* self, int32_t device, int32_t memory, uint64_t bytes, void** out, pliant_error* error) {
    if (is(self, "any_device")) device = 0;
    const int32_t status = Base::alloc(self, device, memory, bytes, out, error);
    if (is(self, "silent") && status != PLIANT_OK && error != nullptr) error->message[0] = '\0';
    if (is(self, "blind") && status != PLIANT_OK) *const_cast<volatile int32_t*>(&error->status) = status;
    return status;
  }
  static void free(void* self, int32_t device, int32_t memory, void* pointer) {
    if (is(self, "null") && pointer == nullptr) std::abort();
    Base::free(self, device, memory, pointer);
  }
  static int32_t device_properties(void* self, int32_t device, pliant_device_properties* out, pliant_error* error) {
    const int32_t status = Base::device_properties(self, device, out, error);
    if (is(self, "larger")) out->name[sizeof(out->name) - 1] = '\0';
    if (is(self, "unnamed") && PLIANT_HAS(pliant_device_properties, out, name)) out->name[0] = '\0';
    return status;
  }
  static int32_t device_count(void* self, int32_t* count, pliant_error*) {
    *count = is(self, "counts") && ++Base::device_of(self).counted == 2 ? 2 : 1;
    return PLIANT_OK;
  }
  static int32_t stream_create(void* self, int32_t device, int32_t role, int32_t priority, pliant_stream** out,
                               pliant_error* error) {
    return Base::stream_create(self, device, is(self, "roles") && role > PLIANT_STREAM_SCATTER ? -1 : role, priority,
                               out, error);
  }
  static const void* vtable() {
    static const pliant_accelerator kTable = [] {
      pliant_accelerator made = *static_cast<const pliant_accelerator*>(Base::vtable());
      made.alloc = &alloc;
      made.free = &free;
      made.stream_create = &stream_create;
      made.device_properties = &device_properties;
      made.device_count = &device_count;
      return made;
    }();
    return &kTable;
  }
};

}  // namespace pliant::sdk::detail

PLIANT_DETAIL_EXPORT(SlotsWrong, SlotsWrongAdapter, PLIANT_KIND_ACCELERATOR, "slots-wrong", "0.0.1",
                     "Broken on purpose, to test the kit")
