// Rows of variable_batch.jsonl of kind lr_trace: a base schedule under a scaling rule, through a config and its chain.
//
// Twice over: the whole chain with a schedule of ours against both recorded rates, and the rule alone, to the bit, over
// the recorded rate of the schedule.
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "parity/parity.hpp"
#include "pliant/error.hpp"
#include "pliant/learning_rate.hpp"

namespace pliant::parity {

namespace {

/// [lr] that stands for the base schedule of a row.
struct Base {
  double lr = 0;
  std::string schedule;  ///< elements of the list
  std::string tables;
  double tolerance = 0;  ///< relative; the reference multiplies its way from step to step where we take a power
};

std::string text(const Json& number) {
  return number.dump();
}

constexpr double kRounding = 1e-12;

std::optional<Base> base_of(const Json& row, double optimizer_lr) {
  const auto kind = row.at("base_kind").get<std::string>();
  const Json& p = row.at("base_params");
  if (kind == "constant") return Base{optimizer_lr, "", "", 0};
  if (kind == "StepLR") {
    return Base{
        optimizer_lr, "\"step\"",
        "[lr.step]\nby = \"steps\"\nevery = " + text(p.at("step_size")) + "\ngamma = " + text(p.at("gamma")) + "\n",
        kRounding};
  }
  if (kind == "ExponentialLR") {
    return Base{optimizer_lr, "\"exponential\"",
                "[lr.exponential]\nby = \"steps\"\ngamma = " + text(p.at("gamma")) + "\n", kRounding};
  }
  if (kind == "CosineAnnealingLR") {
    return Base{optimizer_lr, "\"cosine\"",
                "[lr.cosine]\nby = \"steps\"\nafter = \"rise\"\nend = " + text(p.at("T_max")) +
                    "\nlowest = " + text(p.at("eta_min")) + "\n",
                kRounding};
  }
  if (kind == "LambdaLR_inv") {
    return Base{optimizer_lr, "\"inverse\"", "[lr.inverse]\nby = \"steps\"\nexponent = 1\nover = 1\n", 0};
  }
  if (kind != "WarmupLR" && kind != "WarmupDecayLR") return std::nullopt;
  Base base{p.at("warmup_max_lr").get<double>(), "\"warmup\"",
            "[lr.warmup]\nby = \"steps\"\nsteps = " + text(p.at("warmup_num_steps")) +
                "\nfrom = " + text(p.at("warmup_min_lr")) + "\nshape = " + text(p.at("warmup_type")) + "\n",
            0};
  if (kind == "WarmupDecayLR") {
    base.schedule += ", \"linear_decay\"";
    base.tables += "[lr.linear_decay]\nby = \"steps\"\nstart = " + text(p.at("warmup_num_steps")) +
                   "\nend = " + text(p.at("total_num_steps")) + "\nlowest = " + text(p.at("warmup_min_lr")) + "\n";
  }
  return base;
}

std::string rule_of(const Json& row) {
  const auto method = row.at("method").is_null() ? std::string("None") : row.at("method").get<std::string>();
  return method == "None" ? "none" : method;
}

bool near(double expected, double actual, double tolerance) {
  return expected == actual || std::abs(expected - actual) <= tolerance * std::abs(expected);
}

/// One parameter group.
class Group {
 public:
  Group(const Json& row, Base base, const Plugins& plugins) : row_(row), base_(std::move(base)), plugins_(plugins) {
    chain_ = make(true);
    alone_ = make(false);
  }

  void reload() {
    LearningRate fresh = make(true);
    fresh.load(chain_->save());
    chain_ = std::move(fresh);
  }

