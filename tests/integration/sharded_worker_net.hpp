// The small sharded model of the worker of sharded jobs, and what [app] has the worker do with it.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <istream>
#include <optional>
#include <ostream>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "integration/sharded_worker_ahead.hpp"
#include "integration/sharded_worker_memory.hpp"
#include "integration/sharded_worker_misbehaviour.hpp"
#include "pliant/optimizer.hpp"
#include "pliant/session.hpp"
#include "pliant/sharded.hpp"

namespace pliant::test {

inline int32_t length_of(int64_t id) {
  return static_cast<int32_t>(3 + (id * 37) % 29);
}
inline float target_of(int64_t id, size_t element) {
  return static_cast<float>((static_cast<uint64_t>(id) * 7919 + element * 104729) % 2003) / 2003.0F;
}
inline float first_value(size_t element) {
  return static_cast<float>(element * 17 % 1000) / 1000;
}

/// What [app] has every rank do beside plain passes; none of it changes a bit of training but `flags` and `adamw`.
struct Habits {
  explicit Habits(const Config& config)
      : flags(config.app_bool("flags").value_or(false)),
        recomputes(config.app_bool("recomputes").value_or(false)),
        has_reference(config.app_bool("reference").value_or(false)),
        adamw(config.app_string("optimizer").value_or("") == "adamw") {}
  bool flags;
  bool recomputes;     ///< each layer computes forward once more before its backward
  bool has_reference;  ///< a frozen layer beside the trained ones is visited forward in each pass
  bool adamw;          ///< the accelerator's, with the gradient clipped; else momentum, computed by the CPU
};

/// Layers of [app] width, at most 1 of which is a model of nothing else. With [app] flags the first layer's weights are
/// external and the last layer uses them unannounced; the second one's are persistent and lie in a module below it,
/// which is not entered: the layer is a leaf. With [app] reversed all parameters are added the other way round.
struct Net final : TrainingState {
  static constexpr float kKept = 0.9F;  ///< of the momentum, from step to step

  Session& session;
  const Habits habits;
  const Misbehaviour& wrong;
  ShardedModel shards;
  const size_t width;
  ModuleId root{};
  std::optional<ParameterId> frozen;
  std::vector<ModuleId> layers;
  std::vector<ParameterId> weights;
  std::optional<std::pair<ModuleId, ParameterId>> reference;
  float* owned = nullptr;  ///< some of what this rank owns, as the last update showed it

  Net(Session& of, const Misbehaviour& misbehaviour)
      : session(of),
        habits(session.config()),
        wrong(misbehaviour),
        shards(session, names_of_state()),
        width(static_cast<size_t>(session.config().app_int("width").value_or(3000))) {
    const int64_t asked = session.config().app_int("layers").value_or(3);
    const int64_t count = wrong.is("other_model") ? asked + 1 : asked;
    const bool reversed = session.config().app_bool("reversed").value_or(false);
    if (width > 1 && !reversed) frozen = add("frozen", 7, true);
    weights.resize(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t layer = reversed ? count - 1 - i : i;
      weights[static_cast<size_t>(layer)] =
          add(fmt::format("layer.{}.weights", layer), static_cast<int64_t>(width), false, layer);
    }
    if (width > 1 && reversed) frozen = add("frozen", 7, true);
    add_modules();
  }
  void add_modules() {
    const auto of_root = frozen ? std::vector{*frozen} : std::vector<ParameterId>();
    root = shards.add({.name = "model", .parent = {}, .own = of_root, .external = {}});
    for (size_t i = 0; i < weights.size(); ++i) {
      const std::string name = fmt::format("layer.{}", i);
      const bool is_leaf = habits.flags && i == 1;
      ModuleSpec layer{.name = name, .parent = root, .own = {}, .external = {}};
      layer.leaf = is_leaf;
      if (!is_leaf) layer.own.push_back(weights[i]);
      layers.push_back(shards.add(layer));
      if (is_leaf) shards.add({.name = name + ".below", .parent = layers.back(), .own = {weights[i]}, .external = {}});
    }
    if (!habits.has_reference) return;
    const ParameterId kept = add("reference.weights", static_cast<int64_t>(width), true);
    reference.emplace(shards.add({.name = "reference", .parent = root, .own = {kept}, .external = {}}), kept);
  }
  [[nodiscard]] std::vector<std::string> names_of_state() const {
    if (habits.adamw) return {"first_moment", "second_moment"};
    return {session.config().app_string("state").value_or(wrong.is("other_state") ? "velocity" : "momentum")};
  }
  ParameterId add(const std::string& name, int64_t elements, bool is_frozen, int64_t layer = -1) {
    ParameterSpec spec;
    spec.name = name;
    spec.shape = {elements};
    spec.frozen = is_frozen;
    spec.external = habits.flags && layer == 0;
    spec.persistent = habits.flags && layer == 1;
    spec.initialise = [](std::span<float> values) {
      for (size_t k = 0; k < values.size(); ++k) values[k] = first_value(k);
    };
    return shards.add(std::move(spec));
  }
  [[nodiscard]] uint64_t gradient_size() const override { return 0; }
  void save(std::ostream&) const override {}
  void load(std::istream&) override {}

