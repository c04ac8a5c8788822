// Arena: where pieces lie, and that work of the next owner waits for that of the last.
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "pliant/arena.hpp"
#include "wrapper.hpp"

using pliant::Arena;
using pliant::ArenaBuffer;
using pliant::MemoryKind;
using pliant::test::error_of;
using pliant::test::generic;
using pliant::test::Held;
using pliant::test::host;
using pliant::test::sim;

namespace {

constexpr uint64_t kPage = 4096;

uint64_t offset_of(const Arena& arena, const ArenaBuffer& buffer) {
  return static_cast<uint64_t>(static_cast<const std::byte*>(buffer.pointer()) -
                               static_cast<const std::byte*>(arena.pointer()));
}

/// Takes and gives back as `draws` say, and tells where each piece lay; -1: there was no room. Draws are the same for
/// every rank, the times at which work ends are not.
std::vector<int64_t> places_of(const pliant::Accelerator& accelerator, const std::vector<uint16_t>& draws) {
  std::array<pliant::Stream, 2> streams{pliant::Stream(accelerator, 0), pliant::Stream(accelerator, 0)};
  Arena arena(accelerator, 0, 16 * kPage);
  std::vector<std::pair<ArenaBuffer, uint8_t>> live;
  std::vector<int64_t> places;
  uint8_t next = 1;
  for (const uint16_t draw : draws) {
    pliant::Stream& stream = streams[draw % 2];
    if (draw % 3 == 0 && !live.empty()) {
      const size_t which = draw / 3 % live.size();
      const auto& [buffer, byte] = live[which];
      // Nobody else has written here since.
      std::vector<uint8_t> got(buffer.bytes());
      stream.copy(got.data(), buffer.pointer(), buffer.bytes());
      stream.synchronize();
      RC_ASSERT(got == std::vector<uint8_t>(buffer.bytes(), byte));
      live[which].first.give_back(stream);
      live.erase(live.begin() + static_cast<ptrdiff_t>(which));
      continue;
    }
    try {
      ArenaBuffer made(arena, stream, draw % 5000U + 1U);
      stream.fill(made.pointer(), next, made.bytes());
      pliant::Event filled(accelerator, 0);
      filled.record(stream);
      streams[1 - draw % 2].wait(filled);
      places.push_back(static_cast<int64_t>(offset_of(arena, made)));
      live.emplace_back(std::move(made), next++);
    } catch (const pliant::Error& error) {
      RC_ASSERT(error.status() == pliant::Status::kResourceExhausted);
      places.push_back(-1);
    }
  }
  live.clear();
  RC_ASSERT(arena.largest_free_bytes() == arena.bytes());
  return places;
}

}  // namespace

TEST_CASE("pieces do not overlap, lie where the calls alone say, and come together again") {
  const pliant::Accelerator quick = sim("max_delay_us = 0");
  const pliant::Accelerator slow = sim("max_delay_us = 300\nseed = 7");
  CHECK(rc::check([&](const std::vector<uint16_t>& draws) {
    const std::vector<int64_t> places = places_of(quick, draws);
    RC_ASSERT(places == places_of(slow, draws));
    for (const int64_t place : places) RC_ASSERT(place == -1 || place % static_cast<int64_t>(Arena::kAlignment) == 0);
  }));
}

TEST_CASE(
    "an arena begins at a multiple of 4096 and has whole pages, of any kind and also where the device aligns none") {
  for (const pliant::Accelerator& accelerator :
       {host(), sim("windows = true"), sim("windows = false"), sim("windows = false\naligned = false")}) {
    for (const MemoryKind kind : {MemoryKind::kWindow, MemoryKind::kDevice, MemoryKind::kPinned}) {
      std::vector<Arena> kept;
      for (int i = 0; i < 8; ++i) {
        const Arena& arena = kept.emplace_back(accelerator, 0, 5000, kind);
        CHECK(reinterpret_cast<uintptr_t>(arena.pointer()) % kPage == 0);
        CHECK(arena.bytes() == 2 * kPage);
        CHECK(arena.free_bytes() == 2 * kPage);
      }
    }
  }
}

