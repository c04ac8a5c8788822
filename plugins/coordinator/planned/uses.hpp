// What is known of the uses that are still to come.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
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
  /// The use after call `at` of the `index`-th parameter that the module of that call, an enter, uses; kNever, too,
  /// where it does not pay to keep it whole until then.
  [[nodiscard]] Moment next(Moment at, size_t index) const { return kept(next_[begin_[at] + index]); }
  /// The first use of the pass, or of the pass after it; likewise.
  [[nodiscard]] Moment first(uint32_t parameter) const { return kept(first_[parameter]); }
  /// Of every parameter the first use at `from` or later. O(uses).
  [[nodiscard]] std::vector<Moment> first_from(const Layout& layout, Moment from) const;

  /// What it pays to keep: by use, in the order of calls and of parameters of a module, whether the parameter is whole
  /// when its module is entered.
  void mark(std::vector<bool> whole) { whole_ = std::move(whole); }
  [[nodiscard]] bool is_marked() const { return !whole_.empty(); }
  [[nodiscard]] size_t uses() const { return next_.size(); }
  /// What it takes.
  [[nodiscard]] size_t bytes() const {
    return begin_.size() * sizeof(size_t) + (next_.size() + first_.size()) * sizeof(Use) + whole_.size() / 8;
  }
  /// Of the first parameter that the module of that call uses.
  [[nodiscard]] size_t use_at(Moment at) const { return begin_[at]; }

 private:
  struct Use {
    Moment at = kNever;
    size_t number = 0;
  };
  [[nodiscard]] Moment kept(const Use& use) const {
    return use.at == kNever || whole_.empty() || whole_[use.number] ? use.at : kNever;
  }

  std::shared_ptr<const Trace> trace_;
  std::shared_ptr<const Trace> after_;
  std::vector<size_t> begin_;  ///< by call of both, in next_
  std::vector<Use> next_;
  std::vector<Use> first_;
  std::vector<bool> whole_;  ///< empty: all
};

}  // namespace pliant::coordinator::planned
