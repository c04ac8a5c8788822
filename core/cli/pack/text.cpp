// Packing studies as tables for people.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "output.hpp"
#include "pack/views.hpp"

namespace pliant::cli {

namespace {

std::string percent(double part, int digits = 2) {
  return fmt::format("{:.{}f} %", 100 * part, digits);
}

std::string seconds_text(double seconds) {
  return seconds < 0.1 ? fmt::format("{:.2f} ms", 1000 * seconds) : fmt::format("{:.2f} s", seconds);
}

std::string unit_text(const std::string& unit) {
  std::string words = unit;
  std::replace(words.begin(), words.end(), '_', ' ');
  return words;
}

std::string packs_text(const PackStudy& study) {
  const Packing& packing = study.packing;
  std::string text = grouped(study.packs());
  if (packing.budget > 0) text += fmt::format(" of up to {} {}", grouped(packing.budget), unit_text(packing.unit));
  if (packing.least_rows == 0) return text;
  const double above = static_cast<double>(study.packs()) / static_cast<double>(packing.least_rows) - 1;
  return text + fmt::format("; no packing has fewer than {} ({} above)", grouped(packing.least_rows), percent(above));
}

std::string efficiency_text(const PackStudy& study) {
  const Packing& packing = study.packing;
  const std::string what = packing.unit == "loss_tokens" || packing.unit == "cost" ? unit_text(packing.unit) : "tokens";
  std::string text = fmt::format("{} of the space is {}", percent(packing.efficiency), what);
  if (packing.unit == "padded_tokens" && packing.used > 0) {
    text +=
        fmt::format("; {} with the padding",
                    percent(packing.used / (static_cast<double>(study.packs()) * static_cast<double>(packing.budget))));
  }
  const double alone = static_cast<double>(study.summary.tokens) /
                       (static_cast<double>(study.summary.sequences) * static_cast<double>(study.longest_sequence));
  return text + fmt::format(" ({} with a row for each sequence)", percent(alone));
}

std::string dropped_text(const PackStudy& study) {
  if (study.summary.dropped.empty()) return "none";
  std::string text;
  for (const auto& [reason, count] : study.summary.dropped) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", grouped(count), reason);
  }
  return text;
}

int64_t dropped_count(const PackStudy& study) {
  int64_t all = 0;
  for (const auto& [reason, count] : study.summary.dropped) all += count;
  return all;
}

std::string data_text(const PackStudy& study) {
  return fmt::format("{}: {}, {}, longest {}", study.source, counted(study.sequences, "sequence"),
                     counted(study.tokens, "token"), grouped(study.longest_sequence));
}

std::string rank_time_text(const PackStudy& study) {
  std::vector<std::vector<std::string>> rows{{"world size"}};
  for (const RankTime& one : study.rank_times) {
    auto& heads = rows.front();
    if (std::find(heads.begin(), heads.end(), one.balancer) == heads.end()) heads.push_back(one.balancer);
    const std::string size = std::to_string(one.world_size);
    auto row = std::find_if(rows.begin() + 1, rows.end(), [&](const auto& cells) { return cells.front() == size; });
    if (row == rows.end()) row = rows.insert(rows.end(), {size});
    row->push_back(fmt::format("{:.2f} / {:.2f} %", 100 * one.lost_per_step, 100 * one.lost_per_micro_batch));
  }
  std::string cost = fmt::format("{} * tokens", study.cost_per_token);
  if (study.cost_per_token == 0 && study.cost_per_square == 0) cost = "as given";
  if (study.cost_per_square > 0) cost += fmt::format(" + {} * tokens^2", study.cost_per_square);
  return fmt::format(
             "\nRank time lost to waiting, by balancer: if ranks wait once per step / at every micro-batch. Cost of a "
             "sequence: {};\nmean of {} of {}.\n",
             cost, grouped(study.batches_sampled), counted(study.summary.batches, "batch")) +
         table(rows, 0);
}

}  // namespace

std::string pack_text(const PackStudy& study) {
  const EpochSummary& summary = study.summary;
  std::vector<std::vector<std::string>> rows;
  const auto add = [&rows](const char* name, std::string value) { rows.push_back({name, std::move(value)}); };
  add("sampler", study.sampler);
  add("data", data_text(study));
  add("packs", packs_text(study));
  add("efficiency", efficiency_text(study));
  add("packed",
      fmt::format("{}, {}{}", counted(summary.sequences, "sequence"), counted(summary.tokens, "token"),
                  study.entries > summary.sequences ? fmt::format(", in {} pieces", grouped(study.entries)) : ""));
  add("dropped", dropped_text(study));
  if (summary.truncated > 0) {
    add("truncated",
        fmt::format("{}; {} cut off", counted(summary.truncated, "sequence"), counted(summary.tokens_cut, "token")));
  }
  if (study.planned || study.global_batch > 1) {
    const int64_t padding = summary.padding_rows;
    add("batches", fmt::format("{} of {} packs{}{}", grouped(summary.batches), grouped(study.global_batch),
                               padding > 0 ? fmt::format(", the last with {} empty", grouped(padding)) : "",
                               study.planned ? ", as [elasticity] plans" : ""));
  }
  add("wait", fmt::format("a sequence comes out at most {} places after its turn, {:.1f} on average",
                          grouped(study.waits.longest), study.waits.mean));
  if (study.learning_rate) {
    const RateCurve& curve = *study.learning_rate;
    add("learning rate", fmt::format("{:.6g} to {:.6g}, by {}", curve.least, curve.most, study.learning_rate_rule));
  }
  if (!study.learning_rate && !study.learning_rate_rule.empty()) {
    add("learning rate", fmt::format("by {}, from the gradients: known only in training", study.learning_rate_rule));
  }
  const double rate = study.seconds > 0 ? static_cast<double>(study.sequences) / study.seconds : 0;
  add("time", fmt::format("{} for epoch {}, every row checked: {} sequences per second", seconds_text(study.seconds),
                          study.epoch, grouped(std::llround(rate))));
  std::string text = table(rows);
  if (!study.rank_times.empty()) text += rank_time_text(study);
  return text;
}

std::string pack_compare_text(const std::vector<PackCompared>& samplers) {
  std::vector<std::vector<std::string>> rows{
      {"sampler", "packs", "above the bound", "efficiency", "dropped", "longest wait", "time", "sequences/s"}};
  std::string refusals;
  for (const PackCompared& one : samplers) {
    if (!one.study) {
      refusals += fmt::format("{}: {}\n", one.sampler, one.refusal);
      continue;
    }
    const PackStudy& study = *one.study;
    const double least = static_cast<double>(study.packing.least_rows);
    rows.push_back({one.sampler, grouped(study.packs()),
                    least > 0 ? percent(static_cast<double>(study.packs()) / least - 1) : "-",
                    percent(study.packing.efficiency), grouped(dropped_count(study)), grouped(study.waits.longest),
                    seconds_text(study.seconds),
                    grouped(std::llround(static_cast<double>(study.sequences) / std::max(study.seconds, 1e-9)))});
  }
  std::string text;
  for (const PackCompared& one : samplers) {
    if (!one.study) continue;
    text = data_text(*one.study) + "\n\n";
    break;
  }
  text += table(rows, 1);
  return refusals.empty() ? text : text + "\nNot packed:\n" + refusals;
}

}  // namespace pliant::cli
