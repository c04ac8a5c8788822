#include "traces.hpp"

#include <algorithm>

namespace pliant::coordinator::planned {
namespace {

/// Calls of all traces together, 12 bytes each.
constexpr size_t kMostCalls = size_t{1} << 22U;
constexpr size_t kMostPasts = 1024;

}  // namespace

TraceId TraceSet::add(Trace trace) {
  const auto same = std::find_if(known_.begin(), known_.end(), [&](const auto& one) {
    return one.trace->with_gradient == trace.with_gradient && one.trace->calls == trace.calls;
  });
  if (same != known_.end()) {
    const TraceId id = same->id;
    touch(id);
    return id;
  }
  calls_ += trace.calls.size();
  known_.push_back({++last_id_, std::make_shared<const Trace>(std::move(trace))});
  while (known_.size() > 1 && (known_.size() > most_ || calls_ > kMostCalls)) forget_oldest();
  return last_id_;
}

void TraceSet::forget_oldest() {
  calls_ -= known_.front().trace->calls.size();
  known_.erase(known_.begin());
}

void TraceSet::touch(TraceId id) {
  const auto at = std::find_if(known_.begin(), known_.end(), [id](const auto& one) { return one.id == id; });
  if (at != known_.end()) std::rotate(at, at + 1, known_.end());
}

std::shared_ptr<const Trace> TraceSet::find(TraceId id) const {
  for (const auto& one : known_) {
    if (one.id == id) return one.trace;
  }
  return nullptr;
}

TraceId TraceSet::with_prefix(bool with_gradient, size_t calls, uint64_t digest) const {
  for (auto one = known_.rbegin(); one != known_.rend(); ++one) {
    const Trace& trace = *one->trace;
    if (trace.with_gradient != with_gradient || trace.calls.size() < calls) continue;
    if (calls == 0 || trace.digests[calls - 1] == digest) return one->id;
  }
  return kNoTrace;
}

TraceId TraceSet::newest(bool with_gradient) const {
  return with_prefix(with_gradient, 0, 0);
}

void TraceSet::clear() {
  known_.clear();
  calls_ = 0;
  last_id_ = kNoTrace;
}

void TraceSet::save(sdk::Writer& out) const {
  out.value(last_id_);
  out.value(static_cast<uint64_t>(known_.size()));
  for (const auto& one : known_) {
    out.value(one.id);
    out.value(static_cast<uint8_t>(one.trace->with_gradient));
    out.value(static_cast<uint64_t>(one.trace->calls.size()));
    out.bytes(one.trace->calls.data(), one.trace->calls.size() * sizeof(Call));
  }
}

void TraceSet::load(sdk::Reader& in, size_t modules) {
  clear();
  const auto refuse = [](bool is_right) {
    if (!is_right) throw sdk::Failure(PLIANT_DATA_LOSS, "what was kept is of another model, or damaged");
  };
  last_id_ = in.value<TraceId>();
  const auto count = in.value<uint64_t>();
  refuse(count <= kMostCalls);
  for (uint64_t i = 0; i < count; ++i) {
    const auto id = in.value<TraceId>();
    Trace trace;
    trace.with_gradient = in.value<uint8_t>() != 0;
    const auto calls = in.value<uint64_t>();
    refuse(calls <= kMostCalls - calls_ && id != kNoTrace && id <= last_id_);
    trace.calls.resize(static_cast<size_t>(calls));
    in.bytes(trace.calls.data(), trace.calls.size() * sizeof(Call));
    RollingDigest digest(trace.with_gradient);
    for (const Call call : trace.calls) {
      refuse(module_of(call) < modules);
      digest.add(call);
      trace.digests.push_back(digest.value());
    }
    calls_ += trace.calls.size();
    known_.push_back({id, std::make_shared<const Trace>(std::move(trace))});
  }
  while (known_.size() > most_) forget_oldest();
}

void Succession::learn(TraceId next) {
  if (next_.size() > kMostPasts) next_.clear();
  Past past = past_;
  for (size_t looked_at = kLongest; looked_at > 0; --looked_at) {
    next_[past] = next;
    past[looked_at - 1] = kNoTrace;
  }
  std::rotate(past_.begin(), past_.end() - 1, past_.end());
  past_.front() = next;
}

TraceId Succession::next(TraceId further) const {
  Past past = past_;
  if (further != kNoTrace) {
    std::rotate(past.begin(), past.end() - 1, past.end());
    past.front() = further;
  }
  for (size_t looked_at = kLongest; looked_at > 0; --looked_at) {
    const auto found = next_.find(past);
    if (found != next_.end()) return found->second;
    past[looked_at - 1] = kNoTrace;
  }
  return kNoTrace;
}

void Succession::clear() {
  past_ = {};
  next_.clear();
}

void Succession::save(sdk::Writer& out) const {
  out.value(past_);
  out.value(static_cast<uint64_t>(next_.size()));
  for (const auto& [past, next] : next_) {
    out.value(past);
    out.value(next);
  }
}

void Succession::load(sdk::Reader& in) {
  clear();
  past_ = in.value<Past>();
  const auto count = in.value<uint64_t>();
  for (uint64_t i = 0; i < count; ++i) {
    const auto past = in.value<Past>();
    next_[past] = in.value<TraceId>();
  }
}

}  // namespace pliant::coordinator::planned
