#include "traces.hpp"

#include <algorithm>

namespace pliant::coordinator::planned {
namespace {

/// Calls of all traces of a kind together, 12 bytes each.
constexpr size_t kMostCalls = size_t{1} << 21U;
constexpr size_t kMostPasts = 4096;

}  // namespace

TraceId TraceSet::add(Trace trace) {
  if (trace.calls.size() > kMostCalls) return kNoTrace;
  const auto same = std::find_if(known_.begin(), known_.end(), [&](const auto& one) {
    return one.trace->with_gradient == trace.with_gradient && one.trace->calls == trace.calls;
  });
  if (same != known_.end()) {
    const TraceId id = same->id;
    touch(id);
    return id;
  }
  const bool with_gradient = trace.with_gradient;
  known_.push_back({++last_id_, std::make_shared<const Trace>(std::move(trace))});
  keep_within(with_gradient);
  return last_id_;
}

void TraceSet::keep_within(bool with_gradient) {
  size_t traces = 0;
  size_t calls = 0;
  for (const Known& one : known_) {
    if (one.trace->with_gradient != with_gradient) continue;
    ++traces;
    calls += one.trace->calls.size();
  }
  for (auto one = known_.begin(); traces > most_ || calls > kMostCalls;) {
    if (one->trace->with_gradient != with_gradient) {
      ++one;
      continue;
    }
    --traces;
    calls -= one->trace->calls.size();
    one = known_.erase(one);
  }
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
    if (!is_right) throw sdk::Failure(PLIANT_DATA_LOSS, "the saved state belongs to another model or is damaged");
  };
  last_id_ = in.value<TraceId>();
  const auto count = in.value<uint64_t>();
  refuse(count <= 2 * kMostCalls);
  size_t all = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const auto id = in.value<TraceId>();
    Trace trace;
    trace.with_gradient = in.value<uint8_t>() != 0;
    const auto calls = in.value<uint64_t>();
    all += static_cast<size_t>(std::min<uint64_t>(calls, 2 * kMostCalls));
    refuse(calls <= kMostCalls && all <= 2 * kMostCalls && id != kNoTrace && id <= last_id_);
    trace.calls.resize(static_cast<size_t>(calls));
    in.bytes(trace.calls.data(), trace.calls.size() * sizeof(Call));
    RollingDigest digest(trace.with_gradient);
    for (const Call call : trace.calls) {
      refuse(module_of(call) < modules);
      digest.add(call);
      trace.digests.push_back(digest.value());
    }
    known_.push_back({id, std::make_shared<const Trace>(std::move(trace))});
  }
  for (const bool with_gradient : {true, false}) keep_within(with_gradient);
}

void Succession::add(Past& past, TraceId id) {
  if (past.front().id == id) {
    past.front().length = std::min(past.front().length + 1, kLongestRun);
    return;
  }
  std::rotate(past.begin(), past.end() - 1, past.end());
  past.front() = {id, 1};
}

void Succession::learn(TraceId next, const TraceSet& traces) {
  if (next_.size() > kMostPasts) {
    const auto is_forgotten = [&](TraceId id) { return id != kNoTrace && id != kStepEnd && !traces.knows(id); };
    std::erase_if(next_, [&](const auto& entry) {
      return is_forgotten(entry.second) ||
             std::any_of(entry.first.begin(), entry.first.end(), [&](const Run& run) { return is_forgotten(run.id); });
    });
    if (next_.size() > kMostPasts / 2) next_.clear();
  }
  Past past = past_;
  for (size_t looked_at = kRuns; looked_at > 0; --looked_at) {
    next_[past] = next;
    if (looked_at > 1) past[looked_at - 1] = Run();
  }
  past.front().length = 0;
  next_[past] = next;
  add(past_, next);
}

TraceId Succession::next(TraceId further) const {
  Past past = past_;
  if (further != kNoTrace) add(past, further);
  for (size_t looked_at = kRuns; looked_at > 0; --looked_at) {
    const auto found = next_.find(past);
    if (found != next_.end()) return found->second;
    if (looked_at > 1) past[looked_at - 1] = Run();
  }
  past.front().length = 0;
  const auto found = next_.find(past);
  return found == next_.end() ? kNoTrace : found->second;
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
