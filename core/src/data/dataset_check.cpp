// Refusing data sets that no job could be trained on.
#include <fmt/format.h>

#include "data/epoch_plan.hpp"

namespace pliant::data {

Result<> check_dataset(const Dataset& dataset) {
  const auto& lengths = dataset.lengths;
  const auto& loss_tokens = dataset.loss_tokens;
  if (lengths.empty()) {
    return failed(Status::kInvalidArgument, "the data set is empty", Origin::kInput);
  }
  if (!loss_tokens.empty() && loss_tokens.size() != lengths.size()) {
    return failed(Status::kInvalidArgument,
                  fmt::format("the data set has {} lengths but {} loss token counts; give one per sequence, or none",
                              lengths.size(), loss_tokens.size()),
                  Origin::kInput);
  }
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] < 1) {
      return failed(Status::kInvalidArgument,
                    fmt::format("sequence {} of {} has a length of {} tokens; every sequence needs at least 1: remove "
                                "empty sequences from the data set",
                                i, lengths.size(), lengths[i]),
                    Origin::kInput);
    }
    if (!loss_tokens.empty() && (loss_tokens[i] < 0 || loss_tokens[i] > lengths[i])) {
      return failed(Status::kInvalidArgument,
                    fmt::format("sequence {} has {} loss tokens; with a length of {} it can have 0 to {}", i,
                                loss_tokens[i], lengths[i], lengths[i]),
                    Origin::kInput);
    }
  }
  return {};
}

}  // namespace pliant::data
