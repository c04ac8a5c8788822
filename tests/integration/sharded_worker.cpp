// A worker with a small sharded model: quick to start, exact to check, and able to misbehave when [app] says so.
#include <fmt/format.h>
#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <istream>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>
#include <ostream>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "pliant/log.hpp"
#include "pliant/session.hpp"
#include "pliant/sharded.hpp"

namespace {

using pliant::Direction;

constexpr int64_t kSequences = 1000;
constexpr float kKept = 0.9F;  ///< of the momentum, from step to step

int32_t length_of(int64_t id) {
  return static_cast<int32_t>(3 + (id * 37) % 29);
}
float target_of(int64_t id, size_t element) {
  return static_cast<float>((static_cast<uint64_t>(id) * 7919 + element * 104729) % 2003) / 2003.0F;
}

/// Floats of the device as the CPU sees them: where they lie, where it reaches them, else a copy.
class Seen {
 public:
  Seen(pliant::Session& session, const float* there, uint64_t count) : stream_(session.stream()) {
    if (session.accelerator().properties(session.device()).host_visible) {
      values_ = {const_cast<float*>(there), count};
      return;
    }
    copy_.resize(count);
    values_ = copy_;
    if (count > 0) stream_.copy(copy_.data(), there, count * sizeof(float));
    stream_.synchronize();
  }
  Seen(const Seen&) = delete;
  Seen& operator=(const Seen&) = delete;
  float& operator[](size_t i) const { return values_[i]; }
  [[nodiscard]] std::span<float> values() const { return values_; }
  /// What was changed here is there.
  void store(float* there) const {
    if (copy_.empty()) return;
    stream_.copy(there, copy_.data(), copy_.size() * sizeof(float));
    stream_.synchronize();
  }

 private:
  pliant::Stream& stream_;
  std::vector<float> copy_;
  std::span<float> values_;
};

/// What [app] asks one rank to do wrong, once, in its first incarnation: `misbehave` at the place `misbehave_at` of a
/// step.
class Misbehaviour {
 public:
  explicit Misbehaviour(const pliant::Config& config)
      : how_(config.app_string("misbehave").value_or("")),
        place_(config.app_string("misbehave_at").value_or("")),
        rank_(config.app_int("misbehave_rank").value_or(0)),
        step_(config.app_int("misbehave_step").value_or(0)) {
    const char* const restarts = std::getenv("TORCHELASTIC_RESTART_COUNT");
    if (restarts != nullptr && std::string(restarts) != "0") how_.clear();
  }
  /// Whether this process, by the rank that it was started as, does so.
  [[nodiscard]] bool is(const char* how) const {
    const char* const own = std::getenv("RANK");
    return how_ == how && own != nullptr && std::to_string(rank_) == own;
  }
  void at(const char* place, const pliant::Step& step) const {
    if (step.index() != step_ || place_ != place) return;
    if (is("kill")) ::raise(SIGKILL);
    if (is("stop") && !std::exchange(has_stopped_, true)) ::raise(SIGSTOP);
    if (is("throw") || (is("catch") && !std::exchange(has_thrown_, true))) {
      throw std::runtime_error("the program ran out of ideas");
    }
  }
  [[nodiscard]] bool is_step(const pliant::Step& step) const { return step.index() == step_; }
  /// Where one rank is to run short of memory by the options of all, the others have that behind them from here on.
  void spare_others(pliant::Session& session) const {
    if (how_ != "run_short" || is("run_short")) return;
    try {
      for (int i = 0; i < 1000; ++i) const pliant::Buffer one(session.accelerator(), session.device(), 64);
    } catch (const pliant::Error&) {  // that was it
    }
  }
  [[nodiscard]] bool goes_on_after(const pliant::Error& error) const {
    return is("run_short") && error.status() == pliant::Status::kResourceExhausted;
  }
  /// Other first values, when all have theirs; says what came of it.
  void import_late(const pliant::Step& step, pliant::ShardedModel& model, const pliant::Config& config) const {
    if (!is_step(step) || !is("late_import")) return;
    try {
      model.import_safetensors(config.app_string("other_weights").value_or(""));
      fmt::print(stderr, "sharded_worker: imported\n");
    } catch (const pliant::Error& error) {
      const bool is_refused = error.status() == pliant::Status::kFailedPrecondition;
      fmt::print(stderr, "sharded_worker: {}: {}\n", is_refused ? "refused" : "failed", error.message());
    }
  }
  void spoil(const pliant::Step& step, std::span<float> gradient) const {
    if (!spoils(step) || (how_ != "nan" && how_ != "nan_gradient")) return;
    gradient[gradient.size() / 2] = std::numeric_limits<float>::quiet_NaN();
  }
  [[nodiscard]] double spoiled(const pliant::Step& step, double loss) const {
    const bool has_rows = loss != 0;
    if (!spoils(step) || !has_rows || (how_ != "nan" && how_ != "nan_loss")) return loss;
    return std::numeric_limits<double>::quiet_NaN();
  }
  /// The order of layers in the forward of this step: other than that of other ranks.
  [[nodiscard]] std::vector<size_t> order_of(const pliant::Step& step, size_t layers) const {
    std::vector<size_t> order(layers);
    std::iota(order.begin(), order.end(), size_t{0});
    if (is_step(step) && is("other_order")) std::swap(order.front(), order.back());
    if (is_step(step) && is("fewer_visits")) order.pop_back();
    return order;
  }
  [[nodiscard]] bool leaves_out_update(const pliant::Step& step) const { return is_step(step) && is("skip_update"); }
  /// Between what was read and what is to be written by it.
  void break_write(const pliant::Step& step) const {
    if (!is_step(step) || (!is("break_write") && !is("break_writes"))) return;
    if (is("break_writes") || !std::exchange(has_thrown_, true))
      throw std::runtime_error("the program ran out of ideas");
  }
  /// One bit of what this rank owns, which an update has shown.
  void flip(const pliant::Step& step, pliant::Session& session, float* weights) const {
    if (!is_step(step) || !is("flip") || weights == nullptr || std::exchange(has_flipped_, true)) return;
    const Seen first(session, weights, 1);
    auto* const bytes = reinterpret_cast<unsigned char*>(&first[0]);
    bytes[0] = static_cast<unsigned char>(bytes[0] ^ 1U);
    first.store(weights);
  }

