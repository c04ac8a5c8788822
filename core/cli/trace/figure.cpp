// The timeline of one step of one rank: lanes over time, and below them the bytes of the arena.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "pliant/error.hpp"
#include "svg.hpp"
#include "trace/views.hpp"

namespace pliant::cli {

namespace {

constexpr double kTimelineWidth = 780;
constexpr double kTimelineHeight = 372;
constexpr double kLanesBegin = 84;
constexpr double kLanesEnd = kTimelineWidth - 24;
constexpr double kLegendY = 46;
constexpr double kFirstLane = 66;
constexpr double kLaneHeight = 26;
constexpr double kLaneStep = 36;
constexpr double kBytesTop = kFirstLane + 3 * kLaneStep + 8;
constexpr double kBytesBottom = kTimelineHeight - 48;
constexpr double kNarrow = 1;     ///< pixels: bars that are drawn as one with their neighbours
constexpr double kCharacter = 6;  ///< pixels, at most, of a label

constexpr const char* kForward = kFigureColors[0];
constexpr const char* kBackward = kFigureColors[5];
constexpr const char* kRecompute = kFigureColors[3];
constexpr const char* kOutside = "#bbb";
constexpr const char* kGatherAhead = kFigureColors[2];
constexpr const char* kGatherNow = kFigureColors[4];
constexpr const char* kReduces = "#777";
constexpr const char* kWaits = kFigureColors[1];

struct Bar {
  double began = 0;  ///< microseconds
  double ended = 0;
  const char* color = "";
  std::string label;
};

/// The calls of one step, and what they enqueued and waited for.
struct StepView {
  const sharded::TracedRank& rank;
  const sharded::ReportedStep& step;
  size_t begin = 0;  ///< of its calls
  size_t end = 0;
};

class TimeAxis {
 public:
  TimeAxis(double began, double ended) : began_(began), ended_(std::max(ended, began + 1)) {}
  [[nodiscard]] double x(double time) const {
    return kLanesBegin + (time - began_) / (ended_ - began_) * (kLanesEnd - kLanesBegin);
  }
  [[nodiscard]] std::string draw() const {
    const double span = (ended_ - began_) / 1000;
    const double step = round_step(span, 8);
    std::string svg = fmt::format("<line x1=\"{0}\" y1=\"{1}\" x2=\"{2}\" y2=\"{1}\" stroke=\"#444\"/>\n", kLanesBegin,
                                  kBytesBottom, kLanesEnd);
    for (int i = 0; i * step <= span * 1.0001; ++i) {
      const double at = x(began_ + i * step * 1000);
      svg += fmt::format(
          "<line x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2}\" stroke=\"#444\"/>"
          "<text x=\"{0:.1f}\" y=\"{3}\" text-anchor=\"middle\">{4:g}</text>\n",
          at, kBytesBottom, kBytesBottom + 5, kBytesBottom + 18, i * step);
    }
    return svg + fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">ms since the step began</text>\n",
                             (kLanesBegin + kLanesEnd) / 2, kTimelineHeight - 10);
  }

