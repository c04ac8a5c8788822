// How a host calls slots, on a table that is made here.
#include <doctest/doctest.h>

#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "pliant/sdk/calls.hpp"

namespace {

using namespace pliant::sdk;

/// What was done to it, in order.
struct Fake {
  std::vector<std::string> done;
};

Fake& fake(void* self) {
  return *static_cast<Fake*>(self);
}

int32_t refuse(pliant_error* error) {
  return detail::set_error(
      error,
      Failure(PLIANT_RESOURCE_EXHAUSTED, "no room; raise memory_bytes", "memory_bytes").about_device(2).about_rank(5));
}

pliant_accelerator make_table() {
  pliant_accelerator table{};
  table.struct_size = sizeof(table);
  table.device_count = [](void*, int32_t* count, pliant_error* error) -> int32_t {
    CHECK(error->struct_size == sizeof(*error));
    CHECK(error->message[0] == '\0');
    CHECK(error->rank == -1);
    CHECK(error->device == -1);
    *count = 3;
    return PLIANT_OK;
  };
  table.alloc = [](void* self, int32_t device, int32_t, uint64_t bytes, void** out, pliant_error* error) -> int32_t {
    if (bytes > 100) return refuse(error);
    fake(self).done.push_back("alloc on " + std::to_string(device));
    *out = self;
    return PLIANT_OK;
  };
  table.free = [](void* self, int32_t device, int32_t memory, void*) {
    fake(self).done.push_back("free on " + std::to_string(device) + " of kind " + std::to_string(memory));
  };
  table.stream_create = [](void* self, int32_t device, int32_t role, int32_t priority, pliant_stream** out,
                           pliant_error* error) -> int32_t {
    if (device > 2) return refuse(error);
    fake(self).done.push_back("stream " + std::to_string(role) + std::to_string(priority));
    *out = static_cast<pliant_stream*>(self);
    return PLIANT_OK;
  };
  table.stream_destroy = [](void* self, pliant_stream*) { fake(self).done.push_back("end of a stream"); };
  return table;
}

}  // namespace

TEST_CASE("a slot is called with a blank error, and what it refuses is an answer or is thrown") {
  const pliant_accelerator table = make_table();
  Fake self;
  const Calls<pliant_accelerator> calls(table, &self);
  int32_t count = 0;
  CHECK(calls.ask(&pliant_accelerator::device_count, &count).ok());
  CHECK(count == 3);
  void* memory = nullptr;
  const Answer answer = calls.ask(&pliant_accelerator::alloc, 0, PLIANT_MEMORY_DEVICE, 101, &memory);
  CHECK(answer.status == PLIANT_RESOURCE_EXHAUSTED);
  CHECK(answer.message == "no room; raise memory_bytes");
  CHECK(answer.options == "memory_bytes");
  CHECK(answer.rank == 5);
  CHECK(answer.device == 2);
  try {
    calls.must(&pliant_accelerator::alloc, 0, PLIANT_MEMORY_DEVICE, 101, &memory);
    FAIL("nothing was thrown");
  } catch (const Failure& failure) {
    CHECK(failure.status() == PLIANT_RESOURCE_EXHAUSTED);
    CHECK(failure.what() == std::string("no room; raise memory_bytes"));
    CHECK(failure.options() == "memory_bytes");
    CHECK(failure.rank() == 5);
    CHECK(failure.device() == 2);
  }
  CHECK(calls.has(&pliant_accelerator::alloc));
  CHECK_FALSE(calls.has(&pliant_accelerator::why_no_devices));
  CHECK(calls.ask(&pliant_accelerator::why_no_devices, nullptr, 0).status == PLIANT_UNIMPLEMENTED);
  CHECK(Calls<pliant_accelerator>().ask(&pliant_accelerator::device_count, &count).status == PLIANT_UNIMPLEMENTED);
  CHECK_FALSE(Calls<pliant_accelerator>());
  CHECK_FALSE(Calls<pliant_accelerator>().has(&pliant_accelerator::alloc));
}

