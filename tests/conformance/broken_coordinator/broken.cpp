// The coordinator `broken`: gathers and releases module by module, with the fault that its option names. TEST ONLY.
#include <atomic>
#include <map>
#include <string>

#include "pliant/sdk/coordinator.hpp"

namespace {

namespace sdk = pliant::sdk;

/// With any other name nothing is wrong: a refusal would look like the fault that a test wants to see.
enum class Fault {
  kNone,
  kWaitForgotten,     ///< gathers and does not wait
  kExternalUnseen,    ///< gathers a module's own parameters only
  kLeafUnseen,        ///< and not those below a leaf
  kGathersWhole,      ///< also what a module around has gathered
  kWaitsForAnything,  ///< waits for the parameters of children, too
  kReleasesUsed,      ///< although a module around still uses it
  kReleasesTwice,     ///< at leave and at the end of the step
  kReleasesExternal,  ///< before the step ends
  kStepKeeps,         ///< what is persistent stays whole
  kReducesFrozen,     ///< the frozen parameters of a module, too
  kReducesTwice,
  kReducesEarly,      ///< when the first module that uses a parameter is left
  kGroupTorn,         ///< a wait stands between two gathers of a group
  kPlaceOdd,          ///< in the arena
  kPlaceShared,       ///< everything lies at 0
  kBudgetIgnored,     ///< releases nothing before the step ends
  kGradientsIgnored,  ///< keeps whole what the budget has bytes for, and leaves none to gradients
  kKindUnknown,       ///< an action that there is not
  kTierAssumed,       ///< loads before it gathers
  kRefusesLarge,      ///< more than 20 parameters
  kRoomIgnored,       ///< writes one action where there is no room
  kOrderShared,       ///< depends on the number of the instance
  kOrderRemembered,   ///< depends on the steps of models before
  kGivenUpKept,       ///< what was used when a pass was given up stays whole
  kOldParameters,     ///< a module's, after it got others
  kModuleUnknown,     ///< is answered as if it were there
  kNumbersUnknown,    ///< likewise
  kLeaveUnmatched,    ///< releases what was never gathered
  kCostsAny,          ///< of any number of parameters
  kCountersWide,      ///< writes counters past the room for them
  kRefusesCosts,      ///< all that the host has measured, which it names
  kStatePartial,      ///< remembers more than it saves
  kTraceKept,         ///< goes on as before when its trace is to be dropped
};

const std::map<std::string, Fault>& faults() {
  static const std::map<std::string, Fault> kFaults{{"wait-forgotten", Fault::kWaitForgotten},
                                                    {"external-unseen", Fault::kExternalUnseen},
                                                    {"leaf-unseen", Fault::kLeafUnseen},
                                                    {"gathers-whole", Fault::kGathersWhole},
                                                    {"waits-for-anything", Fault::kWaitsForAnything},
                                                    {"releases-used", Fault::kReleasesUsed},
                                                    {"releases-twice", Fault::kReleasesTwice},
                                                    {"releases-external", Fault::kReleasesExternal},
                                                    {"step-keeps", Fault::kStepKeeps},
                                                    {"reduces-frozen", Fault::kReducesFrozen},
                                                    {"reduces-twice", Fault::kReducesTwice},
                                                    {"reduces-early", Fault::kReducesEarly},
                                                    {"group-torn", Fault::kGroupTorn},
                                                    {"place-odd", Fault::kPlaceOdd},
                                                    {"place-shared", Fault::kPlaceShared},
                                                    {"budget-ignored", Fault::kBudgetIgnored},
                                                    {"gradients-ignored", Fault::kGradientsIgnored},
                                                    {"kind-unknown", Fault::kKindUnknown},
                                                    {"tier-assumed", Fault::kTierAssumed},
                                                    {"refuses-large", Fault::kRefusesLarge},
                                                    {"room-ignored", Fault::kRoomIgnored},
                                                    {"order-shared", Fault::kOrderShared},
                                                    {"order-remembered", Fault::kOrderRemembered},
                                                    {"given-up-kept", Fault::kGivenUpKept},
                                                    {"old-parameters", Fault::kOldParameters},
                                                    {"module-unknown", Fault::kModuleUnknown},
                                                    {"numbers-unknown", Fault::kNumbersUnknown},
                                                    {"leave-unmatched", Fault::kLeaveUnmatched},
                                                    {"costs-any", Fault::kCostsAny},
                                                    {"counters-wide", Fault::kCountersWide},
                                                    {"refuses-costs", Fault::kRefusesCosts},
                                                    {"state-partial", Fault::kStatePartial},
                                                    {"trace-kept", Fault::kTraceKept}};
  return kFaults;
}

std::atomic<int64_t> instances = 0;  // made so far

class Broken {
 public:
  std::string name = "none";
  bool places = false;
  bool ahead = false;
  int64_t waits = -1;

