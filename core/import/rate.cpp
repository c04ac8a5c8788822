// The optimizer and the scheduler: rate, family and hyperparameters in [lr], and the schedules that our rules can be.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "import/draft.hpp"
#include "import/python.hpp"

namespace pliant::config::deepspeed {

namespace {

using Type = Json::Type;

constexpr double kHighestBaseRate = 1e6;  // of [lr] base_lr
constexpr double kMostSteps = 1e12;       // of a schedule
constexpr const char* kFilledIn = "\"auto\" is filled in by transformers when training starts";

bool says_auto(const Json& value) {
  return value.is(Type::kString) && value.text == "auto";
}

std::string named(const Source& type) {
  return type && type.value->is(Type::kString) ? lower(type.value->text) : std::string();
}

/// One line of a table of the TOML.
struct RateLine {
  std::string key;
  Value value;
  Source from;  ///< absent: no key of the source gave it
  std::string note;
};

struct Schedule {
  std::string rule;
  std::vector<RateLine> lines;
};

/// A number of the source from `low` to `high`; nullopt for anything else, booleans included.
std::optional<double> number_in(const Source& from, double low, double high) {
  if (!from || !(from.value->is(Type::kInt) || from.value->is(Type::kFloat))) return std::nullopt;
  const std::optional<double> number = as_float(*from.value);
  return number && *number >= low && *number <= high ? number : std::nullopt;
}

class Rate {
 public:
  Rate(Draft& draft, const ScalingRule* scaling) : draft_(draft), scaling_(scaling) {}

  /// True when it wrote [lr].
  bool import() {
    read_optimizer();
    read_scheduler();
    const bool has_rate = number_in(rate_, 0, kHighestBaseRate).has_value();
    if (scaling_ == nullptr && lines_.empty() && schedules_.empty() && !has_rate) return false;
    write();
    return true;
  }

 private:
  // The optimizer.

  void read_optimizer() {
    const Source block = draft_.root().at("optimizer");
    if (!block || !block.value->is(Type::kObject)) return;
    params_ = block.at("params");
    rate_ = params_.at("lr");
    family_ = family_of(block.at("type"));
    if (family_.empty()) return;
    const bool normalises = family_ == "adam" || family_ == "adamw" || family_ == "lamb" || family_ == "sign";
    if (scaling_ != nullptr && scaling_->rule == "linear" && normalises) {
      draft_.leave(block.at("type").path,
                   fmt::format("the rule \"linear\" refuses \"{0}\", for it is right for SGD; with use = \"sqrt\" set "
                               "lr.optimizer = \"{0}\"",
                               family_));
      family_.clear();
      return;
    }
    const std::string given = block.at("type").value->text;
    lines_.push_back({"optimizer", Value::of(family_), block.at("type"),
                      lower(given) == family_ ? "" : "DeepSpeed's " + toml_quoted(given)});
    add_hyperparameters();
  }

  /// The family of [lr] optimizer; "" where the source names none.
  [[nodiscard]] std::string family_of(const Source& type) const {
    const std::string name = named(type);
    if (name.empty()) return {};
    const Source plain = params_.at("adam_w_mode");
    if (name == "adamw") return "adamw";
    if (name == "adam") return plain && !is_true(*plain.value) ? "adam" : "adamw";  // DeepSpeed's own default
    if (name == "lamb" || name == "onebitlamb") return "lamb";
    if (name == "onebitadam" || name == "zerooneadam") return "adam";
    if (name == "lion") return "sign";
    if (name != "sgd") return "other";
    const Source nesterov = params_.at("nesterov");
    if (nesterov && is_true(*nesterov.value)) return "nesterov";
    return number_in(params_.at("momentum"), 1e-300, 1) ? "sgd_momentum" : "sgd";
  }

  void add_hyperparameters() {
    const Source betas = params_.at("betas");
    if (betas && betas.value->is(Type::kArray) && betas.value->items.size() == 2) {
      const Source first{&betas.value->items[0], betas.path + "[0]"};
      const Source second{&betas.value->items[1], betas.path + "[1]"};
      const auto one = number_in(first, 0, 1);
      const auto two = number_in(second, 0, 1);
      if (one && two) {
        lines_.push_back({"beta1", Value::of(*one), betas, ""});
        lines_.push_back({"beta2", Value::of(*two), betas, ""});
      } else {
        draft_.leave(betas.path, "not two numbers from 0 to 1");
      }
    } else if (betas) {
      draft_.leave(betas.path, says_auto(*betas.value) ? kFilledIn : "not two numbers from 0 to 1");
    }
    if (!betas) add_number("beta1", params_.at("momentum"), 1);
    add_number("epsilon", params_.at("eps"), kHighestBaseRate);
    add_number("weight_decay", params_.at("weight_decay"), kHighestBaseRate);
  }

