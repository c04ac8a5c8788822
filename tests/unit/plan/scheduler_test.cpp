// The scheduler's block: what must agree, what need not, and what is no block.
#include "plan/scheduler.hpp"

#include <doctest/doctest.h>

using pliant::ensure_same_elasticity;
using pliant::SchedulerView;
using pliant::Status;

namespace {

constexpr const char* kBlock =
    R"({"enabled": true, "max_train_batch_size": 1100, "micro_batch_sizes": [2, 4, 6], "version": 0.1})";

auto against(const std::string& scheduler) {
  return ensure_same_elasticity(kBlock, {{"DEEPSPEED_ELASTICITY_CONFIG", scheduler}});
}

}  // namespace

TEST_CASE("without a block nothing is known") {
  CHECK(*ensure_same_elasticity(kBlock, {}) == SchedulerView::kUnknown);
}

TEST_CASE("numbers compare by value and keys that do not decide the plan may differ") {
  CHECK(*against(kBlock) == SchedulerView::kSame);
  CHECK(
      *against(R"({"max_train_batch_size": 1100.0, "micro_batch_sizes": [2, 4, 6], "version": 0.1, "min_gpus": 3})") ==
      SchedulerView::kSame);
}

TEST_CASE("every block that is set must agree") {
  const auto view =
      ensure_same_elasticity(kBlock, {{"PLIANT_ELASTICITY_CONFIG", kBlock}, {"DEEPSPEED_ELASTICITY_CONFIG", "{}"}});
  CHECK(view.error().message().find("DEEPSPEED_ELASTICITY_CONFIG") != std::string::npos);
}

TEST_CASE("a difference names key, values and variable") {
  const auto view = against(R"({"max_train_batch_size": 1100, "micro_batch_sizes": [6, 4, 2], "version": 0.1})");
  CHECK(view.error().status() == Status::kFailedPrecondition);
  CHECK(view.error().message() ==
        "micro_batch_sizes is [6,4,2] for the scheduler (DEEPSPEED_ELASTICITY_CONFIG) but [2,4,6] for this job; start "
        "the job "
        "with the config that the scheduler was given, or unset DEEPSPEED_ELASTICITY_CONFIG");
  CHECK(
      against(R"({"max_train_batch_size": 1100, "micro_batch_sizes": [2, 4, 6], "version": "0.1"})").error().status() ==
      Status::kFailedPrecondition);
}

TEST_CASE("numbers are the same by value, exactly") {
  const auto view = [](const std::string& ours, const std::string& theirs) {
    const auto block = [](const std::string& cap) {
      return R"({"max_train_batch_size": )" + cap + R"(, "micro_batch_sizes": [2]})";
    };
    return ensure_same_elasticity(block(ours), {{"PLIANT_ELASTICITY_CONFIG", block(theirs)}}).has_value();
  };
  CHECK(view("9007199254740992", "9007199254740992.0"));
  CHECK_FALSE(view("9007199254740993", "9007199254740992.0"));
  CHECK_FALSE(view("18446744073709551615", "-1"));
  CHECK(view("9223372036854775808", "9223372036854775808.0"));
  CHECK_FALSE(view("9223372036854775807", "9223372036854775808.0"));
  CHECK(view("1", "true"));
  CHECK_FALSE(view("2.5", "2"));
}

TEST_CASE("a text that is no block is refused") {
  for (const char* text :
       {"", "{", "[]", "null", "5", R"({"enabled": true})", R"({"micro_batch_sizes": 5})",
        R"({"micro_batch_sizes": [2.0]})", R"({"micro_batch_sizes": [0]})", R"({"min_gpus": 0})",
        R"({"min_gpus": "1"})", R"({"min_gpus": 5, "max_gpus": 4})", R"({"min_time": -1})", "\xEF\xBB\xBF{}"}) {
    CAPTURE(text);
    CHECK(against(text).error().status() == Status::kInvalidArgument);
  }
}
