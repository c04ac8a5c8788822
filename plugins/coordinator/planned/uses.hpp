// What is known of the uses that are still to come.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "layout.hpp"
#include "traces.hpp"

namespace pliant::coordinator::planned {

/// A moment: the number of a call of the pass, and on into the pass after it.
using Moment = uint64_t;
/// No known call uses it.
constexpr Moment kNever = UINT64_MAX;

/// The next use of each parameter at each call of a trace, and of the one that follows. Made in one sweep from the end:
/// O(uses of both + parameters).
class Uses {
 public:
  Uses() = default;
  /// `after`: the pass that follows, nullptr where none does or it is not known.
  Uses(const Layout& layout, std::shared_ptr<const Trace> trace, std::shared_ptr<const Trace> after);

  [[nodiscard]] bool known() const { return trace_ != nullptr; }
  /// Calls of the pass.
  [[nodiscard]] size_t calls() const { return trace_ == nullptr ? 0 : trace_->calls.size(); }
  /// And of the pass after it.
  [[nodiscard]] Moment end() const { return calls() + (after_ == nullptr ? 0 : after_->calls.size()); }
  [[nodiscard]] Call call(Moment at) const {
    return at < trace_->calls.size() ? trace_->calls[at] : after_->calls[at - trace_->calls.size()];
  }
  /// The use after call `at` of the `index`-th parameter that the module of that call, an enter, uses.
  [[nodiscard]] Moment next(size_t at, size_t index) const { return next_[begin_[at] + index]; }
  /// The first use of the pass, or of the pass after it.
  [[nodiscard]] Moment first(uint32_t parameter) const { return first_[parameter]; }
  /// Of every parameter the first use at `from` or later. O(uses).
  [[nodiscard]] std::vector<Moment> first_from(const Layout& layout, Moment from) const;

 private:
  std::shared_ptr<const Trace> trace_;
  std::shared_ptr<const Trace> after_;
  std::vector<size_t> begin_;  ///< by call, in next_
  std::vector<Moment> next_;
  std::vector<Moment> first_;
};

}  // namespace pliant::coordinator::planned
