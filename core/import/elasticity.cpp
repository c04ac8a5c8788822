// The elasticity block: the checks and defaults of DeepSpeed, and numbers as its solver sees them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "import/draft.hpp"
#include "import/python.hpp"

namespace pliant::config::deepspeed {

namespace {

using Fit = Number::Fit;
using Type = Json::Type;

constexpr const char* kTooLarge = "it must be at most 9223372036854775807";

enum class Rounding { kDown, kUp };

/// An integer option of the block, after its check.
struct Whole {
  Source from;
  int64_t value = 0;
  std::string note;  ///< what the source said, where it said it otherwise
};

class Block {
 public:
  Block(Draft& draft, Source block) : draft_(draft), block_(std::move(block)) {}

  void import() {
    read_version();
    read_sizes();
    read_limits();
    if (draft_.diagnostics().failed()) return;
    check_together();
    if (!draft_.diagnostics().failed()) write();
  }

 private:
  [[nodiscard]] bool v01() const { return rule_ == "v0.1"; }

  void read_version() {
    const Source version = block_.at("version");
    if (!version) return;
    const std::optional<double> real = as_float(*version.value);
    if (real && *real == 0.1) {
      rule_ = "v0.1";
    } else if (!real || *real != 0.2) {
      const bool lower = real && *real <= 0.2;  // DeepSpeed accepts these and then has no solver for them
      draft_.error(version, fmt::format("{} is {}; allowed: 0.1 and 0.2", version.path, describe(*version.value)), {},
                   lower || (real && std::isnan(*real)) ? Status::kNotFound : Status::kInvalidArgument);
    }
  }

  /// The value of `key`; `fallback` when it is absent.
  Whole whole(std::string_view key, int64_t least, int64_t fallback, Rounding rounding) {
    Whole made{block_.at(key), fallback, {}};
    if (!made.from) return made;
    const Json& value = *made.from.value;
    const std::optional<Number> number = as_number(value);
    const auto refuse = [&](const std::string& wanted) {
      std::vector<std::string> notes;
      if (value.is(Type::kString) && value.text == "auto") {
        notes.emplace_back("\"auto\" is filled in by transformers when training starts; write the number here");
      }
      if (value.is(Type::kNull)) notes.emplace_back("remove the key to use its default");
      draft_.error(made.from, fmt::format("{} is {}; {}", made.from.path, describe(value), wanted), std::move(notes));
      return made;
    };
    const std::string wanted = fmt::format("it must be a whole number of at least {}", least);
    if (!number || number->fit == Fit::kNotFinite) return refuse(wanted);
    if (number->fit == Fit::kTooLarge) {
      if (number->negative) return refuse(wanted);
      return refuse(value.is(Type::kFloat)
                        ? "a float this large is inexact; write it without exponent and decimal point"
                        : kTooLarge);
    }
    if (number->floor < least) return refuse(wanted);
    made.value = number->floor + (number->fit == Fit::kFraction && rounding == Rounding::kUp ? 1 : 0);
    if (!value.is(Type::kInt)) made.note = "given as " + describe(value);
    if (number->fit == Fit::kFraction) fractions_.push_back(std::string(key));
    return made;
  }

  void read_sizes() {
    if (!block_.at("max_train_batch_size")) {
      draft_.error(block_,
                   fmt::format("{} is missing; it must be a whole number of at least 1, the largest global batch",
                               block_.at("max_train_batch_size").path));
    }
    max_train_batch_size_ = whole("max_train_batch_size", 1, 0, Rounding::kDown);
    micro_ = block_.at("micro_batch_sizes");
    if (!micro_) {
      draft_.error(block_, fmt::format("{} is missing; it must be a list such as [2, 4, 6]", micro_.path));
    } else if (!micro_.value->is(Type::kArray) || micro_.value->items.empty()) {
      draft_.error(micro_,
                   fmt::format("{} is {}; it must be a list such as [2, 4, 6]", micro_.path, describe(*micro_.value)));
    } else {
      read_micro_batches();
    }
  }

