// Draws models, passes over them and what becomes complete in them.
#include "testkit/coordinator/training.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "testkit/coordinator/gradients.hpp"
#include "testkit/values.hpp"

namespace pliant::testkit {

namespace {

sdk::Parameter drawn_parameter(Draws& draws) {
  sdk::Parameter made;
  made.elements = draws.one_in(8) ? 0 : 1 + draws.below(5000);
  made.bytes = (4 * made.elements + 255) / 256 * 256;
  made.dtype = PLIANT_F32;
  made.frozen = draws.one_in(6);
  made.persistent = draws.one_in(6);
  made.external = draws.one_in(10);
  return made;
}

void add(std::vector<uint32_t>& to, uint64_t number) {
  const auto one = static_cast<uint32_t>(number);
  if (std::find(to.begin(), to.end(), one) == to.end()) to.push_back(one);
}

/// Each parameter has an owner, some have two; modules use some of others'.
void deal_parameters(sdk::Model& model, Draws& draws) {
  for (uint32_t number = 0; number < model.parameters.size(); ++number) {
    add(model.modules[draws.below(model.modules.size())].own, number);
    if (draws.one_in(5)) add(model.modules[draws.below(model.modules.size())].own, number);
  }
  for (sdk::Module& module : model.modules) {
    if (model.parameters.empty() || !draws.one_in(3)) continue;
    const uint64_t number = draws.below(model.parameters.size());
    if (std::find(module.own.begin(), module.own.end(), number) == module.own.end()) add(module.external, number);
  }
}

sdk::Model drawn_model(Draws& draws, uint64_t index) {
  sdk::Model model;
  const uint64_t parameters = index == 0 ? 0 : index == 1 ? 1 : 1 + draws.below(24);
  const uint64_t modules = index == 1 ? 1 : 1 + draws.below(16);
  for (uint64_t i = 0; i < parameters; ++i) model.parameters.push_back(drawn_parameter(draws));
  model.modules.resize(static_cast<size_t>(modules));
  for (uint32_t i = 1; i < modules; ++i) model.modules[draws.below(i)].children.push_back(i);
  for (sdk::Module& module : model.modules) module.leaf = draws.one_in(8);
  model.modules[0].leaf = index == 2;
  model.world_size = static_cast<int32_t>(1 + draws.below(8));
  deal_parameters(model, draws);
  return model;
}

/// What one program does in every pass alike, or anew each time.
struct Habits {
  bool skips = false;        ///< leaves modules out and visits some twice
  bool shuffles = false;     ///< children in another order
  bool recomputes = false;   ///< the forward of some modules, in backward
  bool leaves_late = false;  ///< in backward: a module is left after the one around it
};

class Pass {
 public:
  Pass(const sdk::Model& model, const Habits& habits, Draws draws) : model_(model), habits_(habits), draws_(draws) {}

  Moves drawn(bool with_gradient) {
    Move begin;
    begin.with_gradient = with_gradient;
    moves_.push_back(begin);
    forward(0, false);
    if (with_gradient) backward(0);
    if (with_gradient) complete();
    moves_.push_back({Move::Kind::kEndPass, with_gradient, {}, {}});
    return std::move(moves_);
  }

 private:
  void visit(Move::Kind kind, uint32_t module, bool backward, bool recompute) {
    moves_.push_back({kind, true, {module, backward, recompute, {}}, {}});
  }

  std::vector<uint32_t> children_of(uint32_t module) {
    const sdk::Module& one = model_.modules[module];
    if (one.leaf) return {};
    std::vector<uint32_t> made;
    for (const uint32_t child : one.children) {
      if (habits_.skips && draws_.one_in(4)) continue;
      made.push_back(child);
      if (habits_.skips && draws_.one_in(4)) made.push_back(child);
    }
    for (size_t i = made.size(); habits_.shuffles && i > 1; --i) std::swap(made[i - 1], made[draws_.below(i)]);
    return made;
  }

  void forward(uint32_t module, bool recompute) {
    visit(Move::Kind::kEnter, module, false, recompute);
    for (const uint32_t child : children_of(module)) forward(child, recompute);
    visit(Move::Kind::kLeave, module, false, recompute);
  }

  void backward(uint32_t module) {
    visit(Move::Kind::kEnter, module, true, false);
    if (habits_.recomputes && draws_.one_in(3)) forward(module, true);
    std::vector<uint32_t> children = children_of(module);
    std::reverse(children.begin(), children.end());
    for (const uint32_t child : children) {
      if (habits_.recomputes && draws_.one_in(4)) forward(child, true);
      backward(child);
    }
    const bool late = habits_.leaves_late && !children.empty() && draws_.one_in(2);
    visit(Move::Kind::kLeave, module, true, false);
    if (late) std::swap(moves_[moves_.size() - 1], moves_[moves_.size() - 2]);  // with the leave of the last child
  }

