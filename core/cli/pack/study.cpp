// Looking at the rows of an epoch, portion by portion.
#include "pack/study.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <utility>

#include "pack/rank_time.hpp"
#include "pliant/error.hpp"
#include "pliant/learning_rate.hpp"

namespace pliant::cli {

namespace {

constexpr size_t kBins = 64;
constexpr size_t kCurvePoints = 1024;

size_t bin_of(double part) {
  return std::min(kBins - 1, static_cast<size_t>(std::max(0.0, part) * static_cast<double>(kBins)));
}

/// Time by the clock and CPU time of the process since it was made.
class Stopwatch {
 public:
  void note(PackStudy& study) const {
    study.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
    study.cpu_seconds = static_cast<double>(std::clock() - cpu_began_) / CLOCKS_PER_SEC;
  }

 private:
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::clock_t cpu_began_ = std::clock();
};

/// One batch of an epoch after the other, in portions of whole batches.
class Look {
 public:
  Look(Batches& batches, PackStudy& study) : batches_(batches), study_(study) {
    study_.fill_counts.assign(kBins, 0);
    const Packing& packing = study_.packing;
    room_ = static_cast<double>(packing.budget > 0 ? packing.budget : study_.summary.longest_row);
    padded_ = packing.unit == "padded_tokens";
  }

  /// `first_step`: of the epoch.
  void run(const LearningRate* rates, int64_t first_step, ProgressLine& progress) {
    constexpr int64_t kPortion = 4096;
    const int64_t all = study_.summary.rows;
    const int64_t batch_rows = study_.global_batch;
    const int64_t portion = batch_rows * std::max<int64_t>(1, kPortion / batch_rows);
    int64_t step = 0;
    for (int64_t first = 0; first < all; first += portion) {
      progress.show("examining the packs", static_cast<double>(first) / static_cast<double>(all));
      const Batch rows = batches_.rows(study_.epoch, first, std::min(portion, all - first));
      for (int64_t row = 0; row < rows.size.rows; ++row) {
        see(rows, row);
        if ((row + 1) % batch_rows != 0 && row + 1 < rows.size.rows) continue;
        if (rates != nullptr) note_rate(*rates, first_step, step++);
        batch_ = BatchSize();
      }
    }
    if (study_.entries > 0) study_.waits.mean = waited_ / static_cast<double>(study_.entries);
  }

 private:
  void see(const Batch& rows, int64_t row) {
    const Dataset& dataset = batches_.dataset();
    const auto ids = rows.row(row);
    const auto pieces = rows.row_pieces(row);
    int64_t tokens = 0;
    int64_t longest = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto id = static_cast<size_t>(ids[i]);
      const int64_t length = dataset.lengths[id];
      const int64_t count = pieces.empty() ? length : pieces[i].count;
      const int64_t weight = dataset.loss_tokens.empty() ? length : dataset.loss_tokens[id];
      tokens += count;
      longest = std::max(longest, count);
      batch_.sequences += pieces.empty() || pieces[i].last ? 1 : 0;
      batch_.loss_tokens += count == length ? weight : weight * count / length;
      furthest_ = std::max(furthest_, ids[i]);
      study_.waits.longest = std::max(study_.waits.longest, furthest_ - ids[i]);
      waited_ += static_cast<double>(furthest_ - ids[i]);
    }
    const auto entries = static_cast<int64_t>(ids.size());
    batch_.rows += 1;
    batch_.padding_rows += ids.empty() ? 1 : 0;
    batch_.tokens += tokens;
    study_.entries += entries;
    if (ids.empty()) return;
    study_.longest_entry = std::max(study_.longest_entry, longest);
    const int64_t used = padded_ ? longest * entries : tokens;
    ++study_.fill_counts[bin_of(static_cast<double>(used) / room_)];
  }

  void note_rate(const LearningRate& rates, int64_t first_step, int64_t step) {
    const double rate = rates.at(first_step + step, batch_);
    RateCurve& curve = *study_.learning_rate;
    if (step == 0) curve.least = curve.most = rate;
    curve.least = std::min(curve.least, rate);
    curve.most = std::max(curve.most, rate);
    if (batch_.padding_rows > 0 || batch_.rows < study_.global_batch) {
      curve.short_last.emplace(static_cast<double>(first_step + step), rate);
      return;
    }
    const int64_t stride = 1 + study_.summary.batches / static_cast<int64_t>(kCurvePoints);
    if (step % stride == 0) curve.points.emplace_back(static_cast<double>(first_step + step), rate);
  }

