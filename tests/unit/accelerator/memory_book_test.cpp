// The book of a driver's memory: what is counted, what is refused, what is freed.
#include "common/devices/memory_book.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <new>
#include <string>
#include <vector>

namespace {

using pliant::devices::Block;
using pliant::devices::DeviceMemory;
using pliant::devices::MemoryBook;
using pliant::devices::Origin;
using pliant::sdk::Failure;
using pliant::sdk::Memory;

constexpr DeviceMemory kDevice{3, 1000};

/// A book over memory of this process, and what it has freed.
struct Driver {
  Block block(uint64_t bytes, Memory kind = Memory::kDevice) {
    Block made{.bytes = bytes, .counted = kind == Memory::kDevice ? bytes : 0, .device = kDevice, .memory = kind};
    made.free = [this](void* pointer) { freed.push_back(pointer); };
    return made;
  }
  void* add(Block wanted, size_t at = 0) {
    return book.add(
        wanted, [&] { return &memory[at]; }, [&] { return book.info(kDevice); });
  }
  std::string refusal(const Block& wanted, const MemoryBook::Make& make) {
    try {
      book.add(wanted, make, [&] { return book.info(kDevice); });
    } catch (const Failure& failure) {
      CHECK(failure.status() == PLIANT_RESOURCE_EXHAUSTED);
      return failure.what();
    }
    return "was not refused";
  }
  [[nodiscard]] uint64_t left() const { return book.info(kDevice).free_bytes; }

  std::vector<void*> freed;
  std::array<std::byte, 4096> memory{};
  MemoryBook book;
};

}  // namespace

TEST_CASE("a range has a part in the book where its begin, its end or its middle lies in a block") {
  Driver driver;
  driver.add(driver.block(100), 1000);
  const auto has = [&driver](size_t at, uint64_t bytes) { return driver.book.has_part_of(&driver.memory[at], bytes); };
  CHECK(has(1000, 100));
  CHECK(has(1099, 500));
  CHECK(has(900, 101));
  CHECK(has(900, 500));
  CHECK_FALSE(has(900, 100));
  CHECK_FALSE(has(1100, 100));
}

TEST_CASE("what a limit does not leave is refused with what is left, and the driver is not asked") {
  Driver driver;
  driver.book.set_limit(600);
  driver.add(driver.block(400));
  bool asked = false;
  const std::string told = driver.refusal(driver.block(201), [&]() -> void* {
    asked = true;
    return nullptr;
  });
  CHECK(told == "out of device memory: 201 bytes wanted, 200 of 600 left; free buffers or raise memory_bytes");
  CHECK(!asked);
  CHECK(driver.left() == 200);
}

TEST_CASE("without a limit the driver decides, and its refusal is told with what is left") {
  Driver driver;
  driver.add(driver.block(900));
  CHECK(driver.add(driver.block(200), 1000) == &driver.memory[1000]);
  const auto refuses = []() -> void* { throw Failure(PLIANT_RESOURCE_EXHAUSTED, "none"); };
  CHECK(driver.refusal(driver.block(7), refuses) ==
        "out of device memory: 7 bytes wanted, 0 of 1000 left (none); free buffers");
}

TEST_CASE("memory that was not made is not counted") {
  Driver driver;
  const auto fails = [](auto failure) { return [failure]() -> void* { throw failure; }; };
  const MemoryBook::Info info = [&] { return driver.book.info(kDevice); };
  CHECK_THROWS_AS(driver.book.add(driver.block(10), fails(Failure(PLIANT_RESOURCE_EXHAUSTED, "none")), info), Failure);
  CHECK_THROWS_AS(driver.book.add(driver.block(10), fails(Failure(PLIANT_INTERNAL, "lost")), info), Failure);
  CHECK_THROWS_AS(driver.book.add(driver.block(10), fails(std::bad_alloc()), info), std::bad_alloc);
  CHECK(driver.left() == 1000);
  CHECK(driver.freed.empty());
}

