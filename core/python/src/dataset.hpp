// Data sets that come from Python.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "arrays.hpp"
#include "bindings.hpp"

namespace pliant::python {

using GivenArray = std::optional<AnyArray>;
using GivenPair = std::optional<std::pair<AnyArray, AnyArray>>;

/// What a program says of its data.
struct GivenDataset {
  GivenArray lengths;  ///< none: what [data] of the config names
  GivenArray loss_tokens;
  std::string source;
  uint64_t content = 0;
  GivenPair rows;  ///< offsets and ids
  GivenArray costs;
  GivenArray row_costs;
};

/// The data set, with what `config` names beside it. Throws what arrays.hpp says, kInvalidArgument for what does not go
/// together, and what load_dataset and complete_dataset throw.
std::shared_ptr<const PyDataset> dataset_from(const Config& config, GivenDataset given);

/// A range of rows. Throws TypeError for what is no range, kInvalidArgument for one whose step is not 1.
RowRange row_range_from(nb::handle rows, const char* name);

}  // namespace pliant::python
