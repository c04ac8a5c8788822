// Dynamic batching: sampler seqlen, the rule of the learning rate, and the seed of the order.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "import/draft.hpp"
#include "import/python.hpp"

namespace pliant::config::deepspeed {

namespace {

using Fit = Number::Fit;
using Type = Json::Type;

constexpr const char* kPath = "data_efficiency.data_sampling.dynamic_batching";
constexpr int64_t kDefaultSeed = 1234;
constexpr std::array<std::string_view, 3> kOrders{"dataloader", "random", "seqlen"};

/// str(value) where it can name something.
std::string as_text(const Json& value) {
  return value.is(Type::kNull) ? "None" : value.text;
}

class Batching {
 public:
  Batching(Draft& draft, Source block, bool has_elasticity)
      : draft_(draft), block_(std::move(block)), has_elasticity_(has_elasticity) {}

  void import() {
    if (!block_.at("max_tokens")) {
      draft_.error(block_, fmt::format("{}.max_tokens is missing; it must be a whole number of at least 0", kPath));
    }
    const auto max_tokens = count("max_tokens");
    const auto least = count("min_batch_size");
    const auto most = count("max_batch_size");
    if (most.value_or(0) > 0 && least.value_or(1) > *most) {
      draft_.error(block_.at("max_batch_size"),
                   fmt::format("{}.max_batch_size is {}, but must be at least {}.min_batch_size, which is {}", kPath,
                               *most, kPath, least.value_or(1)));
    }
    read_order();
    read_rule();
    if (draft_.diagnostics().failed()) return;
    write_lengths();
    write_sampler(max_tokens, least, most);
    write_rate();
    write_seed();
  }

 private:
  std::optional<int64_t> count(std::string_view key) {
    const Source from = block_.at(key);
    if (!from) return std::nullopt;
    const std::optional<int64_t> value = as_int(*from.value);
    if (value && *value >= 0) return value;
    std::vector<std::string> notes;
    if (from.value->is(Type::kNull)) notes.emplace_back("remove the key to use its default");
    draft_.error(from,
                 fmt::format("{} is {}; it must be a whole number of at least 0", from.path, describe(*from.value)),
                 std::move(notes));
    return std::nullopt;
  }

  void read_order() {
    const Source from = block_.at("sequence_picking_order");
    if (!from) return;
    order_ = as_text(*from.value);
    if (from.value->is(Type::kString) && std::find(kOrders.begin(), kOrders.end(), order_) != kOrders.end()) return;
    draft_.error(from, fmt::format("{} is {}; allowed: \"dataloader\", \"random\" and \"seqlen\"", from.path,
                                   describe(*from.value)));
  }

  void read_rule() {
    const Source from = block_.at("lr_scaling_method");
    if (!from) return;
    rule_ = as_text(*from.value);
    if (lower(rule_) == "none") rule_ = "none";
    if (rule_ == "linear" || rule_ == "sqrt" || rule_ == "none") return;
    draft_.error(from, fmt::format("{} is {}; allowed: \"linear\", \"sqrt\" and \"none\", in lower case", from.path,
                                   describe(*from.value)));
  }

  void carry_count(std::string_view key, std::optional<int64_t> value) {
    if (!value) return;
    const Source from = block_.at(key);
    draft_.carry(from, key, Value::of(*value), from.value->is(Type::kInt) ? "" : "given as " + describe(*from.value));
  }

  /// DeepSpeed's metric files hold the lengths.
  void write_lengths() {
    const Source from = block_.at("metrics_path");
    if (!from) return;
    if (!from.value->is(Type::kString) || from.value->text.empty()) {
      return draft_.leave(from.path, "no path; set data.lengths to a file with the lengths");
    }
    draft_.table({"data"});
    const bool relative = from.value->text.front() != '/';
    draft_.carry(
        from, "lengths", Value::of(from.value->text),
        relative ? "relative to this file's folder; DeepSpeed resolves it relative to its working directory" : "");
  }

