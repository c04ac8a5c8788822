// Memory of the embedding API: kinds, and memory in stream order.
#include <doctest/doctest.h>

#include <cstring>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "pliant/communicator.hpp"
#include "wrapper.hpp"

using pliant::MemoryKind;
using pliant::test::error_of;
using pliant::test::Held;
using pliant::test::host;
using pliant::test::sim;

namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20U;

}  // namespace

TEST_CASE("memory of every kind can be had, plain memory where the device has no other") {
  const pliant::Accelerator accelerator = host();
  pliant::Stream stream(accelerator, 0);
  for (const MemoryKind kind : {MemoryKind::kDevice, MemoryKind::kPinned, MemoryKind::kShared, MemoryKind::kExchange}) {
    const pliant::Buffer buffer(accelerator, 0, 100, kind);
    stream.fill(buffer.pointer(), 7, 100);
    stream.synchronize();
    CHECK(static_cast<uint8_t*>(buffer.pointer())[99] == 7);
  }
}

TEST_CASE("memory begins at a multiple of what is asked for, also where the device aligns none") {
  for (const pliant::Accelerator& accelerator : {host(), sim("aligned = true"), sim("aligned = false")}) {
    for (const MemoryKind kind :
         {MemoryKind::kDevice, MemoryKind::kPinned, MemoryKind::kShared, MemoryKind::kExchange, MemoryKind::kWindow}) {
      std::vector<pliant::Buffer> kept;
      for (const uint64_t alignment : {uint64_t{1}, uint64_t{64}, uint64_t{256}, uint64_t{1024}, uint64_t{4096}}) {
        for (const uint64_t bytes : {uint64_t{1}, uint64_t{100}, uint64_t{4097}, 3 * kMiB}) {
          const pliant::Buffer& made = kept.emplace_back(accelerator, 0, bytes, kind, alignment);
          CHECK(reinterpret_cast<uintptr_t>(made.pointer()) % alignment == 0);
          CHECK(made.bytes() == bytes);
          std::memset(made.pointer(), 42, bytes);
        }
      }
    }
  }
}

TEST_CASE("memory that lies inside of more is given back whole, and an alignment that is none is refused") {
  const pliant::Accelerator accelerator = sim("aligned = false\nmemory_bytes = 1048576");
  for (int i = 0; i < 4; ++i) {
    const pliant::Buffer most(accelerator, 0, kMiB - 4095, MemoryKind::kDevice, 4096);
    CHECK(accelerator.memory_info(0).free_bytes == 0);
  }
  CHECK(accelerator.memory_info(0).free_bytes == kMiB);
  for (const uint64_t alignment : {uint64_t{0}, uint64_t{24}, uint64_t{8192}}) {
    const auto refused = error_of([&] { pliant::Buffer(accelerator, 0, 64, MemoryKind::kDevice, alignment); });
    REQUIRE(refused);
    CHECK(refused->status() == pliant::Status::kInvalidArgument);
  }
  const auto full = error_of([&] { pliant::Buffer(accelerator, 0, ~uint64_t{0}, MemoryKind::kDevice, 4096); });
  REQUIRE(full);
  CHECK(full->status() == pliant::Status::kResourceExhausted);
}

TEST_CASE("what memory a pointer leads to is told: kind, device and range, and nothing of plain and freed memory") {
  const pliant::Accelerator accelerator = sim("host_visible = false");
  for (const MemoryKind kind : {MemoryKind::kDevice, MemoryKind::kPinned, MemoryKind::kShared, MemoryKind::kExchange}) {
    const pliant::Buffer before(accelerator, 0, 64, kind);
    std::optional<pliant::Buffer> buffer(std::in_place, accelerator, 0, 100, kind);
    auto* const begin = static_cast<std::byte*>(buffer->pointer());
    for (const uint64_t offset : {0U, 1U, 99U}) {
      const auto info = accelerator.pointer_info(begin + offset);
      REQUIRE(info);
      CHECK(info->kind == kind);
      CHECK(info->device == (kind == MemoryKind::kPinned ? -1 : 0));
      CHECK(info->base == begin);
      CHECK(info->bytes == 100);
    }
    CHECK_FALSE(accelerator.pointer_info(begin + 100));
    buffer.reset();
    CHECK_FALSE(accelerator.pointer_info(begin));
    CHECK(accelerator.pointer_info(before.pointer()));
  }
  const int plain = 0;
  CHECK_FALSE(accelerator.pointer_info(&plain));
  CHECK_FALSE(accelerator.pointer_info(nullptr));
}

