// exit_code_of(): the numbers that the `pliant` command documents.
#include "pliant/exit_code.hpp"

#include <doctest/doctest.h>

using pliant::Error;
using pliant::exit_code_of;
using pliant::ExitCode;
using pliant::Origin;
using pliant::Status;

TEST_CASE("each origin of an error has an exit code of its own, with the documented number") {
  const auto number_of = [](Origin origin) {
    return static_cast<int>(exit_code_of(Error(Status::kInternal, "failed", origin)));
  };
  CHECK(number_of(Origin::kRun) == 1);
  CHECK(number_of(Origin::kInput) == 2);
  CHECK(number_of(Origin::kPlugin) == 3);
  CHECK(number_of(Origin::kWorldSize) == 75);
  CHECK(exit_code_of(Origin::kWorldSize) == ExitCode::kNoWorldSize);
}

TEST_CASE("the exit codes of a worker that refuses its config or a plugin say which, and no other code does") {
  for (const Origin origin : {Origin::kInput, Origin::kPlugin})
    CHECK(pliant::origin_of(static_cast<int>(exit_code_of(origin))) == origin);
  for (const int code : {0, 1, 4, 75, 255}) CHECK_FALSE(pliant::origin_of(code).has_value());
}

TEST_CASE("an error that says nothing of its origin failed while it ran, and no status stands for success") {
  CHECK(exit_code_of(Error(Status::kIncompatibleWorldSize, "failed")) == ExitCode::kFailed);
  CHECK(exit_code_of(Error(Status::kOk, "failed")) == ExitCode::kFailed);
}