  static void options(sdk::Options<Broken>& table) {
    table.add("fault", &Broken::name, "What is wrong: none, or a fault's name.");
    table.add("places", &Broken::places, "Gives each parameter a place of its own.");
    table.add("ahead", &Broken::ahead, "Gathers all that is not whole when the root is entered.");
    table.add("waits", &Broken::waits, "Waits that may be unfinished before another one; -1: any number.").at_least(-1);
  }
  void start(const sdk::Host& /*host*/) {
    const auto found = faults().find(name);
    if (found != faults().end()) fault_ = found->second;
    number_ = instances++;
  }
  [[nodiscard]] bool is(Fault fault) const { return fault_ == fault; }

  void set_model(const sdk::Model& model) {
    if (is(Fault::kRefusesLarge) && model.parameters.size() > 20) {
      throw sdk::Failure(PLIANT_RESOURCE_EXHAUSTED, "more than 20 parameters");
    }
    model_ = model;
    learnt_ = 0;
    whole_.assign(model.parameters.size(), false);
    twice_ = coming_ = whole_;
    users_.assign(model.parameters.size(), 0);
    if (is(Fault::kLeafUnseen)) {
      for (sdk::Module& module : model_.modules) module.leaf = false;
    }
  }
  void set_module_parameters(uint32_t module, std::span<const uint32_t> own, std::span<const uint32_t> external) {
    if (is(Fault::kOldParameters)) return;
    model_.modules[module].own.assign(own.begin(), own.end());
    model_.modules[module].external.assign(external.begin(), external.end());
  }
  void set_costs(std::span<const uint64_t> nanoseconds) {
    if (!is(Fault::kRefusesCosts)) return;
    const auto gathered = std::count_if(nanoseconds.begin(), nanoseconds.end(), [](uint64_t one) { return one > 0; });
    std::string words = "costs of " + std::to_string(nanoseconds.size()) + " parameters, " + std::to_string(gathered) +
                        " of them gathered, in nanoseconds:";
    for (const uint64_t one : nanoseconds) words += " " + std::to_string(one);
    throw sdk::Failure(PLIANT_RESOURCE_EXHAUSTED, words);
  }

  void begin_pass(bool with_gradient, sdk::Actions& /*actions*/) { with_gradient_ = with_gradient; }

  void enter(const sdk::Visit& visit, sdk::Actions& actions) {
    std::vector<uint32_t> used = model_.used_by(visit.module);
    const bool shared = is(Fault::kOrderShared) && number_ % 2 == 1 && used.size() > 2;
    const bool remembers = (is(Fault::kOrderRemembered) && steps_ > 3) ||
                           (is(Fault::kTraceKept) && is_told_to_forget_) || (is(Fault::kStatePartial) && learnt_ > 0);
    if (shared || remembers) std::reverse(used.begin(), used.end());
    const uint32_t group = actions.new_group();
    if (keeps()) make_room(used, actions);
    for (uint32_t number = 0; ahead && visit.module == 0 && number < whole_.size(); ++number) {
      if (whole_[number] || coming_[number]) continue;
      actions.gather(number, actions.new_group(), true);
      coming_[number] = true;
    }
    for (const uint32_t number : used) {
      ++users_[number];
      if (whole_[number] && !is(Fault::kGathersWhole)) continue;
      const std::vector<uint32_t>& own = model_.modules[visit.module].own;
      if (is(Fault::kExternalUnseen) && std::find(own.begin(), own.end(), number) == own.end()) continue;
      gather(number, group, actions);
    }
    if (is(Fault::kWaitsForAnything)) wait_for_children(visit.module, actions);
  }

