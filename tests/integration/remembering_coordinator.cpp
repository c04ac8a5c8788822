// A coordinator that keeps what it has learnt: as `eager`, but the order of gathers depends on how many passes there
// were, so that ranks which remember different numbers do not meet. TEST ONLY.
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "pliant/sdk/coordinator.hpp"

namespace {

namespace sdk = pliant::sdk;

class Remembering {
 public:
  bool refuses = false;
  bool differs = false;
  static void options(sdk::Options<Remembering>& table) {
    table.add("refuses", &Remembering::refuses, "Refuse every state.");
    table.add("differs", &Remembering::differs, "Save something else in each process.");
  }

  void set_model(const sdk::Model& model) {
    model_ = model;
    whole_.assign(model.parameters.size(), 0);
    users_.assign(model.parameters.size(), 0);
    passes_ = 0;
  }
  void set_module_parameters(uint32_t module, std::span<const uint32_t> own, std::span<const uint32_t> external) {
    model_.modules[module].own.assign(own.begin(), own.end());
    model_.modules[module].external.assign(external.begin(), external.end());
  }
  void begin_pass(bool, sdk::Actions&) { ++passes_; }
  void enter(const sdk::Visit& visit, sdk::Actions& actions) {
    std::vector<uint32_t> used = model_.used_by(visit.module);
    if (passes_ % 3 == 0) std::reverse(used.begin(), used.end());
    for (const uint32_t parameter : used) {
      ++users_[parameter];
      if (whole_[parameter] != 0) continue;
      actions.gather(parameter, actions.new_group());
      actions.wait(parameter);
      whole_[parameter] = 1;
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
    std::fill(users_.begin(), users_.end(), 0);
    for (uint32_t parameter = 0; parameter < whole_.size(); ++parameter) release(parameter, actions);
  }
  [[nodiscard]] sdk::CoordinatorCounts counts() const {
    sdk::CoordinatorCounts made{};
    made.trace = passes_ > 1 ? PLIANT_TRACE_COMPLETE : PLIANT_TRACE_RECORDING;  // it knows of a pass before this one
    return made;
  }
  static const void* extension(const char* id) { return sdk::counters_of<Remembering>(id); }

  void save(sdk::Writer& out) const {
    out.value(passes_);
    out.value(differs ? static_cast<uint64_t>(::getpid()) : 0);
  }
  void load(sdk::Reader& in) {
    const auto passes = in.value<uint64_t>();
    static_cast<void>(in.value<uint64_t>());
    in.expect_end();
    if (refuses) throw sdk::Failure(PLIANT_DATA_LOSS, "it remembers nothing of that");
    passes_ = passes;
  }

 private:
  void release(uint32_t parameter, sdk::Actions& actions) {
    if (whole_[parameter] != 0) actions.release(parameter);
    whole_[parameter] = 0;
  }

  sdk::Model model_;
  std::vector<char> whole_;
  std::vector<uint32_t> users_;
  uint64_t passes_ = 0;
};

}  // namespace

PLIANT_COORDINATOR(Remembering, "remembering", "1.0.0", "Counts passes, and keeps the count")
