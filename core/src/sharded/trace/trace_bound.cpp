#include "sharded/trace/trace_bound.hpp"

#include <algorithm>
#include <cstddef>
#include <queue>
#include <utility>

#include "sharded/shards/exchange.hpp"

namespace pliant::sharded {
namespace {

/// Calls between two ends of steps; within one nothing that is whole changes its value.
class BoundSweep {
 public:
  BoundSweep(const ModelTables& model, const ArenaTypes& types)
      : model_(model), types_(types), parameters_(model.parameters().size()) {}

  void sweep(std::span<const TracedCall> calls, std::span<LeastGathered> least) {
    find_uses(calls);
    for (size_t at = 0; at < calls.size(); ++at) {
      const TracedCall& call = calls[at];
      if (call.kind == TracedCall::Kind::kBeginPass || call.kind == TracedCall::Kind::kBeginEvaluation) begin_pass();
      if (call.kind == TracedCall::Kind::kEndPass) drop_gradients();
      if (call.kind == TracedCall::Kind::kEnter) enter(call, least[at]);
      if (call.kind == TracedCall::Kind::kLeave) leave(call);
    }
  }

 private:
  struct Parameter {
    std::vector<size_t> uses;  ///< calls that enter a module which uses it
    size_t next = 0;           ///< of `uses`
    uint64_t kept = 0;         ///< bytes that are whole while nothing that is entered uses it
    uint32_t users = 0;        ///< modules that are entered
    uint32_t visits = 0;       ///< forward, of the pass, without their backward
    bool is_new = true;        ///< not gathered yet
    bool stays = false;        ///< whole until the step ends
    bool has_gradient = false;
    bool is_complete = false;  ///< its gradient, in this pass
  };
  struct Kept {
    size_t next_use;
    uint32_t parameter;
    bool operator<(const Kept& other) const { return next_use < other.next_use; }
  };

  [[nodiscard]] uint64_t whole_bytes(uint32_t parameter) const {
    return model_.parameter(parameter).elements * bytes_of(types_.whole);
  }
  [[nodiscard]] uint64_t gradient_bytes(uint32_t parameter) const {
    return model_.parameter(parameter).elements * bytes_of(types_.reduce);
  }

  void find_uses(std::span<const TracedCall> calls) {
    std::fill(parameters_.begin(), parameters_.end(), Parameter{});
    kept_ = {};
    in_use_ = kept_bytes_ = gradients_ = open_ = 0;
    for (size_t at = 0; at < calls.size(); ++at) {
      if (calls[at].kind != TracedCall::Kind::kEnter) continue;
      for (const uint32_t parameter : used_by(calls[at])) parameters_[parameter].uses.push_back(at);
    }
  }

  [[nodiscard]] const std::vector<uint32_t>& used_by(const TracedCall& call) const {
    return model_.modules()[*call.module].used;
  }

  void begin_pass() {
    drop_gradients();
    if (open_ > 0) give_up();
    is_backward_ = false;
    for (Parameter& one : parameters_) {
      one.visits = 0;
      one.is_complete = false;
    }
  }

  // The pass before did not end: nothing of it is whole any more.
  void give_up() {
    for (Parameter& one : parameters_) {
      one.kept = one.users = 0;
      one.is_new = true;
      one.stays = false;
    }
    kept_ = {};
    in_use_ = kept_bytes_ = open_ = 0;
  }

  // At the end of a pass the host reduces what is left.
  void drop_gradients() {
    for (uint32_t parameter = 0; gradients_ > 0 && parameter < parameters_.size(); ++parameter)
      drop_gradient(parameter);
  }

