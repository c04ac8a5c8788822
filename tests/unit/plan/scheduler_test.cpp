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
        "with the scheduler's config, or unset DEEPSPEED_ELASTICITY_CONFIG");
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

namespace {

pliant::ElasticityBlock ours(const std::string& policy = "v0.1") {
  return {policy,
          "0.1.0",
          {{"max_train_batch_size", 1100}, {"micro_batch_sizes", {2, 4, 6}}, {"max_gpus", 64}, {"strict", true}},
          {{"max_train_batch_size", nullptr}, {"micro_batch_sizes", nullptr}, {"max_gpus", 10000}, {"strict", false}}};
}

std::string refusal_of(const std::string& scheduler, const pliant::ElasticityBlock& block = ours(),
                       const std::string& variable = "PLIANT_ELASTICITY_CONFIG") {
  const auto agreed = pliant::ensure_same_block(block, {{variable, scheduler}});
  if (agreed) return {};
  CHECK(agreed.error().origin() == pliant::Origin::kInput);
  return agreed.error().message();
}

}  // namespace

TEST_CASE("the block that plan prints agrees with itself, whole or in part") {
  nlohmann::json whole = nlohmann::json::parse(ours().canonical());
  whole["digest"] = ours().digest();
  CHECK(refusal_of(whole.dump()).empty());
  CHECK(refusal_of(R"({"digest": ")" + ours().digest() + R"("})").empty());
  CHECK(refusal_of(R"({"policy": "v0.1"})").empty());
}

TEST_CASE("every option that matters is compared, a missing one as its default") {
  const std::string all =
      R"({"policy": "v0.1", "options": {"max_train_batch_size": 1100, "micro_batch_sizes": [2, 4, 6], )";
  CHECK(refusal_of(all + R"("max_gpus": 64, "strict": true}})").empty());
  CHECK(refusal_of(all + R"("max_gpus": 32, "strict": true}})").find("max_gpus is 32 for the scheduler") == 0);
  CHECK(refusal_of(all + R"("max_gpus": 64}})").find("strict is false for the scheduler") == 0);
  CHECK(refusal_of(R"({"digest": "0123456789abcdef"})").find("the elasticity digest is \"0123456789abcdef\"") == 0);
  CHECK(refusal_of(R"({"policy": "exact"})").find("policy is \"exact\" for the scheduler") == 0);
}

TEST_CASE("a flat block is compared by every option, DeepSpeed's own only by what decides there") {
  const std::string flat = R"({"max_train_batch_size": 1100, "micro_batch_sizes": [2, 4, 6], "version": 0.1)";
  CHECK(refusal_of(flat + R"(, "enabled": true, "max_gpus": 64, "strict": true})").empty());
  CHECK(refusal_of(flat + R"(, "strict": true})").find("max_gpus is 10000 for the scheduler") == 0);
  CHECK(refusal_of(flat + "}", ours(), "DEEPSPEED_ELASTICITY_CONFIG").empty());
  CHECK(refusal_of(flat + "}", ours("exact"), "DEEPSPEED_ELASTICITY_CONFIG").empty());
  CHECK(refusal_of(flat + "}", ours("exact")).find("policy is \"DeepSpeed elasticity 0.1\" for the scheduler") == 0);
}

TEST_CASE("a block with foreign keys is refused with the near one") {
  CHECK(
      refusal_of(R"({"max_train_batch_size": 1100, "micro_batch_sizes": [2, 4, 6], "version": 0.1, "max_gpu": 64})") ==
      "PLIANT_ELASTICITY_CONFIG: 'max_gpu' is not an option of policy 'v0.1'; did you mean 'max_gpus'?");
  CHECK(refusal_of(R"({"policy": "v0.1", "option": {}})").find("unknown key 'option'; allowed:") != std::string::npos);
  CHECK(refusal_of(R"({"policy": "v0.1", "options": []})").find("options must be an object") != std::string::npos);
  CHECK(refusal_of("{").find("not JSON") != std::string::npos);
}
