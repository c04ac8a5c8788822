// tinylm: trains a small language model on plain text as an elastic Pliant job. Start it with `pliant run`.
#include <cstdio>
#include <exception>
#include <pliant/error.hpp>
#include <pliant/log.hpp>
#include <pliant/session.hpp>
#include <vector>

#include "blas_threads.hpp"
#include "corpus.hpp"
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
  if (!batch.pieces.empty()) {
    throw pliant::Error(pliant::Status::kFailedPrecondition,
                        "tinylm trains on whole sequences, and this sampler cuts some; use one that does not cut, or "
                        "over_long = \"drop\"");
  }
  std::vector<Sequence> sequences;
  for (const int64_t id : batch.ids_of(rows)) sequences.push_back(corpus.sequence(static_cast<size_t>(id)));
  return sequences;
}

int64_t train_whole(pliant::Session& session, const Settings& settings, const Corpus& corpus) {
  Trainee trainee(settings, session.seed());
  std::printf("tinylm: %zu weights\n", trainee.model().parameters().size());
  session.start(dataset_of(corpus), trainee);
  while (pliant::Step* const step = session.next()) {
    for (const pliant::MicroBatch& micro : step->micro_batches()) {
      const double loss_sum = trainee.model().loss_and_gradient(sequences_of(corpus, step->batch(), micro.rows));
      step->add(micro, loss_sum, trainee.model().gradient());
    }
    if (const auto committed = step->commit()) trainee.apply(committed->gradient(), step->scaling());
  }
  return trainee.steps();
}

/// One pass for each micro-batch of the step, or one for all of them.
void compute_in_shards(pliant::Step& step, const Settings& settings, const Corpus& corpus, ShardedTrainee& trainee) {
  const std::vector<pliant::MicroBatch>& micros = step.micro_batches();
  const size_t at_once = settings.order == Order::kLayer ? micros.size() : 1;
  for (size_t first = 0; first < micros.size(); first += at_once) {
    std::vector<pliant::RowRange> rows;
    std::vector<std::vector<Sequence>> sequences;
    for (size_t i = first; i < first + at_once; ++i) {
      rows.push_back(micros[i].rows);
      sequences.push_back(sequences_of(corpus, step.batch(), micros[i].rows));
    }
    trainee.shards().begin_pass(rows);
    const std::vector<double> loss_sums = trainee.model().losses_and_gradients(sequences);
    trainee.shards().end_pass();
    for (size_t i = 0; i < at_once; ++i) step.add(micros[first + i], loss_sums[i]);
  }
}

/// What is whole lies in memory of the rank's device, and the CPU computes with it there.
void require_reachable_shards(pliant::Session& session) {
  if (session.accelerator().properties(session.device()).host_visible) return;
  throw pliant::Error(pliant::Status::kFailedPrecondition,
                      "tinylm computes on the CPU, which does not reach the memory of [accelerator] use = \"" +
                          session.config().use("accelerator") +
                          "\": leave [coordinator] out to train with it replicated, or set accelerator.use = \"host\"; "
                          "samples/sharded_trainer trains in shards on every accelerator",
                      pliant::ExitCode::kUsage);
}

/// [coordinator] is there: weights, gradients and moments are cut over the workers.
int64_t train_shards(pliant::Session& session, const Settings& settings, const Corpus& corpus) {
  ShardedTrainee trainee(session, settings);
  std::printf("tinylm: %llu weights in shards\n", static_cast<unsigned long long>(trainee.model().weights()));
  if (!settings.first_weights.empty()) trainee.shards().import_safetensors(settings.first_weights);
  session.start(dataset_of(corpus), trainee.shards(), trainee);
  while (pliant::Step* const step = session.next()) {
    const bool computed = step->attempt([&] { compute_in_shards(*step, settings, corpus, trainee); });
    if (!computed || !step->commit()) continue;  // the group changed, or there is nothing new to export
    trainee.apply(step->scaling());
    const int64_t steps = step->index() + 1;
    if (settings.export_every == 0 || steps % settings.export_every != 0) continue;
    const std::string file = "tinylm-" + std::to_string(steps) + ".safetensors";
    if (!step->attempt([&] { trainee.shards().export_safetensors(file); })) {
      std::printf("tinylm: the group changed, %s was not written\n", file.c_str());
    }
  }
  return trainee.steps();
}

void train() {
  pliant::log_to_stderr();
  pliant::leave_stop_signals_to_agent();
  pliant::Session session = pliant::Session::attach();
  const Settings settings = read_settings(session.config());
  if (session.config().has("coordinator")) require_reachable_shards(session);
  if (!use_one_blas_thread()) {
    std::fprintf(stderr,
                 "tinylm: this BLAS is slow; `apt install libopenblas0-pthread` makes training ten times faster\n");
  }
  const Corpus corpus = open_corpus(
      {session.config().data().text, settings.shape.vocab, settings.shape.max_sequence, settings.long_sequences});
  std::printf("tinylm: %zu sequences, %zu tokens\n", corpus.size(), corpus.tokens.size());
  const int64_t steps = session.config().has("coordinator") ? train_shards(session, settings, corpus)
                                                            : train_whole(session, settings, corpus);
  std::printf("tinylm: done after step %lld\n", static_cast<long long>(steps));
}

}  // namespace

int main() {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // what is said last stands last in the log
  try {
    train();
    return 0;
  } catch (const pliant::Error& error) {
    std::fprintf(stderr, "%s%s\n", error.is_located() ? "" : "tinylm: error: ", error.what());
    return static_cast<int>(error.exit_code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tinylm: error: %s\n", error.what());
    return static_cast<int>(pliant::ExitCode::kFailed);
  }
}