TEST_CASE("what is taken out is counted no longer, and only under the name it was made by") {
  Driver driver;
  Block pooled = driver.block(100);
  pooled.origin = Origin::kPooled;
  void* made = driver.add(pooled);
  CHECK(!driver.book.take(made, Origin::kAllocated));
  CHECK(!driver.book.take(&driver.memory[1], Origin::kPooled));
  CHECK(driver.left() == 900);
  CHECK(driver.book.take(made, Origin::kPooled)->pointer == made);
  CHECK(driver.left() == 1000);
  CHECK(!driver.book.take(made, Origin::kPooled));
  CHECK(driver.freed.empty());
}

TEST_CASE("memory is found by any of its bytes, and by none beside them") {
  Driver driver;
  driver.add(driver.block(100), 1000);
  driver.add(driver.block(50, Memory::kPinned), 1100);
  const auto reaches = [&](size_t at, uint64_t bytes) {
    const auto reach = driver.book.reach_of(&driver.memory[at], bytes, "the target");
    return !reach ? "nobody" : reach->host ? "both" : "device";
  };
  CHECK(reaches(999, 1) == std::string("nobody"));
  CHECK(reaches(1000, 100) == std::string("device"));
  CHECK(reaches(1099, 1) == std::string("device"));
  CHECK(reaches(1100, 50) == std::string("both"));
  CHECK(reaches(1150, 1) == std::string("nobody"));
  CHECK_THROWS_WITH_AS(reaches(1090, 11), "the target exceeds its buffer: 11 bytes from byte 90 of a buffer of 100",
                       Failure);
  CHECK(driver.book.begins(&driver.memory[1000], Memory::kDevice, kDevice.index));
  CHECK(!driver.book.begins(&driver.memory[1001], Memory::kDevice, kDevice.index));
  CHECK(!driver.book.begins(&driver.memory[1000], Memory::kExchange, kDevice.index));
  CHECK(!driver.book.begins(&driver.memory[1000], Memory::kDevice, kDevice.index + 1));
}

TEST_CASE("a block of no bytes has a place of its own") {
  Driver driver;
  driver.add(driver.block(0), 8);
  CHECK(driver.book.reach_of(&driver.memory[8], 0, "the target").has_value());
  CHECK(!driver.book.reach_of(&driver.memory[9], 0, "the target").has_value());
}

TEST_CASE("what was not freed is freed when the book goes") {
  std::vector<void*> freed;
  Driver driver;
  {
    MemoryBook book;
    Block block = driver.block(10);
    block.free = [&](void* pointer) { freed.push_back(pointer); };
    book.add(
        block, [&] { return &driver.memory[5]; }, [&] { return book.info(kDevice); });
  }
  CHECK(freed == std::vector<void*>{&driver.memory[5]});
}

TEST_CASE("a block that is aligned begins inside of what the driver gave, which goes back whole") {
  Driver driver;
  Block block = driver.block(100);
  block.alignment = 64;
  const auto lies_at = [&](size_t at) { return reinterpret_cast<uintptr_t>(&driver.memory[at]) % 64; };
  size_t odd = 1;
  while (lies_at(odd) != 8) ++odd;
  void* const inside = driver.add(block, odd);
  CHECK(inside == &driver.memory[odd + 56]);
  const auto place = driver.book.place_of(&driver.memory[odd + 57]);
  REQUIRE(place);
  CHECK(place->offset == 1);
  CHECK(place->bytes == 100);
  CHECK_FALSE(driver.book.place_of(&driver.memory[odd]));
  void* const at_once = driver.add(block, odd + 120);
  CHECK(at_once == &driver.memory[odd + 120]);
  const auto taken = driver.book.take(inside, Origin::kAllocated);
  REQUIRE(taken);
  taken->give_back();
  CHECK(driver.freed == std::vector<void*>{&driver.memory[odd]});
}