  void write_sampler(std::optional<int64_t> max_tokens, std::optional<int64_t> least, std::optional<int64_t> most) {
    draft_.comment("");
    draft_.comment(
        fmt::format("From {}. Packs are formed as DeepSpeed forms them; a row of the global batch is a pack.", kPath));
    draft_.comment(
        "With strict = true, added to the options below, the sequences that DeepSpeed's rule loses at the end of an "
        "epoch are used, too.");
    if (!has_elasticity_) {
      draft_.comment(
          "A plan also needs an [elasticity] section for the global batch, which DeepSpeed calls train_batch_size: "
          "`pliant plugin info elasticity/exact` shows its options.");
    }
    draft_.table({"sampler"});
    draft_.carried(block_.at("enabled"), "sampler");
    draft_.add("use", Value::of(std::string("seqlen")), {});
    draft_.table({"sampler", "seqlen"});
    carry_count("max_tokens", max_tokens);
    carry_count("min_batch_size", least);
    carry_count("max_batch_size", most);
    if (const Source from = block_.at("sequence_picking_order")) {
      draft_.carry(from, "sequence_picking_order", Value::of(order_));
    }
    draft_.add("over_long", Value::of(std::string("drop")), "as in DeepSpeed; \"error\" stops and names them");
  }

  void write_rate() {
    const Source from = block_.at("lr_scaling_method");
    ScalingRule scaling{rule_, from, {}, [this] { write_base_batch(); }};
    if (!from) {
      scaling.note = "DeepSpeed's rule if lr_scaling_method is missing";
    } else if (!from.value->is(Type::kString) || from.value->text != rule_) {
      scaling.note = "given as " + describe(*from.value);
    }
    import_rate(draft_, &scaling);
  }

  /// DeepSpeed divides sequences by packs: its base is the train batch size.
  void write_base_batch() {
    const Source from = draft_.root().at("train_batch_size");
    const std::optional<Number> size =
        from && !has_elasticity_ && !from.value->is(Type::kBool) ? as_number(*from.value) : std::optional<Number>{};
    if (size && size->fit == Fit::kExact && size->floor >= 1) {
      return draft_.carry(from, "base_batch", Value::of(static_cast<double>(size->floor)));
    }
    draft_.comment(
        "base_batch = N, with N the global batch that `pliant plan` shows, gives DeepSpeed's rates: it divides the "
        "sequences of a batch by the number of packs. Without it, base_lr applies to the mean batch of the first "
        "epoch.");
    if (from) {
      draft_.leave(from.path, has_elasticity_ ? "the plan decides it; for DeepSpeed's rates set lr.base_batch to the "
                                                "global batch that `pliant plan` shows"
                                              : "not a size; set lr.base_batch to the global batch");
    }
  }

  void write_seed() {
    const Source from = draft_.root().at("data_efficiency").at("seed");
    if (!from) {
      if (order_ != "random") return;
      draft_.table({"run"});
      return draft_.add("seed", Value::of(kDefaultSeed), "DeepSpeed's seed if data_efficiency.seed is missing");
    }
    const std::optional<Number> seed =
        from.value->is(Type::kInt) || from.value->is(Type::kBool) ? as_number(*from.value) : std::optional<Number>{};
    if (!seed || seed->fit != Fit::kExact || seed->floor == std::numeric_limits<int64_t>::min()) {
      return draft_.leave(from.path, "only whole numbers below 2^63 are supported as seeds; set run.seed");
    }
    draft_.table({"run"});
    draft_.carry(
        from, "seed", Value::of(std::abs(seed->floor)),
        "from " + from.path +
            (seed->negative ? ", given as " + describe(*from.value) + "; Python ignores the sign when it shuffles"
                            : ""));
  }

  Draft& draft_;
  Source block_;
  bool has_elasticity_;
  std::string order_ = "dataloader";
  std::string rule_ = "linear";
};

}  // namespace

bool import_dynamic_batching(Draft& draft, bool has_elasticity) {
  const Source efficiency = draft.root().at("data_efficiency");
  const Source block = efficiency.at("data_sampling").at("dynamic_batching");
  const Source enabled = block.at("enabled");
  if (block && !block.value->is(Type::kObject)) {
    draft.error(block, fmt::format("{} is {}; it must be an object: {{\"enabled\": true, \"max_tokens\": 4096}}", kPath,
                                   describe(*block.value)));
    return true;
  }
  if (!enabled || !is_true(*enabled.value)) {
    if (block) draft.leave(kPath, "dynamic batching is off");
    return false;
  }
  draft.leave_unknown(block,
                      {"enabled", "max_tokens", "min_batch_size", "max_batch_size", "sequence_picking_order",
                       "lr_scaling_method", "metrics_path"},
                      "unknown to DeepSpeed and Pliant");
  for (const Source& above : {efficiency, efficiency.at("data_sampling")}) {
    draft.leave(above.at("enabled").path, "dynamic_batching.enabled alone decides, as in DeepSpeed");
  }
  Batching(draft, block, has_elasticity).import();
  return true;
}

}  // namespace pliant::config::deepspeed
