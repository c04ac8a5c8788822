// Settings: what [app] of pliant.toml says about the model and its training.
#pragma once

#include <pliant/config.hpp>
#include <string>

#include "adamw.hpp"
#include "corpus.hpp"
#include "model.hpp"

namespace tinylm {

/// In which a sharded model computes the micro-batches of a step: each goes through all blocks, or all go through a
/// block before the next one.
enum class Order { kPass, kLayer };

struct Settings {
  ModelShape shape{512, 128, 2, 4, 512};
  LongSequences long_sequences = LongSequences::kRefuse;
  int64_t warmup_steps = 15;
  AdamW::Options adamw;
  int64_t held_out = 0;        ///< sequences at the end of the text that are not trained on
  int64_t evaluate_every = 0;  ///< steps between evaluations over them; 0: none
  double stop_below = 0;       ///< training ends when an evaluation is below it
  int64_t export_every = 0;    ///< steps between .safetensors files of the weights; 0: none. Sharded only
  std::string first_weights;   ///< a .safetensors file to begin from; empty: drawn. Sharded only
  Order order = Order::kPass;  ///< sharded only
};

/// Throws pliant::Error (kInput) with positions for keys that are unknown, of a wrong type or out of range.
Settings read_settings(const pliant::Config& config);

}  // namespace tinylm