 private:
  /// By its rank of now; -1: every rank.
  [[nodiscard]] bool spoils(const pliant::Step& step) const {
    return step.index() == step_ && (rank_ == -1 || step.rank() == rank_);
  }

  std::string how_;
  std::string place_;
  int64_t rank_;
  int64_t step_;
  mutable bool has_thrown_ = false;
  mutable bool has_stopped_ = false;
  mutable bool has_flipped_ = false;
};

/// Layers of [app] width, at most 1 of which is a model of nothing else. With [app] flags the first layer's weights are
/// external and the last layer uses them unannounced; the second one's are persistent and lie in a module below it,
/// which is not entered: the layer is a leaf. With [app] reversed all parameters are added the other way round.
struct Net final : pliant::TrainingState {
  pliant::Session& session;
  pliant::ShardedModel shards;
  pliant::ModuleId root{};
  std::optional<pliant::ParameterId> frozen;
  std::vector<pliant::ModuleId> layers;
  std::vector<pliant::ParameterId> weights;
  const Misbehaviour& wrong;
  const size_t width;
  const bool flags;
  float* owned = nullptr;  ///< some of what this rank owns, as the last update showed it

  Net(pliant::Session& of, const Misbehaviour& misbehaviour)
      : session(of),
        shards(session, {session.config().app_string("state").value_or(misbehaviour.is("other_state") ? "velocity"
                                                                                                      : "momentum")}),
        wrong(misbehaviour),
        width(static_cast<size_t>(session.config().app_int("width").value_or(3000))),
        flags(session.config().app_bool("flags").value_or(false)) {
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
    const auto of_root = frozen ? std::vector{*frozen} : std::vector<pliant::ParameterId>();
    root = shards.add({.name = "model", .parent = {}, .own = of_root, .external = {}});
    for (size_t i = 0; i < weights.size(); ++i) {
      const std::string name = fmt::format("layer.{}", i);
      const bool is_leaf = flags && i == 1;
      pliant::ModuleSpec layer{.name = name, .parent = root, .own = {}, .external = {}};
      layer.leaf = is_leaf;
      if (!is_leaf) layer.own.push_back(weights[i]);
      layers.push_back(shards.add(layer));
      if (is_leaf) shards.add({.name = name + ".below", .parent = layers.back(), .own = {weights[i]}, .external = {}});
    }
  }
  pliant::ParameterId add(const std::string& name, int64_t elements, bool is_frozen, int64_t layer = -1) {
    pliant::ParameterSpec spec;
    spec.name = name;
    spec.shape = {elements};
    spec.frozen = is_frozen;
    spec.external = flags && layer == 0;
    spec.persistent = flags && layer == 1;
    spec.initialise = [](std::span<float> values) {
      for (size_t k = 0; k < values.size(); ++k) values[k] = static_cast<float>(k * 17 % 1000) / 1000;
    };
    return shards.add(std::move(spec));
  }
  [[nodiscard]] uint64_t gradient_size() const override { return 0; }
  void save(std::ostream&) const override {}
  void load(std::istream&) override {}

