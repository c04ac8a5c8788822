// Steps of a trace as a program that can be played again: at another world size, budget or coordinator.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sharded/trace/trace_file.hpp"

namespace pliant::sharded {

/// The calls of a step: runs of what was recorded, in turn. Views into a TracedRank.
using TracedStep = std::vector<std::span<const TracedCall>>;

/// The steps of `rank` that were recorded from begin to end, in turn: each has a pass with gradients, every pass of it
/// has ended, and so has the step after the last of them. Evaluations between two steps go with the step that they were
/// recorded for. O(calls).
std::vector<TracedStep> whole_steps(const TracedRank& rank);

/// The step that `step` would be with so many passes with gradients, at least 1: those that it has, in turn, from the
/// first again where it has fewer. An evaluation goes along with the pass before it; what stands before the first pass,
/// and from the end of the step on, stays. O(calls of `step` + `passes`).
TracedStep with_passes(const TracedStep& step, int64_t passes);
/// With gradients.
int64_t passes_of(const TracedStep& step);
/// Of all passes with gradients together.
int64_t micro_batches_of(const TracedStep& step);
/// That a pass is over.
uint32_t most_micro_batches(const TracedStep& step);
/// A single pass over all the micro-batches, of which there are several: with one of them the order is not to be seen.
bool is_in_layer_order(const TracedStep& step);

/// "begin_pass", "enter", "end_step", ...
std::string word_of(const TracedCall& call);

}  // namespace pliant::sharded
