// Checks of rows and costs that were made beforehand, and the files that they are read from.
#pragma once

#include <filesystem>

#include "base/result.hpp"
#include "pliant/batches.hpp"

namespace pliant::data {

/// The rows of `dataset` are rows of its sequences, and there is a cost for each sequence, or none. kInvalidArgument,
/// kInput, names the array, the place in it and what to do; options() is "offsets" or "ids" where it is about them.
Result<> check_rows(const Dataset& dataset);
Result<> check_costs(const Dataset& dataset);

/// A .npy file of integers. Errors as of read_lengths.
Result<Integers> read_integers(const std::filesystem::path& file);
/// A .npy file of numbers that are finite and 0 or more.
Result<Integers> read_costs(const std::filesystem::path& file);

/// The costs of sequences that give each of `rows`, which were checked, its cost in `row_costs`.
Integers costs_of_rows(const GivenRows& rows, const Integers& row_costs, size_t sequences);

}  // namespace pliant::data