  double pass(const Step& step, const std::vector<int64_t>& ids) {
    shards.enter(root, Direction::kForward);
    const float scale = frozen ? whole(*frozen, 7)[3] : 1.0F;
    const double loss = forward(step, ids, scale);
    look_at_reference();
    shards.leave(root, Direction::kForward);
    shards.enter(root, Direction::kBackward);
    for (size_t i = layers.size(); i-- > 0;) {
      if (habits.recomputes) recompute(step, i);
      shards.enter(layers[i], Direction::kBackward);
      for (const size_t k : used_by(i)) add_gradient(step, ids, scale, weights[k]);
      wrong.at("backward", step);
      const bool root_is_first = i == 0 && wrong.is_now("leave_root_first", step);
      if (root_is_first) shards.leave(root, Direction::kBackward);
      shards.leave(layers[i], Direction::kBackward);
      if (root_is_first) return loss;
    }
    shards.leave(root, Direction::kBackward);
    return loss;
  }
  Seen whole(ParameterId parameter, size_t elements) { return Seen(session, shards.value(parameter), elements); }
  [[nodiscard]] bool is_whole(ParameterId parameter) {
    try {
      return shards.value(parameter) != nullptr;
    } catch (const Error&) {
      return false;
    }
  }
  void look_at_reference() {
    if (!reference) return;
    shards.enter(reference->first, Direction::kForward);
    const Seen values = whole(reference->second, width);
    for (size_t k = 0; k < width; ++k) {
      if (values[k] != first_value(k)) throw std::runtime_error("the reference has changed");
    }
    shards.leave(reference->first, Direction::kForward);
  }
  void recompute(const Step& step, size_t layer) {
    shards.enter(layers[layer], Direction::kRecompute);
    for (const size_t k : used_by(layer)) static_cast<void>(whole(weights[k], width));
    wrong.at("recomputing", step);
    shards.leave(layers[layer], Direction::kRecompute);
  }
  /// A pass without gradients; nobody reads what it comes to. Where the misbehaviour is to be `held` one rank of two
  /// runs ahead, as far as its coordinator lets it while the other waits.
  void evaluate(const Step& step) {
    std::vector<ModuleId> visits = layers;
    if (wrong.has_place("held")) visits.push_back(layers.front());
    std::optional<Ahead> ahead;
    if (const std::optional<bool> runs = wrong.runs_ahead(step)) {
      if (*runs) {
        ahead.emplace(wrong.signal(), static_cast<int>(visits.size()) - 1);
      } else {
        let_run_ahead();
      }
    }
    shards.begin_evaluation();
    for (size_t i = 0; i < visits.size(); ++i) {
      if (ahead) ahead->enter(static_cast<int>(i));
      shards.enter(visits[i], Direction::kForward);
      if (ahead) ahead->is_in();
      wrong.at("evaluating", step);
      shards.leave(visits[i], Direction::kForward);
    }
    ahead.reset();
    shards.end_pass();
  }
  /// Passes without gradients of other lengths, each of which visits the layers in another order.
  void generate() {
    for (const size_t tokens : {size_t{1}, size_t{3}, size_t{2}}) {
      shards.begin_evaluation();
      shards.enter(root, Direction::kForward);
      for (size_t token = 0; token < tokens; ++token) {
        for (size_t i = layers.size(); i-- > 0;) {
          const size_t layer = (i + token + tokens) % layers.size();
          shards.enter(layers[layer], Direction::kForward);
          static_cast<void>(whole(weights[layer], width));
          shards.leave(layers[layer], Direction::kForward);
        }
      }
      shards.leave(root, Direction::kForward);
      shards.end_pass();
    }
  }
  /// What is frozen goes half the way to the first layer's weights.
  void average(const Step& step) {
    std::vector<float> values(width);
    std::vector<float> averages(7);
    shards.read(weights.front(), values);
    shards.read(*frozen, averages);
    wrong.break_write(step);
    for (size_t k = 0; k < averages.size(); ++k) averages[k] += 0.5F * (values[k] - averages[k]);
    shards.write(*frozen, averages);
  }
  /// What the misbehaviour has this rank do by itself when its passes are made.
  void act_alone(const Step& step) {
    if (wrong.is_now("evaluate_alone", step)) evaluate(step);
    if (!wrong.is_now("read_alone", step)) return;
    std::vector<float> values(width);
    shards.read(weights.back(), values);
  }
  /// A digest of each layer's weights, on stderr of rank 0.
  void say_weights(const Step& step) {
    std::vector<float> values(width);
    for (size_t i = 0; i < weights.size(); ++i) {
      shards.read(weights[i], values);
      const std::string_view bytes(reinterpret_cast<const char*>(values.data()), width * sizeof(float));
      if (step.rank() == 0) fmt::print(stderr, "layer.{} is {:016x}\n", i, std::hash<std::string_view>()(bytes));
    }
  }
  [[nodiscard]] std::vector<size_t> used_by(size_t layer) const {
    if (habits.flags && layer + 1 == layers.size() && layer > 0) return {layer, 0};
    return {layer};
  }
  double forward(const Step& step, const std::vector<int64_t>& ids, float scale) {
    double loss = 0;
    for (const size_t i : wrong.order_of(step, layers.size())) {
      const bool is_first = i == 0;
      shards.enter(layers[i], Direction::kForward);
      wrong.at("entered", step);
      if (is_first && wrong.is_now("enter_twice", step)) {
        shards.enter(layers[i], Direction::kForward);
        shards.leave(layers[i], Direction::kForward);
      }
      for (const size_t used : used_by(i)) loss += loss_of(ids, scale, weights[used]);
      if (is_first && wrong.is_now("never_leave", step)) continue;
      const float* const kept = shards.value(weights[i]);
      shards.leave(layers[i], Direction::kForward);
      if (is_first && !ids.empty() && wrong.is_now("keep_pointer", step)) loss += 0 * Seen(session, kept, width)[7];
      if (is_first && wrong.is_now("use_released", step)) static_cast<void>(whole(weights[i], width));
      if (wrong.has_place("released") && !is_whole(weights[i])) wrong.at("released", step);
    }
    return loss;
  }
  double loss_of(const std::vector<int64_t>& ids, float scale, ParameterId of) {
    double loss = 0;
    const Seen value = whole(of, width);
    for (const int64_t id : ids) {
      for (size_t k = 0; k < width; ++k) {
        const double error = value[k] - scale * target_of(id, k);
        loss += 0.5 * length_of(id) * error * error / static_cast<double>(width);
      }
    }
    return loss;
  }
  void add_gradient(const Step& step, const std::vector<int64_t>& ids, float scale, ParameterId of) {
    const Seen value = whole(of, width);
    const Seen gradient(session, shards.gradient(of), width);
    for (const int64_t id : ids) {
      const auto strength = static_cast<float>(length_of(id));
      for (size_t k = 0; k < width; ++k) gradient[k] += strength * (value[k] - scale * target_of(id, k));
    }
    if (!ids.empty()) wrong.spoil(step, gradient.values());
    gradient.store(shards.gradient(of));
  }
  void apply(const Step& step) {
    if (habits.adamw) return apply_adamw(step);
    const auto rate = static_cast<float>(step.learning_rate());
    bool has_called = false;
    shards.update([&](const ShardRange& range) {
      owned = range.weights;
      if (wrong.is_now("call_twice", step) && !std::exchange(has_called, true)) call_beside();
      const Seen values(session, range.weights, range.count);
      const Seen momentum(session, range.state[0], range.count);
      const Seen gradient(session, range.gradient, range.count);
      for (uint64_t k = 0; k < range.count; ++k) {
        momentum[k] = kKept * momentum[k] + gradient[k];
        values[k] -= rate * momentum[k];
      }
      momentum.store(range.state[0]);
      values.store(range.weights);
    });
  }
  /// Calls of this thread, inside the callback of another, and of a thread beside it; says what came of those.
  void call_beside() {
    static_cast<void>(shards.memory());
    for (const char* const call : {"enter", "memory"}) {
      std::thread([&] {
        try {
          if (call == std::string_view("enter")) shards.enter(root, Direction::kForward);
          static_cast<void>(shards.memory());
          fmt::print(stderr, "sharded_worker: {} is let in\n", call);
        } catch (const Error& error) {
          fmt::print(stderr, "sharded_worker: refused: {}\n", error.message());
        }
      }).join();
    }
  }
  void apply_adamw(const Step& step) {
    AdamWUpdate update;
    const auto steps = static_cast<double>(step.index() + 1);
    const double norm = std::sqrt(shards.squared_gradient_norm());
    update.gradient_scale = static_cast<float>(1 / std::max(norm, 1.0));
    update.rate = static_cast<float>(step.learning_rate() / (1 - std::pow(0.9, steps)));
    update.correction = static_cast<float>(1 / std::sqrt(1 - std::pow(0.999, steps)));
    update.decay = static_cast<float>(step.learning_rate() * 0.01);
    shards.update([&](const ShardRange& range) {
      owned = range.weights;
      adamw(session.stream(), update, {range.weights, range.gradient, range.state[0], range.state[1], range.count});
    });
    session.stream().synchronize();
  }
};

}  // namespace pliant::test