  void leave(const sdk::Visit& visit, sdk::Actions& actions) {
    const std::vector<uint32_t> used = model_.used_by(visit.module);
    for (const uint32_t number : used) {
      const sdk::Parameter& one = model_.parameters[number];
      if (is(Fault::kLeaveUnmatched) && users_[number] == 0) actions.release(number);
      if (users_[number] > 0) --users_[number];
      if (users_[number] > 0 && !is(Fault::kReleasesUsed)) continue;
      if (is(Fault::kBudgetIgnored) || keeps() || (one.external && !is(Fault::kReleasesExternal))) continue;
      if (whole_[number]) actions.release(number);
      whole_[number] = false;
      twice_[number] = is(Fault::kReleasesTwice);
    }
    for (const uint32_t number : visit.complete) {
      actions.reduce(number, actions.new_group());
      if (is(Fault::kReducesTwice)) actions.reduce(number, actions.new_group());
    }
    if (visit.backward && with_gradient_) reduce_more(used, actions);
  }

  void end_pass(sdk::Actions& /*actions*/) {}

  void end_step(sdk::Actions& actions) {
    ++steps_;
    ++learnt_;
    for (uint32_t number = 0; number < whole_.size(); ++number) {
      const bool kept = (is(Fault::kStepKeeps) && model_.parameters[number].external) ||
                        (is(Fault::kGivenUpKept) && users_[number] > 0);
      users_[number] = 0;
      if (!(whole_[number] || twice_[number]) || kept) continue;
      actions.release(number);
      whole_[number] = twice_[number] = false;
    }
  }

  void drop_trace(sdk::Actions& /*actions*/) {
    is_told_to_forget_ = true;
    learnt_ = 0;
  }
  void save(sdk::Writer& out) const { out.value(is(Fault::kStatePartial) ? int64_t{0} : learnt_); }
  void load(sdk::Reader& in) {
    const auto learnt = in.value<int64_t>();
    in.expect_end();
    learnt_ = learnt;
  }
  [[nodiscard]] sdk::CoordinatorCounts counts() const { return {0, PLIANT_TRACE_NONE, 1, 2, UINT64_MAX, 0}; }
  const void* extension(const char* id) const;

 private:
  [[nodiscard]] bool keeps() const { return is(Fault::kGradientsIgnored) && model_.budget > 0; }
  void make_room(const std::vector<uint32_t>& used, sdk::Actions& actions) {
    uint64_t bytes = 0;
    for (uint32_t number = 0; number < whole_.size(); ++number) {
      const bool comes = std::binary_search(used.begin(), used.end(), number);
      if (whole_[number] || comes) bytes += model_.parameters[number].bytes;
    }
    for (uint32_t number = 0; number < whole_.size() && bytes > model_.budget; ++number) {
      const bool stays = users_[number] > 0 || model_.parameters[number].external ||
                         std::binary_search(used.begin(), used.end(), number);
      if (!whole_[number] || stays) continue;
      actions.release(number);
      whole_[number] = false;
      bytes -= model_.parameters[number].bytes;
    }
  }
  void gather(uint32_t number, uint32_t group, sdk::Actions& actions) {
    uint64_t place = PLIANT_ANY_PLACE;
    if (places) {
      place = 0;
      for (uint32_t before = 0; before < number; ++before) place += model_.parameters[before].bytes;
    }
    if (is(Fault::kPlaceOdd)) place = 8 + 8192 * uint64_t{number};
    if (is(Fault::kPlaceShared)) place = 0;
    if (is(Fault::kTierAssumed)) actions.load(number, 1);
    if (is(Fault::kKindUnknown)) actions.gather(number + 1000000, group);
    if (!coming_[number]) actions.gather(number, is(Fault::kGroupTorn) ? group : actions.new_group(), false, place);
    if (waits >= 0) actions.bound_waits(static_cast<uint64_t>(waits));
    if (!is(Fault::kWaitForgotten)) actions.wait(number);
    whole_[number] = true;
    twice_[number] = coming_[number] = false;
  }
  void wait_for_children(uint32_t module, sdk::Actions& actions) {
    for (const uint32_t child : model_.modules[module].children) {
      for (const uint32_t number : model_.modules[child].own) actions.wait(number);
    }
  }
  void reduce_more(const std::vector<uint32_t>& used, sdk::Actions& actions) {
    for (const uint32_t number : used) {
      const bool frozen = model_.parameters[number].frozen;
      if (is(Fault::kReducesFrozen) && frozen) actions.reduce(number, actions.new_group());
      if (is(Fault::kReducesEarly) && !frozen && users_[number] > 0) actions.reduce(number, actions.new_group());
    }
  }

