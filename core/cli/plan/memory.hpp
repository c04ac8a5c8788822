// MemoryStudy: what a rank takes for a sharded model, over world sizes; what `pliant plan --memory` shows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/study.hpp"
#include "pliant/sharded.hpp"
#include "sharded/shards/model_tables.hpp"

namespace pliant::cli {

/// How a program trains, as far as a plan does not say it.
struct TrainedHow {
  int64_t states = 2;           ///< arrays that the optimizer keeps for each weight
  bool in_layer_order = false;  ///< a step is one pass over all of its micro-batches
};

class MemoryStudy {
 public:
  /// `study` has a config with [coordinator]. Of one world size, or, when that is 0, of all, or of some where there are
  /// more than `most`, with the first and the last. The file is a .safetensors file, or a trace, whose model and order
  /// of visits count then: those of its longest whole step. Throws what the file is to blame for, and a budget that
  /// suffices for the largest module or at any of these sizes not.
  MemoryStudy(const Study& study, const std::string& model_file, TrainedHow how, int64_t world_size, int64_t most);

  struct Row {
    std::string refusal;  ///< why the budget does not suffice at this size; the rest but `size` is 0 then
    SizeReport size;
    ShardedMemory memory;
    uint64_t deepspeed = 0;
    [[nodiscard]] uint64_t all() const { return memory.weights + memory.state + memory.sums + memory.gathered_most; }
  };
  std::string file;
  struct Visits {
    int32_t rank = 0;
    int64_t step = 0;
    uint32_t micro_batches = 1;  ///< that a pass of it is over, at most
  };
  std::optional<Visits> visits;  ///< of a trace; none: in the order of the file
  std::string coordinator;
  uint64_t budget = 0;
  uint64_t elements = 0;
  size_t parameters = 0;
  std::vector<std::string> modules;
  std::string largest;  ///< module, with its bytes and those of its gradients
  uint64_t largest_bytes = 0;
  uint64_t replicated = 0;  ///< of a rank that holds all of it
  TrainedHow how;           ///< as given, and as a trace shows
  std::vector<Row> rows;
  int64_t valid_sizes = 0;  ///< of the plan

 private:
  void describe(const sharded::ModelTables& model, const Config& config);
};

std::string memory_text(const MemoryStudy& memory);
/// One line, schema pliant.plan_memory/1.
std::string memory_json(const MemoryStudy& memory);

}  // namespace pliant::cli
