// What plugin code refuses, and what a refusal costs where nothing is refused.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "pliant/sdk/failure.hpp"
#include "pliant/sdk/sized.hpp"

using pliant::sdk::blank_error;
using pliant::sdk::Failure;
using pliant::sdk::require;

TEST_CASE("a check throws its message, given as text or as a function, when it does not hold") {
  CHECK_THROWS_WITH_AS(require(false, "rank 4 is outside 0..3"), "rank 4 is outside 0..3", Failure);
  CHECK_THROWS_WITH_AS(require(false, std::string("rank 5 is outside 0..3")), "rank 5 is outside 0..3", Failure);
  CHECK_THROWS_WITH_AS(require(false, [] { return std::string("rank 6 is outside 0..3"); }), "rank 6 is outside 0..3",
                       Failure);
}

TEST_CASE("a check that holds does not make its message") {
  int made = 0;
  const auto message = [&] {
    ++made;
    return std::string("never read");
  };
  require(true, message);
  CHECK(made == 0);
  CHECK_THROWS_AS(require(false, message), Failure);
  CHECK(made == 1);
}

TEST_CASE("what a refusal is about reaches the caller in fields, and a caller without them keeps what it has") {
  const auto refuse = [] {
    throw Failure(PLIANT_PEER_LOST, "rank 3 of device 1 is lost").about_rank(3).about_device(1);
  };
  pliant_error error = blank_error();
  CHECK(error.rank == -1);
  CHECK(error.device == -1);
  CHECK(pliant::sdk::detail::guarded(&error, refuse) == PLIANT_PEER_LOST);
  CHECK(error.rank == 3);
  CHECK(error.device == 1);
  CHECK(pliant::sdk::detail::guarded(&error, [] { throw Failure(PLIANT_INTERNAL, "about nobody"); }) ==
        PLIANT_INTERNAL);
  CHECK(error.rank == -1);
  CHECK(error.device == -1);
  pliant_error older = blank_error();
  older.struct_size = offsetof(pliant_error, rank);
  older.rank = older.device = 77;
  CHECK(pliant::sdk::detail::guarded(&older, refuse) == PLIANT_PEER_LOST);
  CHECK(older.message == std::string("rank 3 of device 1 is lost"));
  CHECK(older.rank == 77);
  CHECK(older.device == 77);
}

TEST_CASE("a struct is read in this side's shape, whether its type is known or only its size") {
  pliant_error older = blank_error();
  older.struct_size = offsetof(pliant_error, options);
  older.status = 7;
  older.options[0] = 'x';
  older.device = 77;
  const auto known = pliant::sdk::widened<pliant_error>(static_cast<const void*>(&older));
  CHECK(known.struct_size == offsetof(pliant_error, options));
  CHECK(known.status == 7);
  CHECK(known.options[0] == '\0');
  CHECK(known.device == 0);
  const std::vector<std::byte> bytes = pliant::sdk::widened(static_cast<const void*>(&older), sizeof(older));
  REQUIRE(bytes.size() == sizeof(known));
  CHECK(std::memcmp(bytes.data(), &known, sizeof(known)) == 0);
  uint32_t size = 0;
  std::memcpy(&size, pliant::sdk::widened(static_cast<const void*>(&older), uint32_t{8}).data(), sizeof(size));
  CHECK(size == 8);  // a longer one is cut
}
