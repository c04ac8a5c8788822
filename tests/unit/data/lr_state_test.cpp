// The state of a learning-rate rule in a snapshot.
#include "data/lr_state.hpp"

#include <doctest/doctest.h>

using namespace pliant;

TEST_CASE("a rule's state comes back for the same rule, also with newlines and zero bytes") {
  for (const std::string& state : {std::string(), std::string("a\nb\0c", 5), std::string(1000, 'x')}) {
    CHECK(data::unpack_lr_state(data::pack_lr_state("linear", state), "linear") == state);
  }
}

TEST_CASE("the state of another rule is refused by name") {
  const auto unpacked = data::unpack_lr_state(data::pack_lr_state("linear", "s"), "sqrt");
  REQUIRE_FALSE(unpacked.has_value());
  CHECK(unpacked.error().status() == Status::kFailedPrecondition);
  CHECK(unpacked.error().message().find("rule 'linear'") != std::string::npos);
}

TEST_CASE("every truncation and every flipped byte of it is damage") {
  const std::string packed = data::pack_lr_state("linear", "some state");
  for (size_t i = 0; i < packed.size(); ++i) {
    CAPTURE(i);
    CHECK(data::unpack_lr_state(packed.substr(0, i), "linear").error().status() == Status::kDataLoss);
    std::string flipped = packed;
    flipped[i] = static_cast<char>(flipped[i] ^ 1);
    CHECK(data::unpack_lr_state(flipped, "linear").error().status() == Status::kDataLoss);
  }
}
