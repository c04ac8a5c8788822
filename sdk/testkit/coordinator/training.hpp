// Models and what a program does with them, step by step, drawn from a seed.
#pragma once

#include <cstdint>
#include <vector>

#include "pliant/sdk/coordinator.hpp"
#include "testkit/draws.hpp"

namespace pliant::testkit {

/// One call of the program.
struct Move {
  enum class Kind { kBeginPass, kEnter, kLeave, kEndPass, kEndStep };
  Kind kind = Kind::kBeginPass;
  bool with_gradient = true;        ///< of a pass that begins
  sdk::Visit visit;                 ///< entered or left; `complete` is empty
  std::vector<uint32_t> completed;  ///< at leave: gradients that became complete just now
};

using Moves = std::vector<Move>;

struct Training {
  sdk::Model model;
  std::vector<Moves> steps;  ///< each ends with kEndStep
};

/// Number `index` of a seed. The first ones are the smallest models: without parameters, with one, a root that is a
/// leaf.
Training drawn_training(uint64_t seed, uint64_t index);

/// The same, each step given up somewhere in its passes.
Training given_up(Training training, uint64_t seed);

/// The same model, one of whose modules has other parameters, and steps of it. `module`: which.
Training with_other_parameters(const Training& training, uint64_t seed, uint32_t& module);

/// The same, with gradients that take room in the arena.
Training with_gradients(Training training, uint64_t seed);

/// The fewest bytes that must be whole at once, for what is entered and what may not be released yet, and what
/// gradients take beside it where each is reduced as soon as it is complete.
uint64_t least_budget(const Training& training);

}  // namespace pliant::testkit
