// Sharded models that commands look at without a program: alike layers, the tensors of a file, or what a trace
// recorded.
#pragma once

#include <cstdint>
#include <string>

#include "sharded/shards/model_tables.hpp"
#include "sharded/trace/trace_file.hpp"
#include "sharded/trace/traced_program.hpp"

namespace pliant::cli {

/// Layers that are alike, each of a large and a small parameter.
sharded::ModelTables layers_of(int64_t count, int64_t elements);

/// Names and shapes of a .safetensors file, or of several beside an index or in a folder, in the order of the data;
/// what are no floats is left out. The module of a tensor is what its name says up to the first number, "blocks.0" of
/// "blocks.0.up.weight", as models that repeat a layer are cut; without a number what stands before the last dot.
/// Throws kNotFound, kDataLoss, with `words` in front and exit code 2.
sharded::ModelTables model_in(const std::string& file, const std::string& words);

/// Whether the file is text, as a trace is and a .safetensors file, which begins with a number of eight bytes, is not.
bool is_trace(const std::string& file);

/// Throws as recording_in() for a trace, else as model_in().
void check_model(const std::string& file, const std::string& words);

/// The trace of a sharded job, in_turn(). Throws what read_trace() has against the file, and kFailedPrecondition for
/// one of another job, with `words` in front and exit code 2.
sharded::TraceFile sharded_trace_in(const std::string& file, const std::string& words);

/// What a trace has of a program.
struct Recording {
  sharded::TraceFile trace;
  sharded::TracedStep step;  ///< views into it
  int32_t rank = 0;          ///< whose step that is
  int64_t number = 0;        ///< of the step
};

/// The longest whole step, the last of those, of the lowest rank that has one in the latest generation that has one:
/// one with an evaluation has all that the others have. Throws as sharded_trace_in(), and kFailedPrecondition where no
/// step is whole.
Recording recording_in(const std::string& file, const std::string& words);

}  // namespace pliant::cli
