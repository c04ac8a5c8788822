// Which of Pliant's statuses stands for which of the reference's error classes. The table is in
// docs/reference/parity.md.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "pliant/error.hpp"

namespace pliant::parity {

struct ErrorClass {
  std::string_view name;  ///< of the Python class
  std::vector<Status> statuses;
};

const std::vector<ErrorClass>& error_classes();

/// True when the table has `status` for class `name`.
bool same_class(std::string_view name, Status status);

/// "kInvalidArgument".
std::string_view name_of(Status status);

}  // namespace pliant::parity
