// ParameterIndex: which elements of a snapshot's arrays are which parameter, so that a model finds them by name.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "sharded/shards/model_tables.hpp"

namespace pliant::sharded {

/// A parameter lies at the same place in each array: the weights, which are f32 masters, and the states.
struct IndexedParameter {
  std::string name;
  std::vector<int64_t> shape;
  uint64_t first = 0;  ///< element of the array
  uint64_t count = 0;
};

/// Elements that lie side by side in a model and in a snapshot.
struct PlacedRun {
  uint64_t first = 0;     ///< in the flat space of the model
  uint64_t count = 0;     ///< at least 1
  uint64_t in_index = 0;  ///< first element in the snapshot's array
};

class ParameterIndex {
 public:
  /// In the order of the model.
  static ParameterIndex of(const ModelTables& model);
  /// A line for each: "layer.0.weights f32[512,128] 0", the last number its first element.
  [[nodiscard]] std::string text() const;
  /// Reads what text() gave. kDataLoss for anything else: lines that are none, names that come twice, elements that
  /// belong to two parameters or to none.
  static Result<ParameterIndex> parse(std::string_view text);

  [[nodiscard]] const std::vector<IndexedParameter>& parameters() const { return parameters_; }
  /// Of one array.
  [[nodiscard]] uint64_t elements() const { return elements_; }

  /// Where the parameters of `model` lie, ascending in its flat space; neighbours in both are one run.
  /// kFailedPrecondition with the names of what is missing here, is here and not there, or has another shape.
  [[nodiscard]] Result<std::vector<PlacedRun>> place(const ModelTables& model) const;

 private:
  std::vector<IndexedParameter> parameters_;
  uint64_t elements_ = 0;
};

}  // namespace pliant::sharded
