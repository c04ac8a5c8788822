// The uses of a trace in their order, of which a pass takes the first ones: those that were fetched.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "layout.hpp"

namespace pliant::coordinator::zero3 {

/// The step that a parameter was last fetched for, where it was not in this pass.
inline constexpr int32_t kNever = -1;

class FetchQueue {
 public:
  /// A parameter that visit number `step` of the trace uses.
  struct Use {
    uint32_t parameter;
    uint32_t step;
  };

  FetchQueue() = default;
  explicit FetchQueue(size_t parameters) : taken_for_(parameters, kNever) {}

  /// Of the trace, whose visits are fewer than 2^31. A pass begins.
  void list(const Layout& layout, const std::vector<uint32_t>& trace);
  /// There is no trace.
  void clear();
  /// A pass begins: nothing is taken.
  void rewind();
  /// The layout still says what it listed.
  [[nodiscard]] bool is_of(const Layout& layout) const { return version_ == layout.version(); }

  [[nodiscard]] size_t size() const { return uses_.size(); }
  [[nodiscard]] size_t taken() const { return taken_; }
  [[nodiscard]] bool at_end() const { return taken_ == uses_.size(); }
  [[nodiscard]] const Use& at(size_t number) const { return uses_[number]; }
  [[nodiscard]] const Use& next() const { return uses_[taken_]; }
  void take() { ++taken_; }

  // Uses of one visit, which the trace has.
  [[nodiscard]] bool has_taken(uint64_t step) const { return taken_ >= begins_[step + 1]; }
  [[nodiscard]] bool has_begun(uint64_t step) const { return taken_ > begins_[step]; }
  /// The same of one that the trace may not have.
  [[nodiscard]] bool has_begun_from(uint64_t step) const { return step < begins_.size() && has_begun(step); }
  [[nodiscard]] bool is_before(uint64_t step) const { return taken_ < begins_[step]; }
  /// All up to its last.
  void take_visit(uint64_t step) { taken_ = begins_[step + 1]; }

  /// The step of the last use of the parameter that was taken in this pass, or kNever.
  [[nodiscard]] int32_t taken_for(uint32_t parameter) {
    for (; noted_ < taken_; ++noted_) taken_for_[uses_[noted_].parameter] = static_cast<int32_t>(uses_[noted_].step);
    return taken_for_[parameter];
  }

 private:
  std::vector<Use> uses_;
  std::vector<size_t> begins_{0};  ///< by visit, and the end of the last
  uint32_t version_ = 0;           ///< of the layout that it lists
  size_t taken_ = 0;
  std::vector<int32_t> taken_for_;  ///< by parameter, of the first `noted_` that are taken
  size_t noted_ = 0;
};

}  // namespace pliant::coordinator::zero3