TEST_CASE("a piece that was given back while work runs is another's at once, whose work waits") {
  const pliant::Accelerator accelerator = host();
  Arena arena(accelerator, 0, kPage);
  pliant::Stream gather(accelerator, 0, pliant::StreamRole::kGather);
  pliant::Stream compute(accelerator, 0);
  std::array<uint8_t, kPage> of_first{};
  Held held(accelerator, gather);
  void* place = nullptr;
  {
    const ArenaBuffer first(arena, gather, kPage);
    place = first.pointer();
    gather.fill(first.pointer(), 1, kPage);
    gather.copy(of_first.data(), first.pointer(), kPage);
  }
  const ArenaBuffer second(arena, compute, kPage);
  CHECK(second.pointer() == place);
  compute.fill(second.pointer(), 2, kPage);
  CHECK(!compute.is_idle());
  held.let_go();
  compute.synchronize();
  CHECK(of_first[0] == 1);
  CHECK(of_first[kPage - 1] == 1);
  CHECK(static_cast<const uint8_t*>(second.pointer())[kPage - 1] == 2);
}

TEST_CASE("a piece that several pieces make up waits for the work of them all") {
  const pliant::Accelerator accelerator = host();
  Arena arena(accelerator, 0, 2 * kPage);
  pliant::Stream one(accelerator, 0);
  pliant::Stream other(accelerator, 0);
  pliant::Stream third(accelerator, 0);
  Held held_one(accelerator, one);
  Held held_other(accelerator, other);
  {
    const ArenaBuffer first(arena, one, kPage);
    const ArenaBuffer second(arena, other, kPage);
  }
  const ArenaBuffer both(arena, third, 2 * kPage);
  third.fill(both.pointer(), 1, both.bytes());
  held_one.let_go();
  one.synchronize();
  CHECK(!third.is_idle());
  held_other.let_go();
  third.synchronize();
  CHECK(third.is_idle());
}

TEST_CASE("a piece is given back on the stream that used it last") {
  const pliant::Accelerator accelerator = host();
  Arena arena(accelerator, 0, kPage);
  pliant::Stream gather(accelerator, 0);
  pliant::Stream compute(accelerator, 0);
  Held held(accelerator, compute);
  ArenaBuffer buffer(arena, gather, kPage);
  buffer.give_back(compute);
  CHECK(buffer.pointer() == nullptr);
  const ArenaBuffer next(arena, gather, kPage);
  gather.fill(next.pointer(), 1, 1);
  CHECK(!gather.is_idle());
  held.let_go();
  gather.synchronize();
}

TEST_CASE("who comes next waits for the work that used a piece, not for what came before it was given back") {
  const pliant::Accelerator accelerator = host();
  Arena arena(accelerator, 0, kPage);
  pliant::Stream gather(accelerator, 0);
  pliant::Stream compute(accelerator, 0);
  std::array<uint8_t, kPage> of_first{};
  {
    Held held(accelerator, gather);
    ArenaBuffer buffer(arena, gather, kPage);
    gather.fill(buffer.pointer(), 1, kPage);
    gather.copy(of_first.data(), buffer.pointer(), kPage);
    buffer.end_use(gather);
    held.let_go();
    gather.synchronize();
  }
  {
    ArenaBuffer buffer(arena, gather, kPage);
    buffer.end_use(gather);
    gather.fill(buffer.pointer(), 2, kPage);  // as it is used after all
    buffer.end_use(gather);
    Held later(accelerator, gather);
    buffer.give_back(compute);  // which has not used it
    const ArenaBuffer next(arena, compute, kPage);
    compute.fill(next.pointer(), 3, kPage);
    compute.synchronize();
    CHECK(!gather.is_idle());
    CHECK(static_cast<const uint8_t*>(next.pointer())[0] == 3);
    later.let_go();
    gather.synchronize();
  }
  CHECK(of_first[kPage - 1] == 1);
}