 private:
  double began_;
  double ended_;
};

const char* color_of(Direction direction) {
  switch (direction) {
    case Direction::kForward:
      return kForward;
    case Direction::kBackward:
      return kBackward;
    case Direction::kRecompute:
      return kRecompute;
  }
  return kOutside;
}

/// Between its calls the program computes: the module that it entered last.
std::vector<Bar> program_of(const StepView& view, const sharded::ModelTables& model) {
  std::vector<Bar> bars;
  std::vector<const sharded::TracedCall*> entered;
  for (size_t at = view.begin; at < view.end; ++at) {
    const sharded::TracedCall& call = view.rank.calls[at];
    if (call.kind == sharded::TracedCall::Kind::kEnter) entered.push_back(&call);
    if (call.kind == sharded::TracedCall::Kind::kLeave) {
      const auto left = std::find_if(entered.rbegin(), entered.rend(), [&call](const sharded::TracedCall* one) {
        return one->module == call.module && one->direction == call.direction;
      });
      if (left != entered.rend()) entered.erase(std::prev(left.base()));
    }
    if (at + 1 == view.end) break;
    const double until = view.rank.calls[at + 1].began;
    if (entered.empty()) {
      bars.push_back({call.ended, until, kOutside, ""});
    } else {
      bars.push_back(
          {call.ended, until, color_of(entered.back()->direction), model.modules()[*entered.back()->module].name});
    }
  }
  return bars;
}

std::vector<Bar> exchange_of(const StepView& view, const sharded::ModelTables& model) {
  std::vector<Bar> bars;
  for (const sharded::TracedTransfer& one : view.rank.transfers) {
    if (one.call < view.begin || one.call >= view.end) continue;
    const bool is_gather = one.kind == sharded::TracedTransfer::Kind::kGather;
    const char* const color = !is_gather ? kReduces : one.is_ahead ? kGatherAhead : kGatherNow;
    const std::string name = one.parameters.empty() ? std::string() : model.parameter(one.parameters.front()).name;
    bars.push_back({one.began, one.ended, color, name});
  }
  return bars;
}

std::vector<Bar> waits_of(const StepView& view, const sharded::ModelTables& model) {
  std::vector<Bar> bars;
  for (const sharded::TracedWait& one : view.rank.waits) {
    if (one.call < view.begin || one.call >= view.end) continue;
    bars.push_back({one.began, one.ended, kWaits, model.parameter(one.parameter).name});
  }
  return bars;
}

/// Of a label on a bar.
const char* text_color_on(const char* color) {
  return color == kBackward || color == kGatherNow || color == kOutside ? "#000" : "#fff";
}

/// The whole name, or what it ends with from a dot on, but for a number alone, or nothing: of "net.layer.1" at the
/// least "layer.1".
std::string label_that_fits(const std::string& name, double pixels) {
  const auto fits = [pixels](const std::string& text) {
    return kCharacter * static_cast<double>(text.size()) + 4 <= pixels;
  };
  if (fits(name)) return name;
  for (size_t dot = name.rfind('.'); dot != std::string::npos; dot = dot == 0 ? dot - 1 : name.rfind('.', dot - 1)) {
    const std::string end = name.substr(dot + 1);
    const bool is_number = end.substr(0, end.find('.')).find_first_not_of("0123456789") == std::string::npos;
    if (!is_number) return fits(end) ? end : std::string();
  }
  return {};
}

std::string draw_lane(int number, const char* name, const std::vector<Bar>& bars, const TimeAxis& axis) {
  const double top = kFirstLane + number * kLaneStep;
  std::string svg = fmt::format(
      "<text x=\"{0}\" y=\"{1}\" text-anchor=\"end\">{2}</text>"
      "<rect x=\"{3}\" y=\"{4}\" width=\"{5}\" height=\"{6}\" fill=\"#f4f4f4\"/>\n",
      kLanesBegin - 10, top + kLaneHeight / 2 + 4, name, kLanesBegin, top, kLanesEnd - kLanesBegin, kLaneHeight);
  for (size_t i = 0; i < bars.size();) {
    const double begin = axis.x(bars[i].began);
    double end = axis.x(bars[i].ended);
    size_t next = i + 1;
    while (next < bars.size() && end - begin < kNarrow && bars[next].color == bars[i].color &&
           axis.x(bars[next].began) - end < kNarrow / 2) {
      end = std::max(end, axis.x(bars[next++].ended));
    }
    const size_t drawn = std::exchange(i, next);
    if (end - begin < 0.01) continue;
    svg += fmt::format("<rect x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\"/>", begin, top,
                       std::max(end - begin, 0.3), kLaneHeight, bars[drawn].color);
    const std::string label = next == drawn + 1 ? label_that_fits(bars[drawn].label, end - begin) : std::string();
    if (!label.empty()) {
      svg += fmt::format("<text x=\"{:.2f}\" y=\"{}\" font-size=\"10\" fill=\"{}\" text-anchor=\"middle\">{}</text>",
                         (begin + end) / 2, top + kLaneHeight / 2 + 3.5, text_color_on(bars[drawn].color),
                         svg_escaped(label));
    }
    svg += "\n";
  }
  return svg;
}

/// The bytes after each call, and the most of them before its end, as steps; of the calls that share a pixel the least,
/// the most and the last.
std::string bytes_path(const StepView& view, const TimeAxis& axis, double most) {
  const auto y = [most](double bytes) { return kBytesBottom - bytes / most * (kBytesBottom - kBytesTop); };
  double last = view.begin > 0 ? static_cast<double>(view.rank.calls[view.begin - 1].live_bytes) : 0;
  std::string path = fmt::format("M{:.1f} {:.1f}", axis.x(view.rank.calls[view.begin].began), y(last));
  for (size_t at = view.begin; at < view.end;) {
    const double column = std::round(axis.x(view.rank.calls[at].ended) * 2) / 2;
    double low = last;
    double high = last;
    for (; at < view.end && std::round(axis.x(view.rank.calls[at].ended) * 2) / 2 == column; ++at) {
      last = static_cast<double>(view.rank.calls[at].live_bytes);
      low = std::min(low, last);
      high = std::max({high, last, static_cast<double>(view.rank.calls[at].most_bytes)});
    }
    path += fmt::format("H{:.1f}V{:.1f}V{:.1f}V{:.1f}", column, y(high), y(low), y(last));
  }
  return path + fmt::format("H{}", kLanesEnd);
}

std::string draw_bytes(const StepView& view, uint64_t budget, const TimeAxis& axis) {
  constexpr double kMebibyte = 1 << 20;
  const auto limit = static_cast<double>(budget);
  const double most = 1.18 * std::max({limit, static_cast<double>(view.step.peak), 1.0});
  const auto y = [most](double bytes) { return kBytesBottom - bytes / most * (kBytesBottom - kBytesTop); };
  std::string svg;
  const double step = round_step(most / kMebibyte, 5);
  for (int i = 0; i * step * kMebibyte <= most; ++i) {
    svg += fmt::format(
        "<line x1=\"{0}\" y1=\"{1:.1f}\" x2=\"{2}\" y2=\"{1:.1f}\" stroke=\"#ddd\"/>"
        "<text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5:g}</text>\n",
        kLanesBegin, y(i * step * kMebibyte), kLanesEnd, kLanesBegin - 8, y(i * step * kMebibyte) + 4, i * step);
  }
  svg += fmt::format(
      "<text transform=\"translate(18 {:.1f}) rotate(-90)\" text-anchor=\"middle\">gathered, MiB</text>\n"
      "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.4\"/>\n",
      (kBytesTop + kBytesBottom) / 2, bytes_path(view, axis, most), kForward);
  if (budget == 0) return svg;
  return svg + fmt::format(
                   "<line x1=\"{0}\" y1=\"{1:.1f}\" x2=\"{2}\" y2=\"{1:.1f}\" stroke=\"{3}\" stroke-dasharray=\"5 3\"/>"
                   "<text x=\"{4}\" y=\"{5:.1f}\" text-anchor=\"end\" fill=\"{3}\">budget</text>\n",
                   kLanesBegin, y(limit), kLanesEnd, kWaits, kLanesEnd - 4, y(limit) - 5);
}

std::string draw_colors(bool recomputes) {
  std::vector<std::pair<const char*, const char*>> colors{{kForward, "forward"},
                                                          {kBackward, "backward"},
                                                          {kOutside, "outside of modules"},
                                                          {kGatherAhead, "prefetch"},
                                                          {kGatherNow, "gather on demand"},
                                                          {kReduces, "gradients"},
                                                          {kWaits, "wait"}};
  if (recomputes) colors.insert(colors.begin() + 2, {kRecompute, "recompute"});
  constexpr double kItem = 28;           // beside the word: its box and the gap behind it
  constexpr double kLegendLetter = 6.8;  // of the widest of the fonts
  double width = 0;
  for (const auto& [color, word] : colors) width += kItem + kLegendLetter * static_cast<double>(std::strlen(word));
  std::string svg;
  double x = std::min(kLanesBegin, kTimelineWidth - width);
  for (const auto& [color, word] : colors) {
    svg += fmt::format(
        "<rect x=\"{0:.0f}\" y=\"{1}\" width=\"10\" height=\"10\" fill=\"{2}\"/>"
        "<text x=\"{3:.0f}\" y=\"{4}\" font-size=\"11\">{5}</text>\n",
        x, kLegendY - 9, color, x + 14, kLegendY, word);
    x += kItem + kLegendLetter * static_cast<double>(std::strlen(word));
  }
  return svg;
}

/// What was recorded whole first, then the latest generation, then the latest step.
const sharded::ReportedStep& step_of(const TraceStudy& study, const TraceChoice& choice) {
  int64_t rank = choice.rank.value_or(0);
  const auto is_of = [&study](int64_t number) {
    return [&study, number](const sharded::ReportedStep& one) {
      return study.rank_of(one.of).rank == number && one.passes > 0;
    };
  };
  const auto& steps = study.report.steps;
  if (!choice.rank && std::none_of(steps.begin(), steps.end(), is_of(rank)) && !steps.empty()) {
    rank = study.rank_of(steps.front().of).rank;
  }
  const sharded::ReportedStep* best = nullptr;
  const auto merit = [&study](const sharded::ReportedStep& one) {
    return std::pair(one.is_whole, std::pair(study.rank_of(one.of).generation, one.step));
  };
  for (const sharded::ReportedStep& one : steps) {
    if (!is_of(rank)(one) || (!one.is_whole && !choice.step)) continue;
    if (best == nullptr || merit(*best) < merit(one)) best = &one;
  }
  if (best != nullptr) return *best;
  throw Error(Status::kNotFound,
              choice.step ? fmt::format("--plot: step {} of rank {} has no pass with gradients", *choice.step, rank)
                          : fmt::format("--plot: no step of rank {} was recorded completely; choose "
                                        "another with --step",
                                        rank),
              Origin::kInput);
}

}  // namespace

