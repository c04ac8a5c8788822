// Draws three panels below each other: lengths, fill of the packs, learning rate; of one sampler, or of several over
// each other.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "output.hpp"
#include "pack/views.hpp"
#include "plot.hpp"
#include "svg.hpp"

namespace pliant::cli {

namespace {

constexpr double kWidth = 720;
constexpr double kLeft = 92;
constexpr double kRight = 28;
constexpr double kFirstPanel = 44;
constexpr double kPanel = 214;  // with its labels
constexpr double kPlot = 140;   // the part with the data
constexpr double kLegendLine = 18;
constexpr size_t kMostSteps = 160;  // that are drawn as steps; more become a line

using Studies = std::vector<const PackStudy*>;

PlotArea area_of(int number, double legend) {
  return {kLeft, kWidth - kRight, kFirstPanel + legend + number * kPanel + 18, kPlot};
}

int64_t most_of(const std::vector<int64_t>& counts) {
  return counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end());
}

std::string whole_label(double value) {
  return grouped(std::llround(value));
}

std::string lengths_panel(const PackStudy& study, double legend) {
  const auto step = static_cast<double>(study.length_step);
  const double end = static_cast<double>(study.length_counts.size()) * step + 0.5;
  PlotPanel panel(area_of(0, legend), fmt::format("Lengths of {} sequences", grouped(study.sequences)),
                  {0, end, "tokens of a sequence", true, whole_label},
                  count_axis(most_of(study.length_counts), "sequences"));
  panel.bars(study.length_counts, 0.5, step, kFigureColors[0]);
  return panel.draw();
}

std::string fill_panel(const Studies& studies, double legend) {
  int64_t most = 0;
  for (const PackStudy* one : studies) most = std::max(most, most_of(one->fill_counts));
  const std::string title = studies.size() > 1 ? std::string("Fill of the packs")
                                               : fmt::format("Fill of {} packs", grouped(studies.front()->packs()));
  PlotPanel panel(area_of(1, legend), title, {0, 100, "fill of a pack, %", true, whole_label},
                  count_axis(most, "packs"));
  for (size_t i = 0; i < studies.size(); ++i) {
    const std::vector<int64_t>& counts = studies[i]->fill_counts;
    const double width = 100 / static_cast<double>(std::max<size_t>(1, counts.size()));
    if (studies.size() == 1) {
      panel.bars(counts, 0, width, kFigureColors[1]);
    } else {
      panel.outline(counts, 0, width, curve_style(i, studies.size()));
    }
  }
  return panel.draw();
}

bool has_rates(const PackStudy& study) {
  return study.learning_rate && (!study.learning_rate->points.empty() || study.learning_rate->short_last);
}

/// The rates of whole batches set the scale; that of a short last one may lie outside of it.
PlotAxis rates_axis(const Studies& studies) {
  double least = std::numeric_limits<double>::infinity();
  double most = -std::numeric_limits<double>::infinity();
  for (const PackStudy* one : studies) {
    const RateCurve& curve = *one->learning_rate;
    for (const auto& [step, rate] : curve.points) {
      least = std::min(least, rate);
      most = std::max(most, rate);
    }
    if (curve.points.empty()) {  // there is but the short one
      least = std::min(least, curve.short_last->second);
      most = std::max(most, curve.short_last->second);
    }
  }
  return value_axis(least, most, "learning rate");
}

void draw_short_last(PlotPanel& panel, const PlotAxis& rates, const PackStudy& study, const char* color) {
  const auto& [step, rate] = *study.learning_rate->short_last;
  const bool below = rate < rates.from;
  panel.mark(below ? PlotMark::kOpenDown : PlotMark::kOpenUp, step, rate, color);
}

std::string rates_panel(int number, const Studies& studies, double legend) {
  const PlotAxis rates = rates_axis(studies);
  double first = std::numeric_limits<double>::infinity();
  double end = 0;
  for (const PackStudy* one : studies) {
    first = std::min(first, static_cast<double>(one->learning_rate->first_step));
    end = std::max(end, static_cast<double>(one->learning_rate->first_step + one->summary.batches));
  }
  const std::string name = first > 0 ? fmt::format("step, from {}", whole_label(first)) : "step";
  const std::string title = fmt::format("Learning rate, by {}", studies.front()->learning_rate_rule);
  PlotPanel panel(area_of(number, legend), title, {first, end, name, true, whole_label}, rates);
  std::string remarks;
  for (size_t i = 0; i < studies.size(); ++i) {
    const PackStudy& study = *studies[i];
    const RateCurve& curve = *study.learning_rate;
    LineStyle style = studies.size() > 1 ? curve_style(i, studies.size()) : LineStyle{kFigureColors[2], 1.4};
    const bool every_step =
        static_cast<int64_t>(curve.points.size()) + (curve.short_last ? 1 : 0) == study.summary.batches;
    if (every_step && curve.points.size() <= kMostSteps) {
      panel.steps(curve.points, curve.points.empty() ? end : curve.points.back().first + 1, style);
    } else {
      panel.line(curve.points, style);
    }
    if (!curve.short_last) continue;
    draw_short_last(panel, rates, study, style.color);
    const int64_t packs = study.packs() - (study.summary.batches - 1) * study.global_batch;
    remarks = studies.size() > 1 ? std::string("triangles: short last batches")
                                 : fmt::format("triangle: last batch ({} of {} packs), {:.3g}", grouped(packs),
                                               grouped(study.global_batch), curve.short_last->second);
  }
  if (!remarks.empty()) panel.remark(remarks);
  return panel.draw();
}

std::string figure_of(const Studies& studies, const std::string& title, const std::string& legend_lines,
                      double legend) {
  std::string body = legend_lines + lengths_panel(*studies.front(), legend) + fill_panel(studies, legend);
  Studies rated;
  for (const PackStudy* one : studies) {
    if (has_rates(*one)) rated.push_back(one);
  }
  const bool all_rated = rated.size() == studies.size();
  if (all_rated) body += rates_panel(2, rated, legend);
  return svg_document(kWidth, kFirstPanel + legend + (all_rated ? 3 : 2) * kPanel, kLeft, title, body);
}

}  // namespace

std::string pack_figure(const PackStudy& study) {
  return figure_of({&study}, fmt::format("{}: {:.2f} % filled", study.sampler, 100 * study.packing.efficiency), "", 0);
}

std::string pack_compare_figure(const std::vector<PackCompared>& samplers) {
  Studies studies;
  std::string legend;
  double height = 0;
  const auto count = static_cast<size_t>(
      std::count_if(samplers.begin(), samplers.end(), [](const PackCompared& one) { return one.study.has_value(); }));
  for (const PackCompared& one : samplers) {
    if (!one.study) continue;
    std::string remark =
        fmt::format("{}, {:.2f} % filled", counted(one.study->packs(), "pack"), 100 * one.study->packing.efficiency);
    for (const PackStudy* before : studies) {
      if (before->fill_counts != one.study->fill_counts) continue;
      remark += fmt::format(", fill equal to {}", before->sampler);
      break;
    }
    legend += legend_line(kLeft, kFirstPanel + height, curve_style(studies.size(), count), one.sampler, remark);
    height += kLegendLine;
    studies.push_back(&*one.study);
  }
  return figure_of(studies, "Samplers compared", legend, height + 10);
}

}  // namespace pliant::cli