TEST_CASE("what a slot throws is an answer that says which slot threw what, as far as there is room") {
  pliant_accelerator table = make_table();
  table.device_count = [](void*, int32_t*, pliant_error*) -> int32_t { throw std::runtime_error("boom"); };
  table.memory_info = [](void*, int32_t, uint64_t*, uint64_t*, pliant_error*) -> int32_t {
    throw std::runtime_error(std::string(1000, 'x'));
  };
  table.alloc = [](void*, int32_t, int32_t, uint64_t, void**, pliant_error*) -> int32_t { throw 7; };
  const Calls<pliant_accelerator> calls(table, nullptr);
  int32_t count = 0;
  const Answer answer = calls.ask(&pliant_accelerator::device_count, &count);
  CHECK(answer.status == PLIANT_INTERNAL);
  CHECK(answer.message == "device_count threw across the border: boom");
  CHECK(answer.rank == -1);
  uint64_t free_bytes = 0;
  uint64_t all_bytes = 0;
  const Answer cut = calls.ask(&pliant_accelerator::memory_info, 0, &free_bytes, &all_bytes);
  CHECK(cut.status == PLIANT_INTERNAL);
  CHECK(cut.message.size() == sizeof(pliant_error::message) - 1);
  void* memory = nullptr;
  CHECK_THROWS_WITH_AS(calls.must(&pliant_accelerator::alloc, 0, PLIANT_MEMORY_DEVICE, 7, &memory),
                       "alloc threw across the border: an exception other than std::exception", Failure);
  table.why_no_devices = [](void*, char*, uint64_t, pliant_error*) -> int32_t { throw std::runtime_error("boom"); };
  const Answer appended = calls.ask(&pliant_accelerator::why_no_devices, nullptr, 0);
  CHECK(appended.message == "a call threw across the border: boom");
  pliant_error error;
  CHECK(call("device_count", nullptr, error, table.device_count, &count) == PLIANT_INTERNAL);
  CHECK(std::string(error.message) == "device_count threw across the border: boom");
  bool threw = false;
  CHECK(fenced(
            error, "it", [] { return int32_t{PLIANT_ABORTED}; }, &threw) == PLIANT_ABORTED);
  CHECK_FALSE(threw);
  CHECK(fenced(
            error, "it", []() -> int32_t { throw 7; }, &threw) == PLIANT_INTERNAL);
  CHECK(threw);
}

TEST_CASE("a number that a slot cannot take is refused before the call, not cut") {
  const pliant_accelerator table = make_table();
  Fake self;
  const Calls<pliant_accelerator> calls(table, &self);
  void* memory = nullptr;
  const auto status_of = [&](auto device, auto bytes) {
    try {
      return calls.ask(&pliant_accelerator::alloc, device, PLIANT_MEMORY_DEVICE, bytes, &memory).status;
    } catch (const Failure& failure) {
      return failure.status();
    }
  };
  CHECK(status_of(int64_t{2}, 7) == PLIANT_OK);
  CHECK(status_of(int64_t{1} << 32, 7) == PLIANT_OUT_OF_RANGE);
  CHECK(status_of(0, -1) == PLIANT_OUT_OF_RANGE);
  CHECK(status_of(uint32_t{0xffffffff}, 7) == PLIANT_OUT_OF_RANGE);
  CHECK(self.done == std::vector<std::string>{"alloc on 2"});
}

TEST_CASE("a handle ends once, with whoever owns it last") {
  const pliant_accelerator table = make_table();
  Fake self;
  const Calls<pliant_accelerator> calls(table, &self);
  {
    OwnedStream first = make_stream(calls, 0, PLIANT_STREAM_GATHER, PLIANT_PRIORITY_HIGH);
    CHECK(first.get() != nullptr);
    OwnedStream second = std::move(first);
    CHECK(self.done == std::vector<std::string>{"stream 11"});
    second.reset();
    second.reset();
    CHECK(self.done.size() == 2);
    second = make_stream(calls, 0);
    second = make_stream(calls, 1);
    CHECK(self.done.size() == 5);  // the one before has ended
  }
  CHECK(self.done.size() == 6);
  CHECK(self.done.back() == "end of a stream");
  CHECK_THROWS_AS(make_stream(calls, 3), Failure);
  CHECK(self.done.size() == 6);
  {
    OwnedMemory first(calls, 1, PLIANT_MEMORY_PINNED, 4);
    const OwnedMemory second(std::move(first));
    CHECK(self.done.back() == "alloc on 1");
    CHECK(second.get() == &self);
  }
  CHECK(self.done.back() == "free on 1 of kind 2");
  CHECK_THROWS_AS(OwnedMemory(calls, 1, PLIANT_MEMORY_PINNED, 101), Failure);
  CHECK(self.done.size() == 8);
}
