#include "gradients.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace pliant::coordinator::planned {

Gradients::Gradients(const Layout& layout, uint64_t bucket, bool lingers)
    : layout_(&layout), bucket_(bucket), lingers_(lingers) {
  if (layout.model().budget > 0) states_.resize(layout.parameters());
}

void Gradients::begin_pass() {
  if (states_.empty()) return;
  std::fill(states_.begin(), states_.end(), State{});
  gaps_ = {{0, UINT64_MAX}};
  waiting_.clear();
  sent_.clear();
  lingering_.clear();
  waiting_bytes_ = 0;
  is_backward_ = false;
}

void Gradients::take_gradient(uint32_t parameter) {
  State& one = states_[parameter];
  if (one.is_there || one.is_reduced) return;
  one.is_there = true;
  one.gradient = take(layout_->parameter(parameter).gradient_bytes);
}

void Gradients::enter(Call call) {
  if (states_.empty()) return;
  clear(sent_);
  if (is_backward(call) && !std::exchange(is_backward_, true)) {
    for (const uint32_t parameter : layout_->external()) take_gradient(parameter);
  }
  for (const uint32_t parameter : layout_->used(module_of(call))) {
    if (is_backward(call)) take_gradient(parameter);
    if (!is_backward(call) && !recomputes(call)) ++states_[parameter].uses;
  }
}

void Gradients::leave(Call call) {
  if (states_.empty()) return;
  clear(sent_);
  if (!is_backward(call)) return;
  const size_t before = waiting_.size();
  for (const uint32_t parameter : layout_->used(module_of(call))) {
    State& one = states_[parameter];
    const sdk::Parameter& row = layout_->parameter(parameter);
    if (row.frozen || row.external || one.uses == 0 || --one.uses > 0 || one.is_reduced) continue;
    one.is_reduced = true;
    waiting_.push_back(parameter);
    waiting_bytes_ += layout_->waiting_bytes(parameter);
  }
  std::inplace_merge(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(before), waiting_.end());
  if (waiting_.empty() || waiting_bytes_ < bucket_) return;
  clear(lingering_);
  for (const uint32_t parameter : waiting_) {
    states_[parameter].received = take(layout_->parameter(parameter).received_bytes);
  }
  (lingers_ ? lingering_ : sent_).swap(waiting_);
  waiting_.clear();
  waiting_bytes_ = 0;
}

uint64_t Gradients::end_pass() {
  if (states_.empty()) return 0;
  clear(sent_);
  clear(lingering_);
  uint64_t most = depth();
  for (uint32_t parameter = 0; parameter < states_.size(); ++parameter) {
    State& one = states_[parameter];
    const sdk::Parameter& row = layout_->parameter(parameter);
    if (row.frozen || (one.is_reduced && !one.is_there)) continue;
    if (!std::exchange(one.is_there, true)) one.gradient = take(row.gradient_bytes);
    one.received = take(row.received_bytes);
    most = std::max(most, depth());
    sent_.push_back(parameter);
    clear(sent_);
  }
  return most;
}

void Gradients::clear(std::vector<uint32_t>& sent) {
  for (const uint32_t parameter : sent) {
    State& one = states_[parameter];
    const sdk::Parameter& row = layout_->parameter(parameter);
    if (one.is_there) give_back(one.gradient, row.gradient_bytes);
    give_back(one.received, row.received_bytes);
    one.is_there = false;
  }
  sent.clear();
}

uint64_t Gradients::take(uint64_t bytes) {
  if (bytes == 0) return 0;
  const auto gap =
      std::find_if(gaps_.begin(), gaps_.end(), [bytes](const auto& one) { return one.second - one.first >= bytes; });
  const auto [place, end] = *gap;
  const auto behind = gaps_.erase(gap);
  if (place + bytes < end) gaps_.emplace_hint(behind, place + bytes, end);
  return place;
}

void Gradients::give_back(uint64_t place, uint64_t bytes) {
  if (bytes == 0) return;
  auto behind = gaps_.lower_bound(place);
  uint64_t end = place + bytes;
  if (behind->first == end) {
    end = behind->second;
    behind = gaps_.erase(behind);
  }
  if (behind != gaps_.begin() && std::prev(behind)->second == place) {
    std::prev(behind)->second = end;
  } else {
    gaps_.emplace_hint(behind, place, end);
  }
}

uint64_t Gradients::depth() const {
  return gaps_.rbegin()->first;
}

uint64_t most_depth(const Layout& layout, uint64_t bucket, bool lingers, const Trace& trace) {
  if (!trace.with_gradient) return 0;
  Gradients gradients(layout, bucket, lingers);
  uint64_t most = 0;
  for (const Call call : trace.calls) {
    if (leaves(call)) {
      gradients.leave(call);
    } else {
      gradients.enter(call);
    }
    most = std::max(most, gradients.depth());
  }
  return std::max(most, gradients.end_pass());
}

}  // namespace pliant::coordinator::planned