  void read_micro_batches() {
    bool any_integer = false;
    for (size_t i = 0; i < micro_.value->items.size(); ++i) {
      const Json& item = micro_.value->items[i];
      const Source from{&item, fmt::format("{}[{}]", micro_.path, i)};
      const bool whole = item.is(Type::kInt) || item.is(Type::kBool);
      const Number number = whole ? as_number(item).value_or(Number{}) : Number{};
      any_integer = any_integer || item.is(Type::kInt);
      if (number.fit == Fit::kTooLarge && !number.negative) {
        draft_.error(from, fmt::format("{} is {}; {}", from.path, describe(item), kTooLarge));
      } else if (number.floor < 1) {
        draft_.error(from, fmt::format("{} is {}; it must be a whole number of at least 1{}", from.path, describe(item),
                                       item.is(Type::kFloat) ? ", written without a decimal point" : ""));
        continue;
      }
      if (item.is(Type::kBool)) micro_note_ = "true counts as 1";
      micro_batches_.push_back(number.floor);
    }
    if (!any_integer && !micro_batches_.empty()) {
      draft_.error(micro_, fmt::format("{} has true but no number; it must be a list such as [2, 4, 6]", micro_.path));
    }
  }

  void read_limits() {
    // The solver of 0.1 compares counts with the limits; that of 0.2 divides by the devices of a node and rounds down.
    min_gpus_ = whole("min_gpus", 1, 1, v01() ? Rounding::kUp : Rounding::kDown);
    max_gpus_ = whole("max_gpus", 1, 10000, Rounding::kDown);
    model_parallel_size_ = whole("model_parallel_size", 1, 1, Rounding::kDown);
    num_gpus_per_node_ = whole("num_gpus_per_node", 1, 1, Rounding::kDown);
    min_time_ = whole("min_time", 0, 0, Rounding::kDown);
  }

  [[nodiscard]] bool fractional(std::string_view key) const {
    return std::find(fractions_.begin(), fractions_.end(), key) != fractions_.end();
  }

  /// What only shows when one value is held against another.
  void check_together() {
    const Whole& cap = max_train_batch_size_;
    if (max_gpus_.value < min_gpus_.value) {
      const Whole& given = max_gpus_.from ? max_gpus_ : min_gpus_;
      draft_.error(given.from, fmt::format("{} is {}, but must be at least {}, which is {}", max_gpus_.from.path,
                                           max_gpus_.value, min_gpus_.from.path, min_gpus_.value));
    }
    check_parallel();
    if (draft_.diagnostics().failed()) return;
    const int64_t ranks_per_node = v01() ? 1 : num_gpus_per_node_.value / model_parallel_size_.value;
    // Beyond doubles the division rounds in a way that only the policy knows.
    const bool exact = cap.value <= (int64_t{1} << 53);
    for (size_t i = 0; i < micro_batches_.size(); ++i) {
      if (!exact || micro_batches_[i] <= cap.value / ranks_per_node) continue;
      const std::string share =
          ranks_per_node == 1 ? std::string{} : fmt::format(" for each of the {} ranks of a node", ranks_per_node);
      draft_.error({&micro_.value->items[i], ""},
                   fmt::format("{}[{}] is {}, but must be at most {}{}: {} is {}", micro_.path, i, micro_batches_[i],
                               cap.value / ranks_per_node, share, cap.from.path, cap.value));
    }
    const int64_t node = num_gpus_per_node_.value;
    const bool whole_shares = model_parallel_size_.value == 1 && (node & (node - 1)) == 0;
    if (!v01() && fractional("max_train_batch_size") && !whole_shares) {
      draft_.error(cap.from,
                   fmt::format("{} is {}; it must be a whole number: with these nodes the fraction changes the "
                               "plan of rule 0.2",
                               cap.from.path, describe(*cap.from.value)));
    }
  }

  void check_parallel() {
    const Whole& parallel = model_parallel_size_;
    const Whole& node = num_gpus_per_node_;
    if (v01() && (parallel.value > 1 || fractional("model_parallel_size"))) {
      draft_.error(parallel.from, fmt::format("{} is {}, but must be 1 with version 0.1; version 0.2 supports more",
                                              parallel.from.path, describe(*parallel.from.value)));
    }
    if (v01()) return;
    const bool fraction = fractional("model_parallel_size") || fractional("num_gpus_per_node");
    if (!fraction && node.value % parallel.value == 0) return;
    draft_.error(
        parallel.from ? parallel.from : node.from,
        fmt::format("{} must divide {}; they are {} and {}", parallel.from.path, node.from.path,
                    parallel.from ? describe(*parallel.from.value) : "1", node.from ? describe(*node.from.value) : "1"),
        {}, Status::kOutOfRange);
  }