  Fault fault_ = Fault::kNone;
  sdk::Model model_;
  std::vector<bool> whole_;
  std::vector<bool> twice_;   // released once already
  std::vector<bool> coming_;  // gathered before its first visit
  std::vector<uint32_t> users_;
  int64_t steps_ = 0;
  int64_t learnt_ = 0;  // steps of this model
  int64_t number_ = 0;
  bool with_gradient_ = false;
  bool is_told_to_forget_ = false;
};

using Adapter = sdk::detail::CoordinatorAdapter<Broken>;

Broken& broken(void* self) {
  return static_cast<Adapter::Instance*>(self)->plugin;
}

const pliant_coordinator& sdk_slots() {
  return *static_cast<const pliant_coordinator*>(Adapter::vtable());
}

/// The visit as if it were to module 0, where the fault is to take any number.
pliant_visit known(void* self, const pliant_visit& visit) {
  pliant_visit made = visit;
  const bool there = visit.module < static_cast<Adapter::Instance*>(self)->modules;
  if (!there && broken(self).is(Fault::kModuleUnknown)) made.module = 0;
  return made;
}

/// What the SDK's slots keep an author from.
const pliant_coordinator& slots() {
  static const pliant_coordinator kTable = [] {
    pliant_coordinator made = sdk_slots();
    made.enter = [](void* self, const pliant_visit* visit, pliant_action_list* list, pliant_error* error) {
      const pliant_visit one = known(self, *visit);
      const int32_t status = sdk_slots().enter(self, &one, list, error);
      if (status == PLIANT_RESOURCE_EXHAUSTED && broken(self).is(Fault::kRoomIgnored)) {
        list->actions[list->count++] = {PLIANT_ACTION_DROP_TRACE, PLIANT_NO_PARAMETER, 0, 0, 0};
        return int32_t{PLIANT_OK};
      }
      return status;
    };
    made.set_model = [](void* self, const pliant_model* model, pliant_error* error) {
      const int32_t status = sdk_slots().set_model(self, model, error);
      return broken(self).is(Fault::kNumbersUnknown) ? int32_t{PLIANT_OK} : status;
    };
    made.set_costs = [](void* self, const uint64_t* costs, uint64_t count, pliant_error* error) {
      const int32_t status = sdk_slots().set_costs(self, costs, count, error);
      return broken(self).is(Fault::kCostsAny) ? int32_t{PLIANT_OK} : status;
    };
    return made;
  }();
  return kTable;
}

int32_t read_wide(void* /*self*/, pliant_coordinator_counts* counts, pliant_error* /*error*/) {
  const uint32_t size = counts->struct_size;
  *counts = {size, PLIANT_TRACE_NONE, 1, 2, UINT64_MAX, UINT64_MAX};
  return PLIANT_OK;
}

const void* Broken::extension(const char* id) const {
  static const pliant_coordinator_counters kWide{sizeof(pliant_coordinator_counters), 0, &read_wide};
  const void* const table = sdk::counters_of<Broken>(id);
  return table != nullptr && is(Fault::kCountersWide) ? &kWide : table;
}

}  // namespace

extern "C" PLIANT_PLUGIN_EXPORT const pliant_plugin* pliant_plugin_entry_v1(void) {
  return sdk::detail::record<Broken, Adapter::Instance>(PLIANT_KIND_COORDINATOR, &slots(), "broken", "0.0.1",
                                                        "Broken on purpose, to test the kit");
}
