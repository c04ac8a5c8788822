// Calls across the border of one learning-rate rule, fenced and checked.
#include "data/lr_link.hpp"

#include <fmt/format.h>

#include <array>
#include <utility>
#include <vector>

#include "pliant/sdk/calls.hpp"
#include "pliant/sdk/lr_rules.hpp"

namespace pliant::data {

namespace {

struct Family {
  const char* name;
  int32_t number;
};
constexpr std::array<Family, 10> kFamilies{{{"unknown", PLIANT_OPTIMIZER_UNKNOWN},
                                            {"sgd", PLIANT_OPTIMIZER_SGD},
                                            {"sgd_momentum", PLIANT_OPTIMIZER_SGD_MOMENTUM},
                                            {"nesterov", PLIANT_OPTIMIZER_NESTEROV},
                                            {"adam", PLIANT_OPTIMIZER_ADAM},
                                            {"adamw", PLIANT_OPTIMIZER_ADAMW},
                                            {"lamb", PLIANT_OPTIMIZER_LAMB},
                                            {"lars", PLIANT_OPTIMIZER_LARS},
                                            {"sign", PLIANT_OPTIMIZER_SIGN},
                                            {"other", PLIANT_OPTIMIZER_OTHER}}};

bool holds(uint32_t families, int32_t number) {
  return (families >> static_cast<uint32_t>(number) & 1U) != 0;
}

std::string name_of(int32_t number) {
  for (const Family& family : kFamilies) {
    if (number == family.number) return family.name;
  }
  return "unknown";
}

}  // namespace

int32_t optimizer_of(const std::string& name) {
  for (const Family& family : kFamilies) {
    if (name == family.name) return family.number;
  }
  return PLIANT_OPTIMIZER_UNKNOWN;
}

Result<LrLink> LrLink::make(plugin::Instance instance) {
  LrLink link(std::move(instance));
  pliant_lr_facts facts{};
  facts.struct_size = sizeof(facts);
  pliant_error error = plugin::fresh_error();
  bool threw = false;
  const int32_t status = sdk::fenced(
      error, "describe", [&] { return link.slots().describe(link.instance_.self(), &facts, &error); }, &threw);
  if (threw) return link.broke(error.message);
  if (status != PLIANT_OK) return link.refused(status, error);
  if (const std::string fault = sdk::facts_fault(facts); !fault.empty()) return link.broke(fault);
  link.flags_ = facts.flags;
  link.optimizers_ = facts.optimizers;
  if (facts.reason != nullptr) link.reason_ = facts.reason;
  return link;
}

tl::unexpected<Error> LrLink::broke(const std::string& how) const {
  return failed(Status::kInternal, fmt::format("lr '{}' violates its contract: {}", name(), how), Origin::kPlugin);
}

tl::unexpected<Error> LrLink::refused(int32_t status, const pliant_error& error) const {
  return tl::unexpected<Error>(plugin::to_error(instance_.plugin(), status, error));
}

std::string LrLink::optimizers() const {
  std::vector<std::string> valid;
  for (const Family& family : kFamilies) {
    if (holds(optimizers_, family.number)) valid.emplace_back(family.name);
  }
  if (valid.empty()) return "no optimizer";
  return valid.size() == kFamilies.size() ? "any" : fmt::format("{}", fmt::join(valid, ", "));
}

Result<> LrLink::check_optimizer(int32_t optimizer) const {
  if (holds(optimizers_, optimizer)) return {};
  const std::string why = reason_.empty() ? "" : ": " + reason_;
  if (optimizer == PLIANT_OPTIMIZER_UNKNOWN) {
    return failed(Status::kFailedPrecondition,
                  fmt::format("lr '{}' depends on the optimizer: set [lr] optimizer; the rule is valid for {} only{}",
                              name(), optimizers(), why),
                  Origin::kInput);
  }
  return failed(Status::kFailedPrecondition,
                fmt::format("lr '{}' is valid for {} only, and [lr] optimizer is \"{}\"{}", name(), optimizers(),
                            name_of(optimizer), why),
                Origin::kInput);
}

Result<pliant_lr_output> LrLink::scale(const pliant_lr_input& input) const {
  pliant_lr_output answer = *input.previous;
  answer.struct_size = sizeof(answer);
  pliant_error error = plugin::fresh_error();
  bool threw = false;
  const int32_t status = sdk::fenced(
      error, "scale", [&] { return slots().scale(instance_.self(), &input, &answer, &error); }, &threw);
  if (threw) return broke(error.message);
  if (status != PLIANT_OK) return refused(status, error);
  if (const std::string fault = sdk::scaling_fault(input, answer); !fault.empty()) return broke(fault);
  return answer;
}

Result<> LrLink::commit(const pliant_lr_input& input, const pliant_lr_output& answer,
                        const pliant_lr_committed& committed) {
  pliant_error error = plugin::fresh_error();
  bool threw = false;
  const int32_t status = sdk::fenced(
      error, "commit", [&] { return slots().commit(instance_.self(), &input, &answer, &committed, &error); }, &threw);
  if (threw) return broke(error.message);
  if (status != PLIANT_OK) {  // gradients that it cannot use: no option is wrong
    const Error refusal = refused(status, error).value();
    return failed(refusal.status(), refusal.message(), Origin::kPlugin);
  }
  return {};
}

}  // namespace pliant::data
