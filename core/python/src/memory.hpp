// Memory that a program names: arrays of the state, and pieces of gradients.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "nanobind.hpp"
#include "pliant/gradient_piece.hpp"
#include "pliant/training_state.hpp"

namespace pliant::python {

/// Keeps an array alive.
using KeptArray = nb::ndarray<>;

/// The arrays of a state, as TrainingState.arrays of the package gives them, and what keeps their memory alive.
struct NamedArrays {
  std::vector<StateArray> arrays;
  std::vector<KeptArray> kept;
};

/// Raises TypeError for what is no array and ValueError for one that is not dense or may not be written; throws
/// kInvalidArgument for an unknown dtype and for memory of another size than its shape.
NamedArrays named_arrays_from(nb::handle arrays);

struct PieceOfGradient {
  GradientPiece piece;
  std::optional<nb::ndarray<nb::ro>> kept;  ///< where it is an array
  bool is_on_host = true;                   ///< as far as it says: an address says nothing
};

/// `given`: an array, or the address of `count` elements of `dtype`. `name` as in messages. Raises TypeError for what
/// is neither, and for elements that gradients do not have; ValueError for one that is not dense.
PieceOfGradient piece_from(nb::handle given, uint64_t offset, nb::handle count, nb::handle dtype, const char* name);

/// A whole number, 0 or more. Raises TypeError and ValueError.
uint64_t count_from(nb::handle number, const std::string& name);

}  // namespace pliant::python