  void add_number(const char* key, const Source& from, double high) {
    if (!from) return;
    if (const auto number = number_in(from, 0, high)) {
      lines_.push_back({key, Value::of(*number), from, ""});
    } else {
      draft_.leave(from.path, says_auto(*from.value) ? kFilledIn : fmt::format("not a number from 0 to {}", high));
    }
  }

  // The scheduler.

  void read_scheduler() {
    const Source block = draft_.root().at("scheduler");
    if (!block || !block.value->is(Type::kObject)) return;
    scheduler_ = block.at("params");
    const std::string name = named(block.at("type"));
    const bool is_warmup = name == "warmuplr" || name == "warmupdecaylr";
    if (is_warmup) {
      read_warmup(name == "warmupdecaylr");
    } else if (name == "warmupcosinelr") {
      read_cosine();
    } else if (name == "onecycle" || name == "lrrangetest") {
      give_up(
          "no rule goes up and down as it does; lr.schedule has warmup, linear_decay, cosine, step, exponential and "
          "inverse");
    } else if (!name.empty()) {
      give_up(
          "a schedule of torch's is the training program's; lr.schedule has warmup, linear_decay, cosine, step, "
          "exponential and inverse");
    }
    if (schedules_.empty()) return;
    draft_.carried(block.at("type"), "lr.schedule");
    if (const Source last = scheduler_.at("last_batch_iteration")) {
      draft_.leave(last.path, "a job that is resumed goes on where its snapshot stands");
    }
  }

  /// WarmupLR and WarmupDecayLR: they set the rate, whatever the optimizer was given.
  void read_warmup(bool decays) {
    const Source highest = scheduler_.at("warmup_max_lr");
    const bool as_optimizer = highest && says_auto(*highest.value);
    const std::optional<double> top = highest ? number_in(highest, 0, kHighestBaseRate) : std::optional(0.001);
    if (!top && !as_optimizer) return give_up("warmup_max_lr is not one number; set lr.base_lr");
    const std::optional<double> bottom = number_or("warmup_min_lr", 0);
    const std::optional<double> steps = steps_of_warmup();
    const std::optional<double> total = decays ? total_steps() : std::optional(0.0);
    if (!bottom || !steps || !total || !read_shape()) return;
    if (!as_optimizer) {
      if (rate_) draft_.leave(rate_.path, "the scheduler sets the rate: warmup_max_lr");
      base_ =
          RateLine{"base_lr", Value::of(*top), highest, highest ? "" : "DeepSpeed's warmup_max_lr where none is given"};
    }
    schedules_.push_back(warmup(*steps, {"from", Value::of(*bottom), scheduler_.at("warmup_min_lr"), ""}));
    if (!decays) return;
    schedules_.push_back({"linear_decay",
                          {{"start", Value::of(*steps), {}, ""},
                           {"end", Value::of(*total), scheduler_.at("total_num_steps"), ""},
                           {"lowest", Value::of(*bottom), {}, ""},
                           {"by", Value::of(std::string("steps")), {}, ""}}});
  }

  /// WarmupCosineLR: ratios of the optimizer's rate.
  void read_cosine() {
    const std::optional<double> rate = number_in(rate_, 0, kHighestBaseRate);
    if (!rate) return give_up("its ratios are of optimizer.params.lr, which is no number here");
    const std::optional<double> from = number_or("warmup_min_ratio", 0);
    const std::optional<double> lowest = number_or("cos_min_ratio", 0.0001);
    const std::optional<double> steps = steps_of_warmup();
    const std::optional<double> total = total_steps();
    if (!from || !lowest || !steps || !total || !read_shape()) return;
    if (*total <= *steps) return give_up("total_num_steps leaves no step behind the warm-up");
    schedules_.push_back(
        warmup(*steps, {"from", Value::of(*from * *rate), scheduler_.at("warmup_min_ratio"), "times the rate"}));
    schedules_.push_back({"cosine",
                          {{"start", Value::of(*steps - 1), {}, "the first step behind the warm-up is one down"},
                           {"end", Value::of(*total - 1), scheduler_.at("total_num_steps"), ""},
                           {"lowest", Value::of(*lowest * *rate), scheduler_.at("cos_min_ratio"), "times the rate"},
                           {"after", Value::of(std::string("rise")), {}, "as DeepSpeed"},
                           {"by", Value::of(std::string("steps")), {}, ""}}});
  }