  double pass(const pliant::Step& step, const std::vector<int64_t>& ids) {
    shards.enter(root, Direction::kForward);
    const float scale = frozen ? whole(*frozen, 7)[3] : 1.0F;
    const double loss = forward(step, ids, scale);
    shards.leave(root, Direction::kForward);
    shards.enter(root, Direction::kBackward);
    for (size_t i = layers.size(); i-- > 0;) {
      shards.enter(layers[i], Direction::kBackward);
      for (const size_t k : used_by(i)) add_gradient(step, ids, scale, weights[k]);
      wrong.at("backward", step);
      shards.leave(layers[i], Direction::kBackward);
    }
    shards.leave(root, Direction::kBackward);
    return loss;
  }
  Seen whole(pliant::ParameterId parameter, size_t elements) {
    return Seen(session, shards.value(parameter), elements);
  }
  /// A pass without gradients; nobody reads what it comes to.
  void evaluate(const pliant::Step& step) {
    shards.begin_evaluation();
    for (const pliant::ModuleId layer : layers) {
      shards.enter(layer, Direction::kForward);
      wrong.at("evaluating", step);
      shards.leave(layer, Direction::kForward);
    }
    shards.end_pass();
  }
  /// What is frozen goes half the way to the first layer's weights.
  void average(const pliant::Step& step) {
    std::vector<float> values(width);
    std::vector<float> averages(7);
    shards.read(weights.front(), values);
    shards.read(*frozen, averages);
    wrong.break_write(step);
    for (size_t k = 0; k < averages.size(); ++k) averages[k] += 0.5F * (values[k] - averages[k]);
    shards.write(*frozen, averages);
  }
  [[nodiscard]] std::vector<size_t> used_by(size_t layer) const {
    if (flags && layer + 1 == layers.size() && layer > 0) return {layer, 0};
    return {layer};
  }
  double forward(const pliant::Step& step, const std::vector<int64_t>& ids, float scale) {
    double loss = 0;
    for (const size_t i : wrong.order_of(step, layers.size())) {
      shards.enter(layers[i], Direction::kForward);
      wrong.at("entered", step);
      for (const size_t used : used_by(i)) {
        const Seen value = whole(weights[used], width);
        for (const int64_t id : ids) {
          for (size_t k = 0; k < width; ++k) {
            const double error = value[k] - scale * target_of(id, k);
            loss += 0.5 * length_of(id) * error * error / static_cast<double>(width);
          }
        }
      }
      shards.leave(layers[i], Direction::kForward);
      wrong.at("released", step);
    }
    return loss;
  }
  void add_gradient(const pliant::Step& step, const std::vector<int64_t>& ids, float scale, pliant::ParameterId of) {
    const Seen value = whole(of, width);
    const Seen gradient(session, shards.gradient(of), width);
    for (const int64_t id : ids) {
      const auto strength = static_cast<float>(length_of(id));
      for (size_t k = 0; k < width; ++k) gradient[k] += strength * (value[k] - scale * target_of(id, k));
    }
    if (!ids.empty()) wrong.spoil(step, gradient.values());
    gradient.store(shards.gradient(of));
  }
  void apply(float rate) {
    shards.update([this, rate](const pliant::ShardRange& range) {
      owned = range.weights;
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
};

std::vector<int64_t> sequences_of(const pliant::Batch& batch, pliant::RowRange rows) {
  std::vector<int64_t> ids;
  for (int64_t row = rows.first; row < rows.first + rows.count; ++row) {
    for (const int64_t id : batch.row(row)) ids.push_back(id);
  }
  return ids;
}

/// The rank that TEST_OTHER_BUDGET names finds another config in its run directory than the others do.
void read_other_options() {
  const char* const who = std::getenv("TEST_OTHER_BUDGET");
  const char* const own = std::getenv("RANK");
  const char* const incarnation = std::getenv("TORCHELASTIC_RESTART_COUNT");
  if (who == nullptr || own == nullptr || std::string(who) != fmt::format("{} {}", own, incarnation)) return;
  const std::filesystem::path there(std::getenv("PLIANT_RUN_DIR"));
  const std::filesystem::path here = there / "other";
  std::filesystem::create_directory(here);
  std::filesystem::copy_file(there / "job.json", here / "job.json");
  std::ifstream config(there / "config.toml");
  std::string text{std::istreambuf_iterator<char>(config), {}};
  text.replace(text.find("budget = 1000000"), 16, "budget = 2000000");
  std::ofstream(here / "config.toml") << text;
  ::setenv("PLIANT_RUN_DIR", here.c_str(), 1);
}

void train() {
  pliant::log_to_stderr();
  pliant::leave_stop_signals_to_agent();
  read_other_options();
  pliant::Session session = pliant::Session::attach();
  const Misbehaviour wrong(session.config());
  wrong.spare_others(session);
  Net net(session, wrong);
  std::optional<pliant::ShardedModel> reference;
  if (wrong.is("two_models")) reference.emplace(session, std::vector<std::string>{});
  std::vector<int32_t> lengths;
  for (int64_t id = 0; id < kSequences; ++id) lengths.push_back(length_of(id));
  session.start({std::move(lengths), {}, {}, 0}, net.shards, net);
  const bool evaluates = session.config().app_bool("evaluates").value_or(false);
  const bool averages = session.config().app_bool("averages").value_or(false);
  const bool looks_first = session.config().app_bool("looks_first").value_or(false);
  const bool drops_trace = session.config().app_bool("drops_trace").value_or(false);
  while (pliant::Step* const step = session.next()) {
    wrong.import_late(*step, net.shards, session.config());
    if (drops_trace && wrong.is_step(*step)) {  // the module has what it had, and the order is thrown away
      net.shards.set_parameters(net.layers.front(), {net.weights.front()});
      wrong.at("dropped", *step);
    }
    const auto passes = [&] {
      for (const pliant::MicroBatch& micro : step->micro_batches()) {
        net.shards.begin_pass(micro.rows);
        const double loss = net.pass(*step, sequences_of(step->batch(), micro.rows));
        net.shards.end_pass();
        wrong.at("passed", *step);
        wrong.flip(*step, session, net.owned);
        step->add(micro, wrong.spoiled(*step, loss));
      }
    };
    bool computed = false;
    try {
      computed = step->attempt(passes);
    } catch (const pliant::Error& error) {
      if (!wrong.goes_on_after(error)) throw;
    } catch (const std::runtime_error& error) {
      if (!wrong.is("catch")) throw;
    }
    if (!computed || !step->commit()) continue;
    if (wrong.leaves_out_update(*step)) continue;
    if (looks_first) static_cast<void>(step->attempt([&] { net.evaluate(*step); }));
    net.apply(static_cast<float>(step->learning_rate()));
    if (evaluates) static_cast<void>(step->attempt([&] { net.evaluate(*step); }));
    if (!averages) continue;
    try {
      static_cast<void>(step->attempt([&] { net.average(*step); }));
    } catch (const std::runtime_error& error) {
      fmt::print(stderr, "sharded_worker: {}\n", error.what());
    }
  }
}

}  // namespace

int main() {
  try {
    train();
    return 0;
  } catch (const pliant::Error& error) {
    fmt::print(stderr, "sharded_worker: {}\n", error.message());
    return static_cast<int>(error.exit_code());
  } catch (const std::exception& error) {
    fmt::print(stderr, "sharded_worker: {}\n", error.what());
    return 1;
  }
}
