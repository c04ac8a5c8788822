// my-coordinator: gathers what a module uses in one collective, and keeps small parameters whole until the step ends.
#include "pliant/sdk/coordinator.hpp"

class MyCoordinator {
 public:
  int64_t keep_elements = 0;

  static void options(pliant::sdk::Options<MyCoordinator>& table) {
    table
        .add("keep_elements", &MyCoordinator::keep_elements,
             "Parameters with at most this many elements stay gathered until the step ends, unless there is a budget.")
        .at_least(0)
        .unit("elements");
  }

  void set_model(const pliant::sdk::Model& model) {
    model_ = model;
    whole_.assign(model.parameters.size(), false);
    users_.assign(model.parameters.size(), 0);
  }

  /// Between two passes: the program gave the module other parameters.
  void set_module_parameters(uint32_t module, std::span<const uint32_t> own, std::span<const uint32_t> external) {
    model_.modules[module].own.assign(own.begin(), own.end());
    model_.modules[module].external.assign(external.begin(), external.end());
  }

  /// What is gathered here is under way before the first module is entered.
  void begin_pass(bool /*with_gradient*/, pliant::sdk::Actions& /*actions*/) {}

  void enter(const pliant::sdk::Visit& visit, pliant::sdk::Actions& actions) {
    const std::vector<uint32_t> used = model_.used_by(visit.module);
    const uint32_t group = actions.new_group();  // neighbours of one group are one collective
    for (const uint32_t parameter : used) {
      if (!whole_[parameter]) actions.gather(parameter, group);
    }
    for (const uint32_t parameter : used) {
      if (!whole_[parameter]) actions.wait(parameter);
      whole_[parameter] = true;
      ++users_[parameter];
    }
  }

  void leave(const pliant::sdk::Visit& visit, pliant::sdk::Actions& actions) {
    for (const uint32_t parameter : model_.used_by(visit.module)) {
      if (users_[parameter] > 0) --users_[parameter];  // a module around this one may use it as well
      if (users_[parameter] == 0 && whole_[parameter] && !kept(parameter)) release(parameter, actions);
    }
    const uint32_t group = actions.new_group();
    for (const uint32_t parameter : visit.complete) actions.reduce(parameter, group);
  }

  void end_pass(pliant::sdk::Actions& /*actions*/) {}

  /// The parameters are about to change: nothing may stay whole, also when a pass was given up in its middle.
  void end_step(pliant::sdk::Actions& actions) {
    std::fill(users_.begin(), users_.end(), 0);
    for (uint32_t parameter = 0; parameter < whole_.size(); ++parameter) {
      if (whole_[parameter]) release(parameter, actions);
    }
  }

 private:
  [[nodiscard]] bool kept(uint32_t parameter) const {
    const pliant::sdk::Parameter& one = model_.parameters[parameter];
    return one.external || (model_.budget == 0 && one.elements <= static_cast<uint64_t>(keep_elements));
  }
  void release(uint32_t parameter, pliant::sdk::Actions& actions) {
    actions.release(parameter);
    whole_[parameter] = false;
  }

  pliant::sdk::Model model_;
  std::vector<bool> whole_;
  std::vector<uint32_t> users_;  // modules that are entered and use the parameter
};

PLIANT_COORDINATOR(MyCoordinator, "my-coordinator", "0.1.0", "each module's parameters in one collective")
