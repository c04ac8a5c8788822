// The option table of [app].
#include "settings.hpp"

#include <pliant/error.hpp>
#include <string>

namespace tinylm {
namespace {

void read(const pliant::Config& config, const char* key, int64_t low, int64_t high, int64_t& value) {
  value = config.app_int(key).value_or(value);
  if (value >= low && value <= high) return;
  config.refuse_app(
      key, "must be " + std::to_string(low) + " to " + std::to_string(high) + ", not " + std::to_string(value));
}

void read(const pliant::Config& config, const char* key, double& value) {
  value = config.app_float(key).value_or(value);
  if (value >= 0 && value <= 1e6) return;
  config.refuse_app(key, "must be 0 to 1000000, not " + std::to_string(value));
}

/// [lr] may say the betas and epsilon that suit the base batch; its rule changes them from there.
void read_optimizer(const pliant::LrOptions& lr, AdamW::Options& adamw) {
  if (lr.optimizer != "adamw" && lr.optimizer != "unknown") {
    throw pliant::Error(pliant::Status::kInvalidArgument,
                        "tinylm trains with AdamW: [lr] optimizer must be \"adamw\", not \"" + lr.optimizer + "\"",
                        pliant::Origin::kInput);
  }
  adamw.beta1 = lr.beta1.value_or(adamw.beta1);
  adamw.beta2 = lr.beta2.value_or(adamw.beta2);
  adamw.epsilon = lr.epsilon.value_or(adamw.epsilon);
}

}  // namespace

Settings read_settings(const pliant::Config& config) {
  config.check_app_keys({"vocab", "dim", "layers", "heads", "max_sequence", "long_sequences", "warmup_steps",
                         "weight_decay", "clip_norm", "export_every", "first_weights", "order", "held_out",
                         "evaluate_every", "stop_below"});
  Settings settings;
  ModelShape& shape = settings.shape;
  read(config, "vocab", 300, 32000, shape.vocab);
  read(config, "dim", 8, 4096, shape.dim);
  read(config, "layers", 1, 64, shape.layers);
  read(config, "heads", 1, 64, shape.heads);
  read(config, "max_sequence", 8, 8192, shape.max_sequence);
  read(config, "warmup_steps", 0, 1000000, settings.warmup_steps);
  read(config, "weight_decay", settings.adamw.weight_decay);
  read(config, "clip_norm", settings.adamw.clip_norm);
  read(config, "export_every", 0, 1000000, settings.export_every);
  read(config, "held_out", 0, 1000000000, settings.held_out);
  read(config, "evaluate_every", 0, 1000000, settings.evaluate_every);
  read(config, "stop_below", settings.stop_below);
  if (settings.evaluate_every > 0 && settings.held_out == 0) {
    config.refuse_app("evaluate_every", "evaluates over sequences that are not trained on, and app.held_out is 0");
  }
  settings.first_weights = config.app_string("first_weights").value_or("");
  const std::string order = config.app_string("order").value_or("pass");
  if (order != "pass" && order != "layer") {
    config.refuse_app("order", "must be \"pass\" or \"layer\", not \"" + order + "\"");
  }
  settings.order = order == "layer" ? Order::kLayer : Order::kPass;
  if (!config.has("coordinator")) {
    if (settings.export_every > 0) config.refuse_app("export_every", "needs [coordinator]");
    if (!settings.first_weights.empty()) config.refuse_app("first_weights", "needs [coordinator]");
    if (settings.order == Order::kLayer) config.refuse_app("order", "= \"layer\" needs [coordinator]");
  }
  for (const std::string& type : {config.coordinator().compute_dtype, config.coordinator().reduce_dtype}) {
    if (type == "f32") continue;
    throw pliant::Error(pliant::Status::kFailedPrecondition,
                        "tinylm computes in f32: leave compute_dtype and reduce_dtype of [coordinator] out",
                        pliant::Origin::kInput);
  }
  read_optimizer(config.lr(), settings.adamw);
  if (shape.dim % shape.heads != 0) {
    config.refuse_app("dim", "must be a multiple of heads: " + std::to_string(shape.dim) + " is none of " +
                                 std::to_string(shape.heads));
  }
  const std::string long_ones = config.app_string("long_sequences").value_or("refuse");
  if (long_ones != "refuse" && long_ones != "split") {
    config.refuse_app("long_sequences", "must be \"refuse\" or \"split\", not \"" + long_ones + "\"");
  }
  settings.long_sequences = long_ones == "split" ? LongSequences::kSplit : LongSequences::kRefuse;
  return settings;
}

}  // namespace tinylm