  /// A gradient is complete when modules that use its parameter were left in backward as often as they were entered
  /// forward; else, and where it is used unannounced, when the pass ends, and the host reduces it.
  void complete() {
    std::vector<uint32_t> uses(model_.parameters.size());
    std::set<uint32_t> done;
    for (Move& move : moves_) {
      const bool is_forward = move.kind == Move::Kind::kEnter && !move.visit.backward && !move.visit.recompute;
      const bool ends = move.kind == Move::Kind::kLeave && move.visit.backward;
      if (!is_forward && !ends) continue;
      for (const uint32_t number : model_.used_by(move.visit.module)) {
        const sdk::Parameter& one = model_.parameters[number];
        if (is_forward) {
          ++uses[number];
        } else if (uses[number] > 0 && --uses[number] == 0 && !one.frozen && !one.external &&
                   done.insert(number).second) {
          move.completed.push_back(number);
        }
      }
    }
  }

  const sdk::Model& model_;
  Habits habits_;
  Draws draws_;
  Moves moves_;
};

std::vector<Moves> drawn_steps(const sdk::Model& model, Draws& draws, uint64_t seed, uint64_t index) {
  const bool steady = draws.one_in(2);
  const Habits habits{!steady && draws.one_in(2), !steady, draws.one_in(2), draws.one_in(3)};
  std::vector<Moves> steps(2 + draws.below(4));
  uint64_t passes = 0;
  for (Moves& step : steps) {
    const bool evaluates = draws.one_in(4);
    for (uint64_t i = 0, count = 1 + draws.below(2); i < count; ++i) {
      const uint64_t where = (index << 20) + (steady ? 1 : 2 + passes++);
      Moves pass = Pass(model, habits, Draws(seed, where)).drawn(!evaluates);
      step.insert(step.end(), std::make_move_iterator(pass.begin()), std::make_move_iterator(pass.end()));
    }
    step.push_back({Move::Kind::kEndStep, true, {}, {}});
  }
  return steps;
}

}  // namespace

Training drawn_training(uint64_t seed, uint64_t index) {
  Draws draws(seed, index << 20);
  Training made;
  made.model = drawn_model(draws, index);
  made.steps = drawn_steps(made.model, draws, seed, index);
  return made;
}

Training given_up(Training training, uint64_t seed) {
  Draws draws(seed, UINT64_C(1) << 40);
  for (Moves& step : training.steps) {
    step.resize(1 + static_cast<size_t>(draws.below(step.size() - 1)));
    step.push_back({Move::Kind::kEndStep, true, {}, {}});
  }
  return training;
}

Training with_other_parameters(const Training& training, uint64_t seed, uint32_t& module) {
  Draws draws(seed, UINT64_C(1) << 41);
  Training made = training;
  module = static_cast<uint32_t>(draws.below(made.model.modules.size()));
  sdk::Module& changed = made.model.modules[module];
  changed.own.clear();
  changed.external.clear();
  for (uint32_t number = 0; number < made.model.parameters.size(); ++number) {
    if (draws.one_in(4))
      changed.own.push_back(number);
    else if (draws.one_in(6))
      changed.external.push_back(number);
  }
  made.steps = drawn_steps(made.model, draws, seed, UINT64_C(1) << 22);
  return made;
}

Training with_gradients(Training training, uint64_t seed) {
  Draws draws(seed, UINT64_C(1) << 42);
  for (sdk::Parameter& one : training.model.parameters) {
    if (one.frozen) continue;
    one.gradient_bytes = one.bytes;
    one.received_bytes = one.bytes * draws.below(4);
  }
  training.model.reduce_flags = draws.one_in(2) ? uint64_t{PLIANT_ACTION_LINGER} : 0;
  return training;
}

uint64_t least_budget(const Training& training) {
  const sdk::Model& model = training.model;
  uint64_t least = 0;
  for (const Moves& step : training.steps) {
    std::vector<int64_t> users(model.parameters.size());
    GradientBooks gradients(model);
    for (const Move& move : step) {
      gradients.called();
      if (move.kind == Move::Kind::kBeginPass) gradients.cleared();
      if (move.kind != Move::Kind::kEnter && move.kind != Move::Kind::kLeave) continue;
      for (const uint32_t number : model.used_by(move.visit.module)) {
        if (move.kind == Move::Kind::kEnter)
          ++users[number];
        else if (!model.parameters[number].external)
          --users[number];
      }
      uint64_t bytes = 0;
      for (size_t i = 0; i < users.size(); ++i) bytes += users[i] > 0 ? model.parameters[i].bytes : 0;
      if (move.kind == Move::Kind::kEnter && move.visit.backward) gradients.entered_backward(move.visit.module);
      for (const uint32_t number : move.completed) gradients.reduced(number);
      least = std::max(least, bytes + gradients.bytes());
    }
  }
  return least;
}

}  // namespace pliant::testkit
