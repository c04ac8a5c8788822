// Traces: the orders in which modules were visited, one a pass, and which pass follows which.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "pliant/sdk/coordinator.hpp"

namespace pliant::coordinator::planned {

namespace sdk = pliant::sdk;

/// A call of enter or leave, as a number.
using Call = uint32_t;
constexpr uint32_t kMostModules = 1U << 29U;

inline Call call_of(const sdk::Visit& visit, bool leaves) {
  return visit.module << 3U | (visit.backward ? 4U : 0U) | (visit.recompute ? 2U : 0U) | (leaves ? 1U : 0U);
}
inline bool leaves(Call call) {
  return (call & 1U) != 0;
}
inline bool is_backward(Call call) {
  return (call & 4U) != 0;
}
inline bool recomputes(Call call) {
  return (call & 2U) != 0;
}
inline uint32_t module_of(Call call) {
  return call >> 3U;
}

/// A digest of all calls so far, one after the other.
class RollingDigest {
 public:
  explicit RollingDigest(bool with_gradient = true)
      : value_(with_gradient ? 0x9e3779b97f4a7c15U : 0x6a09e667f3bcc909U) {}
  void add(Call call) {
    value_ = (value_ ^ call) * 0xbf58476d1ce4e5b9U;
    value_ ^= value_ >> 29U;
  }
  [[nodiscard]] uint64_t value() const { return value_; }

 private:
  uint64_t value_;
};

struct Trace {
  bool with_gradient = true;
  std::vector<Call> calls;
  std::vector<uint64_t> digests;  ///< [i]: of calls 0..i
};

/// 0 names no trace.
using TraceId = uint32_t;
constexpr TraceId kNoTrace = 0;

/// Those that were seen last, of passes with gradients and of others apart: up to a number and to a sum of calls each.
class TraceSet {
 public:
  explicit TraceSet(size_t most = 16) : most_(most) {}

  /// Its number, an old one where it is known. It counts as used. Numbers are never given twice. kNoTrace for one that
  /// is too long to be kept.
  TraceId add(Trace trace);
  void touch(TraceId id);
  /// nullptr where it was forgotten.
  [[nodiscard]] std::shared_ptr<const Trace> find(TraceId id) const;
  [[nodiscard]] bool knows(TraceId id) const { return find(id) != nullptr; }
  /// The trace used last that begins with so many calls of this digest and has more of them; kNoTrace where there is
  /// none.
  [[nodiscard]] TraceId with_prefix(bool with_gradient, size_t calls, uint64_t digest) const;
  /// The trace used last.
  [[nodiscard]] TraceId newest(bool with_gradient) const;
  void clear();
  void save(sdk::Writer& out) const;
  /// Throws Failure(PLIANT_DATA_LOSS) for what a model with so many modules cannot have.
  void load(sdk::Reader& in, size_t modules);

 private:
  struct Known {
    TraceId id;
    std::shared_ptr<const Trace> trace;
  };
  /// As many as there may be.
  void keep_within(bool with_gradient);

  size_t most_;
  TraceId last_id_ = kNoTrace;
  std::vector<Known> known_;  ///< used last at the end
};

/// What followed which passes. An entry is a trace, or the end of a step; equal ones behind each other are one run, and
/// what came after a run of some length is known by that length. So a step of many equal passes ends where it did.
class Succession {
 public:
  static constexpr TraceId kStepEnd = UINT32_MAX;

  /// `next` is what came. Of what is known, what names a trace that `traces` has forgotten goes when there is too much.
  void learn(TraceId next, const TraceSet& traces);
  /// What came last after the longest known end of what has come, and then `further`; else after its newest entry,
  /// however often that had come; kNoTrace where that is new.
  [[nodiscard]] TraceId next(TraceId further = kNoTrace) const;
  void clear();
  void save(sdk::Writer& out) const;
  void load(sdk::Reader& in);

 private:
  static constexpr size_t kRuns = 4;
  /// Runs of this length and of more are alike.
  static constexpr uint32_t kLongestRun = 64;
  struct Run {
    TraceId id = kNoTrace;
    uint32_t length = 0;  ///< 0: of any
    friend bool operator<(const Run& a, const Run& b) { return std::pair(a.id, a.length) < std::pair(b.id, b.length); }
  };
  using Past = std::array<Run, kRuns>;  ///< the newest first, kNoTrace where it is not looked at
  static void add(Past& past, TraceId id);

  Past past_{};
  std::map<Past, TraceId> next_;
};

}  // namespace pliant::coordinator::planned