  Batches& batches_;
  PackStudy& study_;
  double room_ = 1;
  bool padded_ = false;
  BatchSize batch_;  ///< of the batch in hand
  int64_t furthest_ = 0;
  double waited_ = 0;
};

void describe_dataset(const Dataset& dataset, PackStudy& study) {
  study.source = dataset.source;
  study.sequences = static_cast<int64_t>(dataset.lengths.size());
  for (const int32_t length : dataset.lengths) {
    study.tokens += length;
    study.longest_sequence = std::max<int64_t>(study.longest_sequence, length);
  }
  constexpr auto kMostBins = static_cast<int64_t>(kBins);
  study.length_step = (study.longest_sequence + kMostBins - 1) / kMostBins;
  study.length_counts.assign(static_cast<size_t>((study.longest_sequence - 1) / study.length_step + 1), 0);
  for (const int32_t length : dataset.lengths)
    ++study.length_counts[static_cast<size_t>((length - 1) / study.length_step)];
}

std::optional<LearningRate> rates_for(const Config& config, Batches& batches, const EpochSummary& epoch) {
  if (!config.has("lr")) return std::nullopt;
  LearningRate rates(config, epoch.mean_batch());
  if (rates.wants_job_length()) rates.set_job_length(batches.job_length());
  return rates;
}

}  // namespace

PackBatch batch_for(const Config& config, const PackQuestion& question) {
  PackBatch batch;
  if (!config.has("elasticity")) {
    batch.plan.global_batch = std::max<int64_t>(1, question.global_batch);
    return batch;
  }
  if (question.global_batch > 0) {
    throw Error(Status::kInvalidArgument,
                "--global-batch is for configs without [elasticity]; here the plan sets the rows of a batch",
                Origin::kInput);
  }
  batch.planner.emplace(config);
  batch.plan = batch.planner->plan();
  batch.planned = true;
  for (const int64_t size : question.world_sizes) {
    if (batch.plan.valid(size)) continue;
    throw Error(Status::kIncompatibleWorldSize, batch.plan.explain_invalid(size), Origin::kInput);
  }
  return batch;
}

std::vector<int64_t> sizes_for(const PackBatch& batch, const PackQuestion& question) {
  std::vector<int64_t> sizes = question.world_sizes;
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  if (!sizes.empty() || !batch.planned) return sizes;
  for (const int64_t about : {2, 8, 64, 512}) {
    const int64_t size = batch.plan.largest_valid(about);
    if (size > 1 && (sizes.empty() || size > sizes.back())) sizes.push_back(size);
  }
  return sizes;
}

PackStudy study_pack(const Config& config, const Dataset& dataset, const PackBatch& batch, const PackQuestion& question,
                     ProgressLine& progress, std::optional<Batches>* made) {
  PackStudy study;
  study.sampler = config.use("sampler");
  study.epoch = question.epoch;
  study.global_batch = batch.plan.global_batch;
  study.planned = batch.planned;
  describe_dataset(dataset, study);
  progress.show(fmt::format("packing {} sequences with {}", study.sequences, study.sampler), -1);
  Stopwatch watch;
  Batches batches(config, batch.plan, dataset);
  if (question.epoch != 0) {
    watch = Stopwatch();
    study.summary = batches.epoch(question.epoch);
  }
  watch.note(study);
  std::optional<LearningRate> rates = rates_for(config, batches, batches.epoch(0));
  if (rates) study.learning_rate_rule = config.use("lr");
  if (rates && rates->wants_gradient_norms()) rates.reset();  // nobody knows the gradients yet
  int64_t first_step = 0;
  for (int64_t epoch = 0; rates && epoch < question.epoch; ++epoch) first_step += batches.epoch(epoch).batches;
  study.summary = batches.epoch(question.epoch);
  study.packing = batches.packing(question.epoch);
  if (rates) study.learning_rate.emplace().first_step = first_step;
  Look(batches, study).run(rates ? &*rates : nullptr, first_step, progress);
  predict_rank_times(config, batch, sizes_for(batch, question), batches, study, progress);
  if (made != nullptr) made->emplace(std::move(batches));
  return study;
}

}  // namespace pliant::cli