  [[nodiscard]] Schedule warmup(double steps, RateLine from) const {
    return {
        "warmup",
        {{"steps", Value::of(steps), scheduler_.at("warmup_num_steps"), steps == 2 ? "at least 2, as DeepSpeed" : ""},
         std::move(from),
         {"shape", Value::of(shape_), scheduler_.at("warmup_type"), ""},
         {"by", Value::of(std::string("steps")), {}, "optimizer updates, as DeepSpeed counts"}}};
  }

  std::optional<double> number_or(const char* key, double fallback) {
    const Source from = scheduler_.at(key);
    if (!from) return fallback;
    const std::optional<double> number = number_in(from, 0, kHighestBaseRate);
    if (!number) give_up(fmt::format("{} is {}, not a number of at least 0", key, describe(*from.value)));
    return number;
  }

  std::optional<double> steps_in(const char* key, std::optional<double> fallback) {
    const Source from = scheduler_.at(key);
    if (!from && fallback) return fallback;
    const std::optional<double> steps = number_in(from, 0, kMostSteps);
    if (steps && *steps == std::floor(*steps)) return steps;
    give_up(!from ? fmt::format("{} is missing", key)
            : says_auto(*from.value)
                ? fmt::format("{} is \"auto\", which transformers fills in when training starts; write "
                              "lr.schedule once you know it",
                              key)
                : fmt::format("{} is {}, not a number of steps", key, describe(*from.value)));
    return std::nullopt;
  }

  std::optional<double> steps_of_warmup() {
    const std::optional<double> steps = steps_in("warmup_num_steps", 1000);
    return steps ? std::optional(std::max(2.0, *steps)) : steps;
  }

  std::optional<double> total_steps() {
    const std::optional<double> steps = steps_in("total_num_steps", std::nullopt);
    if (steps && *steps < 1) give_up("total_num_steps is below 1");
    return steps && *steps >= 1 ? steps : std::nullopt;
  }

  bool read_shape() {
    const Source from = scheduler_.at("warmup_type");
    const std::string shape = from ? named(from) : "log";
    if (shape == "log" || shape == "linear") {
      shape_ = shape;
      return true;
    }
    give_up(fmt::format("warmup_type is {}; lr.warmup.shape is \"log\" or \"linear\"", describe(*from.value)));
    return false;
  }

  void give_up(std::string reason) {
    draft_.leave("scheduler", std::move(reason));
    schedules_.clear();
  }

  // What it comes to.

  void write() {
    draft_.comment("");
    draft_.comment(
        "The rate that a program of the embedding API takes from its step, Step::learning_rate(). A program that "
        "Pliant "
        "only starts keeps its own optimizer and scheduler.");
    draft_.table({"lr"});
    if (scaling_ == nullptr) {
      draft_.add("use", Value::of(std::string("none")), "without dynamic batching DeepSpeed does not scale the rate");
    } else if (scaling_->from) {
      draft_.carry(scaling_->from, "use", Value::of(scaling_->rule), scaling_->note);
    } else {
      draft_.add("use", Value::of(scaling_->rule), scaling_->note);
    }
    write_base_rate();
    if (scaling_ != nullptr && scaling_->rule != "none") {
      scaling_->write_base_batch();
      draft_.add("unit", Value::of(std::string("sequences")), "DeepSpeed counts sequences here");
    }
    if (!schedules_.empty()) {
      std::vector<std::string> names;
      for (const Schedule& schedule : schedules_) names.push_back(schedule.rule);
      draft_.add("schedule", Value::of(names), "from scheduler.type");
    }
    for (const RateLine& line : lines_) put(line);
    for (const Schedule& schedule : schedules_) {
      draft_.table({"lr", schedule.rule});
      for (const RateLine& line : schedule.lines) put(line);
    }
  }

  void write_base_rate() {
    if (base_) return put(*base_);
    if (!rate_) return;
    if (const auto rate = number_in(rate_, 0, kHighestBaseRate))
      return draft_.carry(rate_, "base_lr", Value::of(*rate));
    draft_.leave(rate_.path, says_auto(*rate_.value) ? "\"auto\" is not a rate; set lr.base_lr"
                                                     : "not a number from 0 to 1000000; set lr.base_lr");
  }

  void put(const RateLine& line) {
    if (line.from) {
      draft_.carry(line.from, line.key, line.value, line.note);
    } else {
      draft_.add(line.key, line.value, line.note);
    }
  }

  Draft& draft_;
  const ScalingRule* scaling_;
  Source params_;
  Source rate_;
  Source scheduler_;
  std::string family_;
  std::string shape_ = "log";
  std::optional<RateLine> base_;
  std::vector<RateLine> lines_;
  std::vector<Schedule> schedules_;
};

}  // namespace

bool import_rate(Draft& draft, const ScalingRule* scaling) {
  return Rate(draft, scaling).import();
}

}  // namespace pliant::config::deepspeed
