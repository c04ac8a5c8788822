// tinylm: trains a small language model on plain text as an elastic Pliant job. Start it with `pliant run`.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <exception>
#include <pliant/exit_code.hpp>
#include <pliant/log.hpp>
#include <pliant/session.hpp>
#include <span>
#include <string>
#include <vector>

#include "blas_threads.hpp"
#include "corpus.hpp"
#include "settings.hpp"
#include "trainee.hpp"

namespace {

using namespace tinylm;

/// All sequences but the last `held_out`.
pliant::Dataset dataset_of(const Corpus& corpus, size_t held_out) {
  std::vector<int32_t> lengths;
  std::vector<int32_t> loss_tokens;
  for (size_t i = 0; i + held_out < corpus.size(); ++i) {
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

/// The mean loss over the sequences that are held out, of which each rank computes its part. Others may begin the next
/// step meanwhile and wait: that is no hang.
void evaluate(pliant::Session& session, const pliant::Step& step, const Model& model, const Corpus& corpus,
              size_t held_out) {
  const pliant::Busy busy = session.busy("evaluation", std::chrono::minutes(30));
  for (size_t i = corpus.size() - held_out; i < corpus.size(); ++i) {
    if (static_cast<int64_t>(i) % step.world_size() != step.rank()) continue;
    const std::array<Sequence, 1> alone{corpus.sequence(i)};  // so that its bits are those of any number of workers
    const auto loss_tokens = static_cast<double>(alone[0].size() - 1);
    session.evaluated("held_out_loss", model.loss(alone) / loss_tokens, loss_tokens);
  }
}

/// The training is good enough when the last evaluation says so.
void end_where_good(pliant::Session& session, const Settings& settings) {
  const auto& found = session.last_evaluation();
  if (found && found->values.at("held_out_loss") < settings.stop_below) {
    session.end_after_step("the loss of what is held out is below app.stop_below");
  }
}

int64_t train_whole(pliant::Session& session, const Settings& settings, const Corpus& corpus) {
  Trainee trainee(settings, session.seed());
  std::printf("tinylm: %zu weights\n", trainee.model().parameters().size());
  const auto held_out = static_cast<size_t>(settings.held_out);
  session.start(dataset_of(corpus, held_out), trainee);
  while (pliant::Step* const step = session.next()) {
    for (const pliant::RowRange rows : step->micro_batches()) {
      const double loss_sum = trainee.model().loss_and_gradient(sequences_of(corpus, step->batch(), rows));
      step->add(rows, loss_sum, trainee.model().gradient());
    }
    const auto committed = step->commit();
    if (!committed) continue;
    trainee.apply(committed->gradient(), step->scaling());
    const bool is_due = settings.evaluate_every > 0 && (step->index() + 1) % settings.evaluate_every == 0;
    if (is_due) evaluate(session, *step, trainee.model(), corpus, held_out);
    end_where_good(session, settings);
  }
  return trainee.steps();
}

/// One pass for each micro-batch of the step, or one for all of them.
void compute_in_shards(pliant::Step& step, const Settings& settings, const Corpus& corpus, ShardedTrainee& trainee) {
  const std::span<const pliant::RowRange> all = step.micro_batches();
  const size_t at_once = settings.order == Order::kLayer ? all.size() : 1;
  for (size_t first = 0; first < all.size(); first += at_once) {
    const std::span<const pliant::RowRange> micro_batches = all.subspan(first, at_once);
    std::vector<std::vector<Sequence>> sequences;
    for (const pliant::RowRange rows : micro_batches) sequences.push_back(sequences_of(corpus, step.batch(), rows));
    trainee.shards().begin_pass(micro_batches);
    const std::vector<double> loss_sums = trainee.model().losses_and_gradients(sequences);
    trainee.shards().end_pass();
    for (size_t i = 0; i < at_once; ++i) step.add(micro_batches[i], loss_sums[i]);
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
                      pliant::Origin::kInput);
}

/// As evaluate, in passes without gradients, of which all ranks make as many. False where the group changed meanwhile:
/// this rank says nothing then.
bool evaluate_in_shards(pliant::Session& session, pliant::Step& step, ShardedTrainee& trainee, const Corpus& corpus,
                        size_t held_out) {
  constexpr size_t kAtOnce = 64;  // sequences of a rank in a pass, of which it keeps the activations of one block
  const pliant::Busy busy = session.busy("evaluation", std::chrono::minutes(30));
  const auto ranks = static_cast<size_t>(step.world_size());
  std::vector<Sequence> own;
  for (size_t i = static_cast<size_t>(step.rank()); i < held_out; i += ranks) {
    own.push_back(corpus.sequence(corpus.size() - held_out + i));
  }
  std::vector<double> loss_sums;
  const bool is_whole = step.attempt([&] {
    for (size_t first = 0; first * ranks < held_out; first += kAtOnce) {
      const size_t begin = std::min(first, own.size());
      trainee.shards().begin_evaluation();
      const auto of_pass = trainee.model().losses(std::span(own).subspan(begin, std::min(kAtOnce, own.size() - begin)));
      trainee.shards().end_pass();
      loss_sums.insert(loss_sums.end(), of_pass.begin(), of_pass.end());
    }
  });
  for (size_t i = 0; is_whole && i < own.size(); ++i) {
    const auto loss_tokens = static_cast<double>(own[i].size() - 1);
    session.evaluated("held_out_loss", loss_sums[i] / loss_tokens, loss_tokens);
  }
  return is_whole;
}

/// [coordinator] is there: weights, gradients and moments are cut over the workers.
int64_t train_shards(pliant::Session& session, const Settings& settings, const Corpus& corpus) {
  ShardedTrainee trainee(session, settings);
  std::printf("tinylm: %llu weights in shards\n", static_cast<unsigned long long>(trainee.model().weights()));
  if (!settings.first_weights.empty()) trainee.shards().import_safetensors(settings.first_weights);
  const auto held_out = static_cast<size_t>(settings.held_out);
  session.start(dataset_of(corpus, held_out), trainee.shards(), trainee);
  while (pliant::Step* const step = session.next()) {
    const bool computed = step->attempt([&] { compute_in_shards(*step, settings, corpus, trainee); });
    if (!computed || !step->commit()) continue;  // the group changed, or there is nothing new to export
    trainee.apply(step->scaling());
    const int64_t steps = step->index() + 1;
    const bool is_due = settings.evaluate_every > 0 && steps % settings.evaluate_every == 0;
    if (is_due && !evaluate_in_shards(session, *step, trainee, corpus, held_out)) {
      std::printf("tinylm: the group changed, step %lld was not evaluated\n", static_cast<long long>(steps));
      continue;
    }
    end_where_good(session, settings);
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
  if (static_cast<size_t>(settings.held_out) >= corpus.size()) {
    session.config().refuse_app(
        "held_out", "leaves nothing to train on: the text has " + std::to_string(corpus.size()) + " sequences");
  }
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
    return static_cast<int>(pliant::exit_code_of(error));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tinylm: error: %s\n", error.what());
    return static_cast<int>(pliant::ExitCode::kFailed);
  }
}