  /// The difference at `step`, or nothing.
  std::optional<std::string> compare(int64_t step, double unscaled, double scaled) const {
    const Json& sizes = row_.at("batch_sizes");
    BatchSize size;
    size.sequences = sizes.at(static_cast<size_t>(step) % sizes.size()).get<int64_t>();
    const Scaling all = chain_->scaling(step, size);
    const auto differs = [step](const char* what, double expected, double actual) {
      return std::string(what) + " at step " + std::to_string(step) + ": expected " + Json(expected).dump() +
             ", actual " + Json(actual).dump();
    };
    if (!near(unscaled, all.scheduled_learning_rate, base_.tolerance)) {
      return differs("the schedule", unscaled, all.scheduled_learning_rate);
    }
    if (!near(scaled, all.learning_rate, base_.tolerance)) return differs("the rate", scaled, all.learning_rate);
    const double rule = unscaled > 0 ? alone_->at(step, size, unscaled) : 0;
    if (rule != scaled) return differs("the rule", scaled, rule);
    return std::nullopt;
  }

 private:
  [[nodiscard]] LearningRate make(bool with_schedule) const {
    const std::string toml = "config_version = 1\n[lr]\nuse = \"" + rule_of(row_) +
                             "\"\nunit = \"sequences\"\nbase_lr = " + text(Json(base_.lr)) +
                             "\nbase_batch = " + text(row_.at("base_batch_size")) + "\n" +
                             (with_schedule ? "schedule = [" + base_.schedule + "]\n" + base_.tables : std::string());
    const ConfigNeeds needs{"lr"};
    return {or_throw(plugins_.open_config(toml, needs)), {}};
  }

  const Json& row_;
  Base base_;
  const Plugins& plugins_;
  std::optional<LearningRate> chain_;
  std::optional<LearningRate> alone_;
};

/// The step after `call`.
int64_t next_step(int64_t step, const Json& call) {
  if (call.is_null()) return step + 1;
  return call.is_number() ? call.get<int64_t>() : step;
}

/// The unscaled rate at entry `i`. DeepSpeed's warm-ups do not save theirs: right after a reload they report the one of
/// construction, while the optimizer goes on with the one of before.
double unscaled_rate(const Json& row, size_t i, size_t index) {
  const Json& trace = row.at("out").at("trace");
  const bool reloaded = i > 0 && row.at("calls")[i - 1] == "reload";
  const bool forgets = row.at("base_kind") == "WarmupLR" || row.at("base_kind") == "WarmupDecayLR";
  if (!reloaded || !forgets) return trace[i].at("last_lr").at(index).get<double>();
  if (trace[i].at("last_lr") != row.at("out").at("base_lrs")) {
    throw Error(Status::kInternal, "a reloaded warm-up reports neither");
  }
  return unscaled_rate(row, i - 1, index);
}

Outcome check_group(const Json& row, size_t index, Group& group) {
  const Json& trace = row.at("out").at("trace");
  const Json& calls = row.at("calls");
  if (trace.size() != calls.size() + 1) return Outcome::failed("the trace and the calls do not fit");
  int64_t step = 0;
  for (size_t i = 0; i < trace.size(); ++i) {
    if (i > 0) {
      if (calls[i - 1] == "reload") group.reload();
      step = next_step(step, calls[i - 1]);
    }
    const Json& entry = trace[i];
    if (entry.at("last_epoch") != step) return Outcome::failed(entry.dump(), "step " + std::to_string(step));
    const auto difference = group.compare(step, unscaled_rate(row, i, index), entry.at("lrs").at(index).get<double>());
    if (difference) return Outcome::failed(*difference);
  }
  return Outcome::passed();
}

Outcome check_trace(const Json& row, Plugins& plugins, const Options&) {
  const Json& rates = row.at("optimizer_lrs");
  try {
    for (size_t index = 0; index < rates.size(); ++index) {
      const std::optional<Base> base = base_of(row, rates[index].get<double>());
      if (!base) return Outcome::failed("no schedule stands for " + row.at("base_kind").dump());
      Group group(row, *base, plugins);
      Outcome outcome = check_group(row, index, group);
      if (outcome.verdict != Outcome::Verdict::kPassed) return outcome;
    }
  } catch (const Error& error) {
    return Outcome::failed(row.at("out").dump(), error.message());
  }
  return Outcome::passed();
}

}  // namespace

std::vector<RowKind> lr_trace_rows() {
  return {{"lr_trace",
           [](const Json& row) { return row.contains("kind") && row.at("kind") == "lr_trace"; },
           {},
           check_trace}};
}

}  // namespace pliant::parity
