// TraceOrders: which passes of a rank went as one before, and where the others left what was known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_set>
#include <vector>

#include "sharded/trace/trace_file.hpp"

namespace pliant::sharded {

/// What a coordinator could know of the order of visits that keeps every pass which has ended, those with gradients and
/// the others apart. What it had learnt before the first call is not known here. O(calls).
class TraceOrders {
 public:
  explicit TraceOrders(std::span<const TracedCall> calls);

  /// The first enter of the pass, up to `call`, an enter, that no pass before had come to in this order; nullopt: all
  /// of them were known.
  [[nodiscard]] std::optional<size_t> left_at(size_t call) const;
  /// Whether that enter is the first of its pass.
  [[nodiscard]] bool is_first(size_t call) const { return firsts_.count(call) > 0; }
  /// Some pass went as one before.
  [[nodiscard]] bool came_back() const { return came_back_; }

 private:
  void begin(const TracedCall& call);
  void enter(const TracedCall& call, size_t at);
  void end();

  std::vector<size_t> left_at_;
  std::unordered_set<size_t> firsts_;
  std::unordered_set<uint64_t> known_;  ///< digests of begins of passes
  std::vector<uint64_t> pass_;          ///< of the one under way
  uint64_t digest_ = 0;
  size_t first_new_ = 0;
  bool came_back_ = false;
};

}  // namespace pliant::sharded
