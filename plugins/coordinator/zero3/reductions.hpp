// Complete gradients collected into buckets; a full bucket leaves as one collective.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pliant/sdk/coordinator.hpp"

namespace pliant::coordinator::zero3 {

class Reductions {
 public:
  Reductions() = default;
  Reductions(const std::vector<sdk::Parameter>& parameters, uint64_t bucket_elements);

  /// `complete`: every gradient that is complete and was not reduced yet.
  void collect(std::span<const uint32_t> complete, sdk::Actions& actions) {
    if (complete.size() != bucket_.size()) add(complete, actions);
  }
  /// What is left leaves.
  void flush(sdk::Actions& actions);
  /// The gradients of this pass are gone.
  void forget();

 private:
  void add(std::span<const uint32_t> complete, sdk::Actions& actions);
  void leave(sdk::Actions& actions);

  std::vector<uint64_t> elements_;
  std::vector<uint8_t> collected_;  ///< those of bucket_ and of left_
  std::vector<uint32_t> bucket_;    ///< in the order in which they became complete
  std::vector<uint32_t> left_;      ///< reduced in this call
  uint64_t bucket_elements_ = 0;
  uint64_t limit_ = 0;
};

}  // namespace pliant::coordinator::zero3
