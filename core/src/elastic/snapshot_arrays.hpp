// The arrays in a snapshot by name, those of a model that was cut over the ranks parameter by parameter.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "elastic/snapshot.hpp"
#include "pliant/training_state.hpp"

namespace pliant::elastic {

/// What a sharded job keeps of each parameter besides the states of its optimizer: its values.
inline constexpr const char* kWeights = "weights";

struct SnapshotArray {
  std::string of{};  ///< of a sharded job: kWeights, or the state of the optimizer; empty: of one that is not
  std::string name;  ///< of a sharded job: its parameter
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  uint64_t bytes = 0;  ///< of its elements, which follow those of the array before it
};

/// In the order of the file. kDataLoss where the header is damaged.
Result<std::vector<SnapshotArray>> arrays_of_snapshot(const SnapshotHeader& header);

}  // namespace pliant::elastic
