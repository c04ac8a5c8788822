// How the state of the learning-rate chain lies in a snapshot: with the names of its rules and a check sum.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace pliant::data {

/// `chain`: the names of the rules, joined by '+'.
std::string pack_lr_state(std::string_view chain, std::string_view state);

/// The state inside `packed`. kDataLoss for damaged bytes; kFailedPrecondition (kInput) when another chain wrote it.
Result<std::string> unpack_lr_state(std::string_view packed, std::string_view chain);

/// What is packed.
struct LrChainState {
  int64_t committed = 0;  ///< steps
  double progress = 0;    ///< finite, >= 0
  std::vector<std::string> links;
};

std::string encode(const LrChainState& state);
/// kDataLoss unless `bytes` hold the state of exactly `links` links.
Result<LrChainState> decode(std::string_view bytes, size_t links);

}  // namespace pliant::data
