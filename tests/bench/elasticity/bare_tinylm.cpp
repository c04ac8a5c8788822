// bare_tinylm: what samples/tinylm trains with one worker, as a bare loop: no agent, ledger, digest or look for NaN.
//
//   bare_tinylm CONFIG [--set KEY=VALUE]... [--dump FOLDER]
//
// The same text, batches, micro-batches and order of additions as a job of one worker in fast mode, so that its losses
// have the same bits. Prints one object: `steps`; `losses`, the mean of each step; `tokens` and `seconds` from the end
// of the first step to the end of the last, as `pliant run` counts them. With --dump it does not train but writes what
// it would: job.json and weights.f32, for trainers that are written in something else.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "blas_threads.hpp"
#include "corpus.hpp"
#include "pliant/batches.hpp"
#include "pliant/exit_code.hpp"
#include "pliant/learning_rate.hpp"
#include "settings.hpp"
#include "trainee.hpp"

namespace {

using namespace tinylm;

pliant::Dataset dataset_of(const Corpus& corpus) {
  std::vector<int32_t> lengths;
  std::vector<int32_t> loss_tokens;
  for (size_t i = 0; i < corpus.size(); ++i) {
    lengths.push_back(static_cast<int32_t>(corpus.sequence(i).size()));
    loss_tokens.push_back(lengths.back() - 1);  // nothing predicts the first
  }
  return {std::move(lengths), std::move(loss_tokens), {}, corpus.digest};
}

std::vector<Sequence> sequences_of(const Corpus& corpus, const pliant::Batch& batch, pliant::RowRange rows) {
  std::vector<Sequence> sequences;
  for (int64_t row = rows.first; row < rows.first + rows.count; ++row) {
    for (const int64_t id : batch.row(row)) sequences.push_back(corpus.sequence(static_cast<size_t>(id)));
  }
  return sequences;
}

/// All that a step of the loop needs.
struct Training {
  Settings settings;
  pliant::Plan plan;
  Corpus corpus;
  pliant::Batches batches;
  pliant::LearningRate learning_rate;
  Trainee trainee;

  explicit Training(const pliant::Config& config)
      : settings(read_settings(config)),
        plan(pliant::Planner(config).plan(1)),
        corpus(open_corpus(
            {config.data().text, settings.shape.vocab, settings.shape.max_sequence, settings.long_sequences})),
        batches(config, plan, dataset_of(corpus)),
        learning_rate(config, batches.epoch(0).mean_batch()),
        trainee(settings, static_cast<uint64_t>(config.run().seed)) {
    use_one_blas_thread();
  }

  /// Mean loss of the batch, whose update is then done.
  double step(int64_t index, const pliant::Batch& batch) {
    double loss = 0;
    sum_.assign(trainee.model().parameters().size(), 0.0F);
    for (const pliant::RowRange rows : pliant::micro_batches({0, batch.size.rows}, plan.micro_batch)) {
      loss += trainee.model().loss_and_gradient(sequences_of(corpus, batch, rows));
      const std::span<const float> gradient = trainee.model().gradient();
      for (size_t i = 0; i < sum_.size(); ++i) sum_[i] += gradient[i];
    }
    const double tokens = batch.size.loss_tokens > 0 ? static_cast<double>(batch.size.loss_tokens) : 1.0;
    const auto scale = static_cast<float>(1.0 / tokens);
    for (float& value : sum_) value *= scale;
    trainee.apply(sum_, learning_rate.scaling(index, batch.size));
    return loss / tokens;
  }

 private:
  std::vector<float> sum_;
};

nlohmann::ordered_json train(Training& training) {
  std::vector<double> losses;
  int64_t tokens = 0;
  auto from = std::chrono::steady_clock::now();
  auto to = from;
  for (int64_t index = 0; const auto batch = training.batches.next(); ++index) {
    losses.push_back(training.step(index, *batch));
    to = std::chrono::steady_clock::now();
    if (index == 0) {
      from = to;
    } else {
      tokens += batch->size.tokens;
    }
  }
  return {{"steps", losses.size()},
          {"tokens", tokens},
          {"seconds", std::chrono::duration<double>(to - from).count()},
          {"losses", losses}};
}

nlohmann::ordered_json rows_of(const Corpus& corpus, const pliant::Batch& batch) {
  auto rows = nlohmann::ordered_json::array();
  for (int64_t row = 0; row < batch.size.rows; ++row) {
    auto& sequences = rows.emplace_back(nlohmann::ordered_json::array());
    for (const Sequence sequence : sequences_of(corpus, batch, {row, 1}))
      sequences.push_back(std::vector<int>(sequence.begin(), sequence.end()));
  }
  return rows;
}

void dump(Training& training, const std::filesystem::path& folder) {
  const Settings& of = training.settings;
  nlohmann::ordered_json job{{"vocab", of.shape.vocab},
                             {"dim", of.shape.dim},
                             {"layers", of.shape.layers},
                             {"heads", of.shape.heads},
                             {"max_sequence", of.shape.max_sequence},
                             {"beta1", of.adamw.beta1},
                             {"beta2", of.adamw.beta2},
                             {"epsilon", of.adamw.epsilon},
                             {"weight_decay", of.adamw.weight_decay},
                             {"clip_norm", of.adamw.clip_norm},
                             {"micro_batch", training.plan.micro_batch},
                             {"steps", nlohmann::ordered_json::array()}};
  for (int64_t index = 0; const auto batch = training.batches.next(); ++index) {
    const double warm = std::min(1.0, static_cast<double>(index + 1) / static_cast<double>(of.warmup_steps));
    job["steps"].push_back({{"tokens", batch->size.tokens},
                            {"loss_tokens", batch->size.loss_tokens},
                            {"learning_rate", warm * training.learning_rate.at(index, batch->size)},
                            {"rows", rows_of(training.corpus, *batch)}});
  }
  const std::span<const float> weights = training.trainee.model().parameters();
  std::ofstream out(folder / "weights.f32", std::ios::binary);
  out.write(reinterpret_cast<const char*>(weights.data()), static_cast<std::streamsize>(weights.size_bytes()));
  std::ofstream text(folder / "job.json");
  text << job;
  if (!out.flush() || !text.flush())
    throw pliant::Error(pliant::Status::kFailedPrecondition, folder.string() + ": cannot write");
}

int run(const std::vector<std::string>& words) {
  pliant::ConfigOverrides overrides;
  overrides.plugin_dirs = {PLIANT_PLUGIN_DIR};
  std::string file;
  std::string folder;
  for (size_t i = 0; i < words.size(); ++i) {
    const bool has_value = i + 1 < words.size();
    if (words[i] == "--set" && has_value) {
      overrides.sets.push_back(words[++i]);
    } else if (words[i] == "--dump" && has_value) {
      folder = words[++i];
    } else if (file.empty() && !words[i].starts_with("-")) {
      file = words[i];
    } else {
      file.clear();
      break;
    }
  }
  if (file.empty()) {
    std::fprintf(stderr, "usage: bare_tinylm CONFIG [--set KEY=VALUE]... [--dump FOLDER]\n");
    return static_cast<int>(pliant::ExitCode::kUsage);
  }
  Training training(pliant::Config::open(file, {"elasticity", "sampler", "lr"}, overrides));
  if (!folder.empty()) {
    dump(training, folder);
  } else {
    std::printf("%s\n", train(training).dump().c_str());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bare_tinylm: %s\n", error.what());
    return 1;
  }
}