  void enter(const TracedCall& call, LeastGathered& least) {
    ++open_;
    for (const uint32_t parameter : used_by(call)) {
      Parameter& one = parameters_[parameter];
      ++one.next;
      if (call.direction == Direction::kForward) ++one.visits;
      if (one.users++ > 0 || one.stays) continue;
      const uint64_t bytes = whole_bytes(parameter);
      const uint64_t there = std::exchange(one.kept, 0);
      if (std::exchange(one.is_new, false)) least.with_room += bytes;
      least.at_budget += bytes - there;
      kept_bytes_ -= there;
      in_use_ += bytes;
      one.stays = model_.parameter(parameter).external;
    }
    if (types_.budget == 0) return;
    if (call.direction == Direction::kBackward) take_gradients(call);
    make_room();
  }

  void take_gradients(const TracedCall& call) {
    for (uint32_t parameter = 0; !is_backward_ && parameter < parameters_.size(); ++parameter) {
      if (model_.parameter(parameter).external) take_gradient(parameter);
    }
    is_backward_ = true;
    for (const uint32_t parameter : used_by(call)) take_gradient(parameter);
  }

  void take_gradient(uint32_t parameter) {
    Parameter& one = parameters_[parameter];
    if (model_.parameter(parameter).frozen || one.is_complete || std::exchange(one.has_gradient, true)) return;
    gradients_ += gradient_bytes(parameter);
  }

  void drop_gradient(uint32_t parameter) {
    if (std::exchange(parameters_[parameter].has_gradient, false)) gradients_ -= gradient_bytes(parameter);
  }

  void leave(const TracedCall& call) {
    open_ -= open_ > 0 ? 1 : 0;
    for (const uint32_t parameter : used_by(call)) {
      Parameter& one = parameters_[parameter];
      if (call.direction == Direction::kBackward && one.visits > 0 && !model_.parameter(parameter).external &&
          --one.visits == 0) {
        one.is_complete = true;
        drop_gradient(parameter);
      }
      if (one.users == 0 || --one.users > 0 || one.stays) continue;
      in_use_ -= whole_bytes(parameter);
      if (one.next == one.uses.size()) continue;
      one.kept = whole_bytes(parameter);
      kept_bytes_ += one.kept;
      if (types_.budget > 0 && one.kept > 0) kept_.push({one.uses[one.next], parameter});
    }
  }

  void make_room() {
    const uint64_t needed = in_use_ + gradients_;
    const uint64_t room = types_.budget - std::min(types_.budget, needed);
    while (kept_bytes_ > room && !kept_.empty()) {
      const Kept last = kept_.top();
      Parameter& one = parameters_[last.parameter];
      const bool is_there = one.kept > 0 && one.next < one.uses.size() && one.uses[one.next] == last.next_use;
      if (is_there) {
        const uint64_t goes = std::min(one.kept, kept_bytes_ - room);
        one.kept -= goes;
        kept_bytes_ -= goes;
        if (one.kept > 0) return;
      }
      kept_.pop();
    }
  }

  const ModelTables& model_;
  const ArenaTypes types_;
  std::vector<Parameter> parameters_;
  std::priority_queue<Kept> kept_;  ///< latest next use first; what is used again meanwhile is passed over
  uint64_t in_use_ = 0;             ///< bytes of what entered modules use, and of what stays
  uint64_t kept_bytes_ = 0;
  uint64_t gradients_ = 0;
  uint64_t open_ = 0;         ///< modules that are entered
  bool is_backward_ = false;  ///< some module of the pass was entered backward
};

}  // namespace

std::vector<LeastGathered> least_gathered(const ModelTables& model, std::span<const TracedCall> calls,
                                          const ArenaTypes& types) {
  std::vector<LeastGathered> least(calls.size());
  BoundSweep sweep(model, types);
  for (size_t begin = 0; begin < calls.size();) {
    size_t end = begin;
    while (end < calls.size() && calls[end].kind != TracedCall::Kind::kEndStep) ++end;
    sweep.sweep(calls.subspan(begin, end - begin), std::span(least).subspan(begin, end - begin));
    begin = end + 1;
  }
  return least;
}

}  // namespace pliant::sharded