TEST_CASE("without room the sizes are named, and nothing is lost") {
  const pliant::Accelerator accelerator = host();
  Arena arena(accelerator, 0, 4 * kPage);
  pliant::Stream stream(accelerator, 0);
  std::optional<ArenaBuffer> first(std::in_place, arena, stream, kPage);
  const ArenaBuffer second(arena, stream, kPage);
  first.reset();
  const auto error = error_of([&] { ArenaBuffer(arena, stream, 3 * kPage); });
  REQUIRE(error);
  CHECK(error->status() == pliant::Status::kResourceExhausted);
  CHECK(std::string(error->what())
            .find("the arena of 16384 bytes has no room for a buffer of 12288: 12288 are free, "
                  "8192 of them in one piece") != std::string::npos);
  CHECK(error_of([&] { ArenaBuffer(arena, stream, UINT64_MAX); }));
  const ArenaBuffer third(arena, stream, 2 * kPage);
  CHECK(offset_of(arena, third) == 2 * kPage);
  CHECK(arena.free_bytes() == kPage);
  const ArenaBuffer none(arena, stream, 0);
  CHECK(offset_of(arena, none) == 0);
  CHECK(arena.free_bytes() == kPage - Arena::kAlignment);
}

TEST_CASE("a piece lies at the place that it is given, or at the end, and nothing lies there twice") {
  const pliant::Accelerator accelerator = host();
  Arena arena(accelerator, 0, 4 * kPage);
  pliant::Stream stream(accelerator, 0);
  ArenaBuffer middle = ArenaBuffer::at(arena, stream, kPage, kPage);
  CHECK(offset_of(arena, middle) == kPage);
  const ArenaBuffer last(arena, stream, 100, pliant::ArenaSide::kEnd);
  CHECK(offset_of(arena, last) == 4 * kPage - Arena::kAlignment);
  const ArenaBuffer before(arena, stream, kPage, pliant::ArenaSide::kEnd);
  CHECK(offset_of(arena, before) == 3 * kPage - Arena::kAlignment);
  const ArenaBuffer first(arena, stream, kPage);
  CHECK(offset_of(arena, first) == 0);
  for (const uint64_t place : {uint64_t{0}, kPage, 2 * kPage - 256, 3 * kPage, 4 * kPage, uint64_t{1} << 40}) {
    CAPTURE(place);
    const auto error = error_of([&] { ArenaBuffer::at(arena, stream, place, 2 * kPage); });
    REQUIRE(error);
    CHECK(error->status() == pliant::Status::kResourceExhausted);
    CHECK(std::string(error->what()).find("are not free") != std::string::npos);
  }
  const auto odd = error_of([&] { ArenaBuffer::at(arena, stream, 2 * kPage + 8, 8); });
  REQUIRE(odd);
  CHECK(odd->status() == pliant::Status::kInvalidArgument);
  const uint64_t room = arena.free_bytes();
  middle = ArenaBuffer();
  CHECK(arena.free_bytes() == room + kPage);
  const ArenaBuffer again = ArenaBuffer::at(arena, stream, kPage + 512, kPage);
  CHECK(offset_of(arena, again) == kPage + 512);
  CHECK(arena.largest_free_bytes() == kPage - 512 - 256);
}

TEST_CASE("an arena ends when the work of what was given back has run") {
  const pliant::Accelerator accelerator = host();
  pliant::Stream stream(accelerator, 0);
  pliant::Event filled(accelerator, 0);
  Held held(accelerator, stream);
  std::optional<Arena> arena(std::in_place, accelerator, 0, kPage);
  {
    const ArenaBuffer buffer(*arena, stream, kPage);
    stream.fill(buffer.pointer(), 1, kPage);
    filled.record(stream);
  }
  std::thread ending([&] { arena.reset(); });
  held.let_go();
  ending.join();
  CHECK(filled.is_reached());
}

