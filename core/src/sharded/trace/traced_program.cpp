#include "sharded/trace/traced_program.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace pliant::sharded {
namespace {

using CallKind = TracedCall::Kind;

bool begins_pass(const TracedCall& call) {
  return call.kind == CallKind::kBeginPass || call.kind == CallKind::kBeginEvaluation;
}

bool is_whole_step(std::span<const TracedCall> calls) {
  bool in_pass = false;
  bool has_pass = false;
  bool has_ended = false;  // since the last pass with gradients
  for (const TracedCall& call : calls) {
    if (begins_pass(call)) {
      if (in_pass) return false;  // the one before was given up
      in_pass = true;
      if (call.kind == CallKind::kBeginPass) has_ended = false;
      has_pass = has_pass || call.kind == CallKind::kBeginPass;
    }
    if (call.kind == CallKind::kEndPass) in_pass = false;
    if (call.kind == CallKind::kEndStep) has_ended = true;
  }
  return has_pass && has_ended && !in_pass;
}

/// A step cut before each pass with gradients and before its end.
struct StepParts {
  TracedStep before;
  std::vector<TracedStep> passes;
  TracedStep after;
};

StepParts parts_of(const TracedStep& step) {
  StepParts made;
  const auto passes = static_cast<size_t>(passes_of(step));
  bool is_over = false;
  for (const std::span<const TracedCall>& run : step) {
    size_t begin = 0;
    const auto close = [&](size_t end) {
      if (end == begin) return;
      TracedStep& part = is_over ? made.after : made.passes.empty() ? made.before : made.passes.back();
      part.push_back(run.subspan(begin, end - begin));
      begin = end;
    };
    for (size_t i = 0; i < run.size(); ++i) {
      const bool is_pass = run[i].kind == CallKind::kBeginPass;
      const bool is_end = run[i].kind == CallKind::kEndStep && made.passes.size() == passes && !is_over;
      if (is_pass || is_end) close(i);
      if (is_pass) made.passes.emplace_back();
      if (is_end) is_over = true;
    }
    close(run.size());
  }
  return made;
}

}  // namespace

std::vector<TracedStep> whole_steps(const TracedRank& rank) {
  std::vector<TracedStep> made;
  const std::span<const TracedCall> calls(rank.calls);
  for (size_t begin = 0; begin < calls.size();) {
    size_t end = begin + 1;
    while (end < calls.size() && calls[end].step == calls[begin].step) ++end;
    if (const auto of_step = calls.subspan(begin, end - begin); is_whole_step(of_step)) made.push_back({of_step});
    begin = end;
  }
  return made;
}

int64_t passes_of(const TracedStep& step) {
  int64_t count = 0;
  for (const std::span<const TracedCall>& run : step) {
    count +=
        std::count_if(run.begin(), run.end(), [](const TracedCall& call) { return call.kind == CallKind::kBeginPass; });
  }
  return count;
}

int64_t micro_batches_of(const TracedStep& step) {
  int64_t count = 0;
  for (const std::span<const TracedCall>& run : step) {
    for (const TracedCall& call : run) count += call.kind == CallKind::kBeginPass ? call.micro_batches : 0;
  }
  return count;
}

uint32_t most_micro_batches(const TracedStep& step) {
  uint32_t most = 1;
  for (const std::span<const TracedCall>& run : step) {
    for (const TracedCall& call : run) {
      if (call.kind == CallKind::kBeginPass) most = std::max(most, call.micro_batches);
    }
  }
  return most;
}

bool is_in_layer_order(const TracedStep& step) {
  return passes_of(step) == 1 && most_micro_batches(step) > 1;
}

TracedStep with_passes(const TracedStep& step, int64_t passes) {
  StepParts parts = parts_of(step);
  TracedStep made = std::move(parts.before);
  for (int64_t pass = 0; pass < passes && !parts.passes.empty(); ++pass) {
    const TracedStep& one = parts.passes[static_cast<size_t>(pass) % parts.passes.size()];
    made.insert(made.end(), one.begin(), one.end());
  }
  made.insert(made.end(), parts.after.begin(), parts.after.end());
  return made;
}

std::string word_of(const TracedCall& call) {
  switch (call.kind) {
    case CallKind::kBeginPass:
      return "begin_pass";
    case CallKind::kBeginEvaluation:
      return "begin_evaluation";
    case CallKind::kEnter:
      return "enter";
    case CallKind::kLeave:
      return "leave";
    case CallKind::kEndPass:
      return "end_pass";
    case CallKind::kEndStep:
      return "end_step";
    case CallKind::kByHand:
      return "by_hand";
  }
  return "";
}

}  // namespace pliant::sharded