TEST_CASE("memory of the program is pinned while it is registered, and stays as it was where the accelerator cannot") {
  std::vector<uint8_t> own(100000);
  for (const bool can : {true, false}) {
    const pliant::Accelerator accelerator =
        sim(std::string("host_visible = false\nregisters = ") + (can ? "true" : "false"));
    pliant::Stream stream(accelerator, 0);
    const pliant::Buffer there(accelerator, 0, own.size());
    {
      pliant::RegisteredMemory first(accelerator, own.data(), own.size());
      const pliant::RegisteredMemory registered = std::move(first);
      CHECK_FALSE(first.is_pinned());  // NOLINT(bugprone-use-after-move): it says that it is empty
      CHECK(registered.is_pinned() == can);
      CHECK(registered.pointer() == own.data());
      CHECK(registered.bytes() == own.size());
      const auto info = accelerator.pointer_info(&own[500]);
      CHECK(info.has_value() == can);
      if (can) {
        CHECK(info->kind == MemoryKind::kPinned);
        CHECK(info->base == own.data());
        CHECK(info->bytes == own.size());
        const auto twice = error_of([&] { pliant::RegisteredMemory(accelerator, &own[7], 1); });
        REQUIRE(twice);
        CHECK(twice->status() == pliant::Status::kInvalidArgument);
      }
      own.assign(own.size(), 3);
      stream.copy(there.pointer(), own.data(), own.size());
      stream.fill(there.pointer(), 4, 10);
      stream.copy(own.data(), there.pointer(), own.size());
      stream.synchronize();
      CHECK(own[9] == 4);
      CHECK(own[10] == 3);
    }
    CHECK_FALSE(accelerator.pointer_info(&own[500]));
  }
  const pliant::Accelerator accelerator = host();
  CHECK(pliant::RegisteredMemory(accelerator, own.data(), 1).is_pinned());
  const pliant::Buffer pinned(accelerator, 0, 100, MemoryKind::kPinned);
  for (const auto& [pointer, bytes] :
       {std::pair<void*, uint64_t>{pinned.pointer(), 10}, {nullptr, 10}, {own.data(), 0}}) {
    void* const begin = pointer;
    const uint64_t length = bytes;
    const auto refused = error_of([&] { pliant::RegisteredMemory(accelerator, begin, length); });
    REQUIRE(refused);
    CHECK(refused->status() == pliant::Status::kInvalidArgument);
  }
}

TEST_CASE("memory taken in stream order counts as taken, and serves its stream again at once") {
  const pliant::Accelerator accelerator = host("memory_bytes = 16777216");
  pliant::Stream stream(accelerator, 0);
  Held held(accelerator, stream);
  void* pointer = nullptr;
  {
    const pliant::StreamBuffer buffer(stream, 3 * kMiB);
    pointer = buffer.pointer();
    stream.fill(pointer, 1, 3 * kMiB);
    CHECK(accelerator.memory_info(0).free_bytes <= 13 * kMiB);
  }
  pliant::StreamBuffer again(stream, 3 * kMiB);
  CHECK(again.pointer() == pointer);
  pliant::Stream other(accelerator, 0);
  const pliant::StreamBuffer elsewhere(other, 3 * kMiB);
  CHECK(elsewhere.pointer() != pointer);
  held.let_go();
  stream.synchronize();
  const pliant::StreamBuffer moved = std::move(again);
  CHECK(moved.pointer() == pointer);
  CHECK(moved.bytes() == 3 * kMiB);
}

