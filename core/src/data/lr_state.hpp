// How the state of a learning-rate rule lies in a snapshot: with the rule's name and a check sum.
#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"

namespace pliant::data {

std::string pack_lr_state(std::string_view rule, std::string_view state);

/// The state inside `packed`. kDataLoss for damaged bytes; kFailedPrecondition (exit 2) when another rule wrote it.
Result<std::string> unpack_lr_state(std::string_view packed, std::string_view rule);

}  // namespace pliant::data
