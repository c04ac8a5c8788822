// A program between a coordinator and a host that looks at every action: what is whole, what was waited for, who uses
// it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "pliant/abi/accelerator.h"
#include "pliant/sdk/coordinator.hpp"
#include "plugin/plugin.hpp"

namespace pliant::test {

/// What an action says, in short: "gather 3", "prefetch 3", "wait 3", "release 3", "reduce 3", "load 3", "drop".
using Words = std::vector<std::string>;

bool has(const Words& words, const std::string& word);

class Program {
 public:
  /// Opens coordinator `name` with `options` and gives it `model`. Throws Error when it refuses.
  Program(const std::string& name, const nlohmann::json& options, sdk::Model model);

  // Each throws Error when the coordinator refuses.
  Words begin_pass(bool with_gradient = true);
  Words enter(uint32_t module, bool backward = false, bool recompute = false);
  Words leave(uint32_t module, bool backward = false, bool recompute = false,
              const std::vector<uint32_t>& complete = {});
  Words end_pass();
  Words end_step();
  Words drop_trace();
  void set_parameters(uint32_t module, const std::vector<uint32_t>& own, const std::vector<uint32_t>& external);

  /// Forward and backward over `layers`, each entered and left in turn below the root; backward in reverse.
  void pass(const std::vector<uint32_t>& layers, bool with_backward = true);

  [[nodiscard]] pliant_coordinator_counts counts() const;
  [[nodiscard]] bool whole(uint32_t parameter) const { return state_.at(parameter) != State::kGone; }
  /// Elements of parameters that are whole, as the host sees it.
  [[nodiscard]] uint64_t live() const;
  /// Elements that could not be released now: of entered modules, persistent and external ones.
  [[nodiscard]] uint64_t bound() const;
  /// What the host would refuse, in words.
  [[nodiscard]] const std::vector<std::string>& broken_rules() const { return broken_; }
  /// Groups of the last call, by their numbers: the parameters of each.
  [[nodiscard]] const std::vector<std::vector<uint32_t>>& groups() const { return groups_; }
  [[nodiscard]] const sdk::Model& model() const { return model_; }

 private:
  enum class State { kGone, kOnItsWay, kWaitedFor };
  void expect(int32_t status) const;
  Words carry_out();
  void carry_out(const pliant_action& action, Words& words);
  void broken(const std::string& what, uint32_t parameter);
  [[nodiscard]] bool entered_uses(uint32_t parameter) const;
  pliant_action_list* list();

  plugin::Instance coordinator_;
  sdk::Model model_;
  std::vector<State> state_;
  std::vector<uint32_t> depth_;  ///< by module: how often it is entered
  std::vector<std::string> broken_;
  std::vector<std::vector<uint32_t>> groups_;
  std::vector<pliant_action> actions_;
  pliant_action_list list_{};
  mutable pliant_error error_ = plugin::fresh_error();
};

/// Module 0 without parameters over one module for each of `layers`: elements of the parameters of each.
sdk::Model layered(const std::vector<std::vector<uint64_t>>& layers);

/// Options of zero3 that release at once, fetch nothing ahead and keep nothing by size.
nlohmann::json zero3_options(bool strict, const std::string& version = "head");

}  // namespace pliant::test
