#include "elastic/snapshot_arrays.hpp"

#include <utility>

#include "elastic/state_arrays.hpp"
#include "sharded/shards/parameter_index.hpp"

namespace pliant::elastic {

Result<std::vector<SnapshotArray>> arrays_of_snapshot(const SnapshotHeader& header) {
  Result<std::vector<ArrayOfLayout>> arrays = arrays_of_layout(header.arrays);
  if (!arrays) return failed(arrays.error().status(), arrays.error().message());
  std::vector<SnapshotArray> made;
  if (header.parameters.empty()) {
    for (ArrayOfLayout& one : *arrays) {
      made.push_back({{}, std::move(one.name), one.dtype, std::move(one.shape), one.bytes});
    }
    return made;
  }
  const Result<sharded::ParameterIndex> index = sharded::ParameterIndex::parse(header.parameters);
  if (!index) return failed(index.error().status(), index.error().message());
  bool has_weights = false;
  for (const ArrayOfLayout& one : *arrays) {
    if (one.dtype != DType::kF32 || one.bytes != index->elements() * sizeof(float)) break;
    has_weights = has_weights || one.name == kWeights;
    for (const sharded::IndexedParameter& parameter : index->parameters()) {
      made.push_back({one.name, parameter.name, DType::kF32, parameter.shape, parameter.count * sizeof(float)});
    }
  }
  if (!has_weights || made.size() != arrays->size() * index->parameters().size()) {
    return failed(Status::kDataLoss, "its parameters do not fit its arrays");
  }
  return made;
}

}  // namespace pliant::elastic
