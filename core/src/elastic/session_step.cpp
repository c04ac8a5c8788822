// Session: one step, from its batch to the verdict on it.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "balance/costs.hpp"
#include "base/result.hpp"
#include "data/pieces.hpp"
#include "elastic/assignment_record.hpp"
#include "elastic/lr_inputs.hpp"
#include "elastic/session_state.hpp"
#include "elastic/snapshot.hpp"

namespace pliant {

void Session::State::prepare_step() {
  batch = batches->at_step(applied);
  share_out();
  added = 0;
  scaling = learning_rate->scaling(applied, batch.size);
  norms.reset();
  reduction->begin(batch.size.rows, facts.granule, assignment, form.rank);
}

void Session::State::share_out() {
  assignment =
      balancer->assign(row_costs(batch, batches->dataset(), rates), {.world_size = form.world_size,
                                                                     .micro_batch = form.micro_batch,
                                                                     .granule = facts.granule,
                                                                     .deterministic = config.run().deterministic});
  micros.clear();
  for (const RowRange rows : assignment.of(form.rank)) micros.push_back({rows});
}

void Session::State::settle() {
  if (!verdict) return;
  strike(elastic::InjectionPoint::kApply);
  const elastic::Commit commit = *std::exchange(verdict, std::nullopt);
  learning_rate->commit(applied, batch.size, norms);
  ++applied;
  if (!commit.snapshot.empty() && form.rank == 0) write_snapshot(commit.snapshot);
  rates = commit.rates;
  if (commit.wait) in_generation = false;
}

void Session::State::write_snapshot(const std::string& file) {
  const elastic::SnapshotHeader header{applied, fingerprint(), learning_rate->save(), facts.run_id};
  const auto written =
      elastic::write_snapshot(directory.path() / file, header, [this](std::ostream& out) { program->save(out); });
  channel.send(elastic::SnapshotWritten{applied, file, written ? std::string{} : written.error().message()});
}

bool Session::State::committed() {
  while (true) {
    elastic::ToWorker message = receive();
    if (const auto* commit = std::get_if<elastic::Commit>(&message)) {
      if (commit->step != applied) continue;
      verdict = *commit;
      return true;
    }
    if (const auto* abort = std::get_if<elastic::Abort>(&message)) {
      if (abort->generation >= form.generation) return false;
      continue;
    }
    if (std::holds_alternative<elastic::CommIdShared>(message)) continue;
    put_back = std::move(message);  // Form or Stop: the agent went on without this step
    return false;
  }
}

std::optional<elastic::ReductionResult> Session::State::reduce() {
  channel.send(elastic::Reducing{form.generation, applied, elastic::digest_of(assignment)});
  try {
    return reduction->reduce(communicator.get(), *stream, [this] { strike(elastic::InjectionPoint::kReduce); });
  } catch (const Error& error) {
    tell_broken(error);
    return std::nullopt;
  }
}

int64_t Step::index() const {
  return session_->state_->applied;
}
const Batch& Step::batch() const {
  return session_->state_->batch;
}
const std::vector<MicroBatch>& Step::micro_batches() const {
  return session_->state_->micros;
}
int64_t Step::rank() const {
  return session_->state_->form.rank;
}
int64_t Step::world_size() const {
  return session_->state_->form.world_size;
}
double Step::learning_rate() const {
  return session_->state_->scaling.learning_rate;
}
const Scaling& Step::scaling() const {
  return session_->state_->scaling;
}

void Step::add(const MicroBatch& micro, double loss_sum, std::span<const float> gradient) {
  Session::State& s = *session_->state_;
  s.reduction->check(micro.rows, gradient);
  if (s.added == 0) s.strike(elastic::InjectionPoint::kForward);
  const data::EntrySums sums = data::sum_entries(data::entries_of(s.batch, micro.rows), s.batches->dataset());
  s.clock.computed(balance::shape_of(data::entries_of(s.batch, micro.rows), s.batches->dataset()));
  s.reduction->add(micro.rows, loss_sum, sums.loss_tokens, sums.digest, gradient);
  ++s.added;
}

std::optional<Committed> Step::commit() {
  Session::State& s = *session_->state_;
  if (s.verdict)
    throw Error(Status::kFailedPrecondition,
                "Step::commit was called twice; apply the gradient and call Session::next");
  if (!s.reduction->complete()) {
    throw Error(Status::kFailedPrecondition, fmt::format("step {}: {} of {} micro-batches were added before commit",
                                                         s.applied, s.added, s.micros.size()));
  }
  s.clock.stop();
  if (s.added == 0) s.strike(elastic::InjectionPoint::kForward);
  s.in_generation = false;
  const auto reduced = s.reduce();
  if (!reduced) return std::nullopt;
  s.strike(elastic::InjectionPoint::kVote);
  s.channel.send(elastic::Vote{s.form.generation, s.applied, reduced->digest, reduced->loss_sum, reduced->loss_tokens,
                               s.scaling.learning_rate, s.clock.time()});
  if (!s.committed()) return std::nullopt;
  s.strike(elastic::InjectionPoint::kCommit);
  s.in_generation = true;
  const double tokens = reduced->loss_tokens > 0 ? static_cast<double>(reduced->loss_tokens) : 1.0;
  const float scale = static_cast<float>(1.0 / tokens);
  s.mean_gradient.resize(reduced->gradient.size());
  std::transform(reduced->gradient.begin(), reduced->gradient.end(), s.mean_gradient.begin(),
                 [scale](float g) { return g * scale; });
  if (s.learning_rate->wants_gradient_norms()) s.norms = elastic::norms_of(*reduced, s.mean_gradient);
  return Committed{s.mean_gradient, reduced->loss_sum / tokens};
}

}  // namespace pliant