std::string trace_figure(const TraceStudy& study, const TraceChoice& choice) {
  const sharded::ReportedStep& step = step_of(study, choice);
  const sharded::TracedRank& rank = study.rank_of(step.of);
  StepView view{rank, step, 0, 0};
  while (rank.calls[view.begin].step != step.step) ++view.begin;
  for (view.end = view.begin; view.end < rank.calls.size() && rank.calls[view.end].step == step.step;) ++view.end;
  const sharded::ModelTables& model = *study.trace.model;
  const std::vector<Bar> exchange = exchange_of(view, model);
  double ended = step.ended;
  for (const Bar& one : exchange) ended = std::max(ended, one.ended);
  const TimeAxis axis(step.began, ended);
  const bool recomputes = std::any_of(rank.calls.begin(), rank.calls.end(), [](const sharded::TracedCall& one) {
    return one.direction == Direction::kRecompute;
  });
  const std::string body = draw_colors(recomputes) + draw_lane(0, "program", program_of(view, model), axis) +
                           draw_lane(1, "exchange", exchange, axis) +
                           draw_lane(2, "waits", waits_of(view, model), axis) +
                           draw_bytes(view, study.trace.budget, axis) + axis.draw();
  const std::string title =
      fmt::format("{}: step {}, rank {} of {}", study.trace.coordinator, step.step, rank.rank, rank.world_size);
  return svg_document(kTimelineWidth, kTimelineHeight, kLanesBegin, title, body);
}

}  // namespace pliant::cli