TEST_CASE("memory given back on one stream serves another when its work has run, and trim frees what is kept") {
  const pliant::Accelerator accelerator = host("memory_bytes = 16777216");
  pliant::Stream first(accelerator, 0);
  pliant::Stream second(accelerator, 0);
  Held held(accelerator, first);
  void* pointer = nullptr;
  {
    const pliant::StreamBuffer buffer(first, kMiB);
    pointer = buffer.pointer();
  }
  CHECK(pliant::StreamBuffer(second, kMiB).pointer() != pointer);
  second.synchronize();
  accelerator.trim(0, 0);
  // What work still waits for is kept.
  CHECK(accelerator.memory_info(0).free_bytes == 15 * kMiB);
  held.let_go();
  first.synchronize();
  CHECK(pliant::StreamBuffer(second, kMiB).pointer() == pointer);
  second.synchronize();
  accelerator.trim(0, kMiB);
  CHECK(accelerator.memory_info(0).free_bytes == 15 * kMiB);
  accelerator.trim(0, kMiB - 1);
  CHECK(accelerator.memory_info(0).free_bytes == 16 * kMiB);
}

TEST_CASE("a full device gives memory that other work still uses, after that work") {
  const pliant::Accelerator accelerator = host("memory_bytes = 1048576");
  pliant::Stream first(accelerator, 0);
  pliant::Stream second(accelerator, 0);
  std::vector<uint8_t> got(kMiB);
  Held held(accelerator, first);
  {
    const pliant::StreamBuffer buffer(first, kMiB);
    first.fill(buffer.pointer(), 1, kMiB);
    first.copy(got.data(), buffer.pointer(), kMiB);
  }
  pliant::StreamBuffer buffer(second, kMiB);
  second.fill(buffer.pointer(), 2, kMiB);
  CHECK(!second.is_idle());
  held.let_go();
  first.synchronize();
  second.synchronize();
  CHECK(got == std::vector<uint8_t>(kMiB, 1));
  CHECK(static_cast<uint8_t*>(buffer.pointer())[kMiB - 1] == 2);
  const auto full = error_of([&] { pliant::StreamBuffer(second, 1); });
  REQUIRE(full);
  CHECK(full->status() == pliant::Status::kResourceExhausted);
  buffer = pliant::StreamBuffer();
  // Kept memory of another size makes room.
  CHECK(pliant::StreamBuffer(second, kMiB / 2).pointer() != nullptr);
}

TEST_CASE("streams may end, and memory they gave back serves others") {
  const pliant::Accelerator accelerator = host("memory_bytes = 1048576");
  std::optional<pliant::Stream> stream(std::in_place, accelerator, 0);
  { const pliant::StreamBuffer buffer(*stream, kMiB); }
  stream.reset();
  pliant::Stream other(accelerator, 0);
  const pliant::StreamBuffer buffer(other, kMiB);
  CHECK(buffer.pointer() != nullptr);
}

TEST_CASE("many threads take and give back memory in stream order, and no two have the same") {
  const pliant::Accelerator accelerator = sim("max_delay_us = 20\nseed = 3\n");
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      pliant::Stream stream(accelerator, 0);
      for (int i = 0; i < 100; ++i) {
        const auto bytes = static_cast<uint64_t>(1 + (i * 37 + t) % 5000);
        std::vector<uint8_t> got(bytes);
        const pliant::StreamBuffer buffer(stream, bytes);
        const auto value = static_cast<uint8_t>(t * 60 + i % 60);
        stream.fill(buffer.pointer(), value, bytes);
        stream.copy(got.data(), buffer.pointer(), bytes);
        stream.synchronize();
        if (got != std::vector<uint8_t>(bytes, value)) ++wrong[static_cast<size_t>(t)];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(4));
}
