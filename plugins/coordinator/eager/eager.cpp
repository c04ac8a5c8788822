// Coordinator `eager`: gathers what a module uses when it is entered and releases it when it is left, one by one.
// Parameters that are to persist are released, too: nothing is remembered from one visit to the next.
#include "pliant/sdk/coordinator.hpp"

namespace {

namespace sdk = pliant::sdk;

class Eager {
 public:
  void set_model(const sdk::Model& model) {
    model_ = model;
    whole_.assign(model.parameters.size(), false);
    users_.assign(model.parameters.size(), 0);
  }
  void set_module_parameters(uint32_t module, std::span<const uint32_t> own, std::span<const uint32_t> external) {
    model_.modules[module].own.assign(own.begin(), own.end());
    model_.modules[module].external.assign(external.begin(), external.end());
  }
  void begin_pass(bool, sdk::Actions&) {}
  void enter(const sdk::Visit& visit, sdk::Actions& actions) {
    for (const uint32_t parameter : model_.used_by(visit.module)) {
      ++users_[parameter];
      if (whole_[parameter]) continue;
      actions.gather(parameter, actions.new_group());
      actions.wait(parameter);
      whole_[parameter] = true;
    }
  }
  void leave(const sdk::Visit& visit, sdk::Actions& actions) {
    for (const uint32_t parameter : model_.used_by(visit.module)) {
      if (users_[parameter] > 0) --users_[parameter];
      if (users_[parameter] == 0 && !model_.parameters[parameter].external) release(parameter, actions);
    }
    for (const uint32_t parameter : visit.complete) actions.reduce(parameter, actions.new_group());
  }
  void end_pass(sdk::Actions&) {}
  void end_step(sdk::Actions& actions) {
    std::fill(users_.begin(), users_.end(), 0);  // of a pass that was given up
    for (uint32_t parameter = 0; parameter < whole_.size(); ++parameter) release(parameter, actions);
  }

 private:
  void release(uint32_t parameter, sdk::Actions& actions) {
    if (whole_[parameter]) actions.release(parameter);
    whole_[parameter] = false;
  }

  sdk::Model model_;
  std::vector<bool> whole_;
  std::vector<uint32_t> users_;  // modules that are entered and use the parameter
};

}  // namespace

PLIANT_COORDINATOR(Eager, "eager", "0.1.0", "Gathers and releases the parameters of each module, one by one")
