// The table of error classes.
#include "parity/status_classes.hpp"

#include <algorithm>
#include <array>

namespace pliant::parity {

const std::vector<ErrorClass>& error_classes() {
  static const std::vector<ErrorClass> kClasses{
      {"ElasticityConfigError", {Status::kInvalidArgument}},
      {"ElasticityError", {Status::kOutOfRange}},
      {"ElasticityIncompatibleWorldSize", {Status::kIncompatibleWorldSize}},
      {"AssertionError", {Status::kIncompatibleWorldSize}},
      {"AttributeError", {Status::kInvalidArgument}},
      {"JSONDecodeError", {Status::kInvalidArgument}},
      {"NotImplementedError", {Status::kNotFound}},
      {"OverflowError", {Status::kOutOfRange}},
      {"TypeError", {Status::kInvalidArgument, Status::kOutOfRange, Status::kIncompatibleWorldSize}},
      {"UFuncTypeError", {Status::kInvalidArgument}},
      {"ValueError", {Status::kInvalidArgument, Status::kOutOfRange}},
      {"ZeroDivisionError", {Status::kInvalidArgument, Status::kFailedPrecondition}},
  };
  return kClasses;
}

bool same_class(std::string_view name, Status status) {
  for (const ErrorClass& known : error_classes()) {
    if (known.name != name) continue;
    return std::find(known.statuses.begin(), known.statuses.end(), status) != known.statuses.end();
  }
  return false;
}

std::string_view name_of(Status status) {
  static constexpr std::array<std::string_view, 13> kNames{"kOk",
                                                           "kInvalidArgument",
                                                           "kOutOfRange",
                                                           "kNotFound",
                                                           "kFailedPrecondition",
                                                           "kResourceExhausted",
                                                           "kUnimplemented",
                                                           "kInternal",
                                                           "kAborted",
                                                           "kPeerLost",
                                                           "kDataLoss",
                                                           "kIncompatibleWorldSize",
                                                           "kDeadlineExceeded"};
  const auto index = static_cast<size_t>(status);
  return index < kNames.size() ? kNames[index] : "?";
}

}  // namespace pliant::parity