  void write() {
    const Source version = block_.at("version");
    draft_.comment("");
    draft_.comment(fmt::format(
        "DeepSpeed's elasticity rule {}, with the same plans.{}", v01() ? "0.1" : "0.2",
        v01() ? "" : fmt::format(" It plans for existing devices: `pliant plan {} --world-size N`.", draft_.target())));
    draft_.comment(fmt::format(
        "strict = true, added to the options below, fixes the faults of the rule: `pliant plugin info elasticity/{}`.",
        rule_));
    draft_.comment(fmt::format(
        "use = \"exact\" makes every world size valid: call the table of options [elasticity.exact]{}. `pliant "
        "plan {} --compare {},exact` shows the difference.",
        block_.at("prefer_larger_batch") ? ", and take prefer_larger_batch out of it" : "", draft_.target(), rule_));
    draft_.table({"elasticity"});
    draft_.carried(block_.at("enabled"), "elasticity");
    if (version) {
      draft_.carry(version, "use", Value::of(rule_),
                   version.value->is(Type::kString) ? "given as " + describe(*version.value) : "");
    } else {
      draft_.add("use", Value::of(rule_), "DeepSpeed's rule if elasticity.version is missing");
    }
    draft_.table({"elasticity", rule_});
    put(max_train_batch_size_);
    Value sizes;
    sizes.type = Value::Type::kArray;
    for (const int64_t micro : micro_batches_) sizes.items.push_back(Value::of(micro));
    draft_.carry(micro_, "micro_batch_sizes", sizes, micro_note_);
    put(min_gpus_);
    put(max_gpus_);
    if (const Source prefer = block_.at("prefer_larger_batch")) {
      draft_.carry(prefer, "prefer_larger_batch", Value::of(is_true(*prefer.value)),
                   prefer.value->is(Type::kBool) ? "" : "given as " + describe(*prefer.value));
    }
    put(model_parallel_size_);
    put(num_gpus_per_node_);
    put(min_time_);
  }

  void put(const Whole& option) {
    if (!option.from) return;
    const std::string key = option.from.path.substr(option.from.path.rfind('.') + 1);
    const bool ignored = key == "min_time" || (v01() && key == "num_gpus_per_node");
    if (ignored && fractional(key)) {
      return draft_.leave(option.from.path, "not a whole number, and the plan does not depend on it");
    }
    draft_.carry(option.from, key, Value::of(option.value), option.note);
  }

  Draft& draft_;
  Source block_;
  std::string rule_ = "v0.2";
  Source micro_;
  std::vector<int64_t> micro_batches_;
  std::string micro_note_;
  std::vector<std::string> fractions_;  ///< keys whose value was no whole number
  Whole max_train_batch_size_, min_gpus_, max_gpus_, model_parallel_size_, num_gpus_per_node_, min_time_;
};

}  // namespace

bool is_elastic(const Source& root) {
  const Source block = root.at("elasticity");
  const Source enabled = block && block.value->is(Type::kObject) ? block.at("enabled") : Source{};
  return enabled && is_true(*enabled.value);
}

bool import_elasticity(Draft& draft) {
  const Source block = draft.root().at("elasticity");
  if (!block) {
    draft.comment("");
    draft.comment("No [elasticity]: the source has no elasticity block.");
    return false;
  }
  if (!block.value->is(Type::kObject)) {
    draft.error(block, fmt::format("elasticity is {}; it must be an object: {{\"enabled\": true, ...}}",
                                   describe(*block.value)));
    return true;
  }
  const Source enabled = block.at("enabled");
  if (!enabled || !is_true(*enabled.value)) {
    draft.comment("");
    draft.comment("No [elasticity]: elasticity.enabled is off in the source.");
    draft.leave("elasticity", "elasticity.enabled is off");
    return false;
  }
  draft.leave_unknown(block,
                      {"enabled", "max_train_batch_size", "micro_batch_sizes", "min_gpus", "max_gpus", "min_time",
                       "version", "prefer_larger_batch", "model_parallel_size", "num_gpus_per_node"},
                      "unknown to DeepSpeed and Pliant");
  Block(draft, block).import();
  return true;
}

}  // namespace pliant::config::deepspeed
