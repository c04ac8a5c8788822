#include "sharded/trace/trace_orders.hpp"

#include <limits>

namespace pliant::sharded {
namespace {

constexpr size_t kAllKnown = std::numeric_limits<size_t>::max();

}  // namespace

TraceOrders::TraceOrders(std::span<const TracedCall> calls) : left_at_(calls.size(), kAllKnown) {
  for (size_t at = 0; at < calls.size(); ++at) {
    const TracedCall& call = calls[at];
    if (call.kind == TracedCall::Kind::kBeginPass || call.kind == TracedCall::Kind::kBeginEvaluation) begin(call);
    if (call.kind == TracedCall::Kind::kEnter) enter(call, at);
    if (call.kind == TracedCall::Kind::kEndPass) end();
  }
}

std::optional<size_t> TraceOrders::left_at(size_t call) const {
  return left_at_[call] == kAllKnown ? std::nullopt : std::optional<size_t>(left_at_[call]);
}

void TraceOrders::begin(const TracedCall& call) {
  pass_.clear();
  digest_ = call.kind == TracedCall::Kind::kBeginPass ? 1 : 2;
  first_new_ = kAllKnown;
}

void TraceOrders::enter(const TracedCall& call, size_t at) {
  const uint64_t visit = uint64_t{*call.module} * 4 + static_cast<uint64_t>(call.direction) + 1;
  digest_ = (digest_ ^ visit) * 0x9E3779B97F4A7C15U;
  digest_ ^= digest_ >> 29U;
  if (pass_.empty()) firsts_.insert(at);
  pass_.push_back(digest_);
  if (first_new_ == kAllKnown && known_.count(digest_) == 0) first_new_ = at;
  left_at_[at] = first_new_;
}

void TraceOrders::end() {
  if (!pass_.empty() && first_new_ == kAllKnown) came_back_ = true;
  known_.insert(pass_.begin(), pass_.end());
  pass_.clear();
}

}  // namespace pliant::sharded