TEST_CASE("gathers into an arena that a communicator knows are as right as any, on every kind of accelerator") {
  for (const pliant::Accelerator& accelerator : {host(), sim(""), sim("windows = false"), generic()}) {
    const pliant::CommId id = accelerator.make_comm_id(2);
    std::vector<std::thread> ranks;
    for (int32_t rank = 0; rank < 2; ++rank) {
      ranks.emplace_back([&accelerator, id, rank] {
        Arena arena(accelerator, 0, 4 * kPage);
        pliant::Stream stream(accelerator, 0, pliant::StreamRole::kGather);
        pliant::Communicator gathers(accelerator, 0, id, rank, 2);
        arena.register_with(gathers, stream);
        const pliant::Buffer own(accelerator, 0, kPage);
        stream.fill(own.pointer(), static_cast<uint8_t>(rank + 1), kPage);
        std::array<uint8_t, 2 * kPage> got{};
        {
          const ArenaBuffer all(arena, stream, 2 * kPage);
          gathers.all_gather(own.pointer(), all.pointer(), kPage, pliant::DType::kU8, stream);
          stream.copy(got.data(), all.pointer(), got.size());
        }
        stream.synchronize();
        CHECK(got[0] == 1);
        CHECK(got[kPage - 1] == 1);
        CHECK(got[kPage] == 2);
        CHECK(got[2 * kPage - 1] == 2);
      });
    }
    for (std::thread& rank : ranks) rank.join();
  }
}

TEST_CASE("ranks that name windows of different sizes are told which") {
  for (const pliant::Accelerator& accelerator : {sim(""), generic()}) {
    const pliant::CommId id = accelerator.make_comm_id(2);
    std::array<std::string, 2> told;
    std::vector<std::thread> ranks;
    for (int32_t rank = 0; rank < 2; ++rank) {
      ranks.emplace_back([&, rank] {
        Arena arena(accelerator, 0, kPage * static_cast<uint64_t>(rank + 1));
        pliant::Stream stream(accelerator, 0);
        pliant::Communicator comm(accelerator, 0, id, rank, 2);
        arena.register_with(comm, stream);
        const auto error = error_of([&] { stream.synchronize(); });
        told[static_cast<size_t>(rank)] = error ? error->what() : "nothing";
      });
    }
    for (std::thread& rank : ranks) rank.join();
    const std::string both = told[0] + told[1];
    CAPTURE(both);
    CHECK(both.find("4096") != std::string::npos);
    CHECK(both.find("8192") != std::string::npos);
    CHECK(told[0] != "nothing");
    CHECK(told[1] != "nothing");
  }
}

TEST_CASE("a window that is none is refused before anything is enqueued") {
  const pliant::Accelerator accelerator = host();
  pliant::Communicator comm(accelerator, 0, accelerator.make_comm_id(1), 0, 1);
  pliant::Stream stream(accelerator, 0);
  const Arena arena(accelerator, 0, 2 * kPage);
  auto* const bytes = static_cast<std::byte*>(arena.pointer());
  const auto refusal = [&](void* pointer, uint64_t size) {
    const auto error = error_of([&] { comm.register_window(pointer, size, stream); });
    return error ? std::string(error->what()) : "";
  };
  CHECK(refusal(bytes, 0).find("a window of 0 bytes") != std::string::npos);
  CHECK(refusal(bytes, 100).find("a window of 100 bytes; its size is a multiple of 4096") != std::string::npos);
  CHECK(refusal(bytes + 64, kPage).find("begins 64 bytes past a multiple of 4096") != std::string::npos);
  CHECK(refusal(nullptr, kPage).find("the memory of the window is NULL") != std::string::npos);
  CHECK(refusal(bytes, kPage).empty());
}
