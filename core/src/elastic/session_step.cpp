// Session: one step, from its batch to the verdict on it.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <exception>
#include <limits>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "balance/costs.hpp"
#include "base/durable_file.hpp"
#include "base/log.hpp"
#include "base/printable.hpp"
#include "base/result.hpp"
#include "data/pieces.hpp"
#include "elastic/assignment_record.hpp"
#include "elastic/gradient_norms.hpp"
#include "elastic/session_state.hpp"
#include "elastic/snapshot.hpp"
#include "pliant/optimizer.hpp"

namespace pliant {

namespace {

constexpr size_t kMostRangesTold = 16;

/// In their order, each once, neighbours as one.
std::vector<RowRange> merged(std::vector<RowRange> ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const RowRange& a, const RowRange& b) { return a.first < b.first; });
  std::vector<RowRange> made;
  for (const RowRange& one : ranges) {
    if (made.empty() || made.back().first + made.back().count < one.first) {
      made.push_back(one);
    } else {
      made.back().count = std::max(made.back().count, one.first + one.count - made.back().first);
    }
  }
  return made;
}

}  // namespace

void Session::State::prepare_step() {
  find_epoch();
  std::optional<Batch> next = batches->next();
  // at_step says what steps there are.
  batch = std::make_shared<const Batch>(next ? std::move(*next) : batches->at_step(applied));
  foretold.erase(foretold.begin(), foretold.upper_bound(applied));
  at_hand = applied;
  share_out();
  take_digest();
  added = 0;
  is_in_attempt = true;
  voted = false;
  metrics.clear();
  if (recorder) recorder->begin_step(applied);
  scaling = learning_rate->scaling(applied, batch->size);
  norms.reset();
  reduction->begin(batch->size.rows, facts.granule, assignment, form.rank);
  if (sharded == nullptr) return;
  sharded->begin_step(batch->size.rows, facts.granule, assignment, config.run().on_nonfinite != "ignore");
  while (micros.size() < sharded->rounds()) micros.push_back({});  // to stay beside those who still compute
}

Assignment Session::State::share_out(const Batch& rows) const {
  return balancer->assign(row_costs(rows, batches->dataset(), rates), {.world_size = form.world_size,
                                                                       .micro_batch = form.micro_batch,
                                                                       .granule = facts.granule,
                                                                       .deterministic = config.run().deterministic,
                                                                       .in_turn = sharded != nullptr});
}

const ComingStep* Session::coming(int64_t ahead) {
  State& s = *state_;
  if (ahead < 1)
    throw Error(Status::kInvalidArgument, fmt::format("Session::coming looks at least 1 step ahead, not {}", ahead));
  const bool has_step = !s.over && s.batches && s.batches->next_step() > 0 && s.shares > 0;
  if (!has_step || ahead > std::numeric_limits<int64_t>::max() - s.at_hand) return nullptr;
  const int64_t step = s.at_hand + ahead;
  auto found = s.foretold.find(step);
  if (found == s.foretold.end()) {
    std::optional<Batch> batch = s.or_tell([&s, ahead] { return s.batches->coming(ahead); });
    if (!batch) return nullptr;
    found = s.foretold.emplace(step, ComingStep{step, std::make_shared<const Batch>(std::move(*batch)), {}, 0}).first;
  }
  ComingStep& coming = found->second;
  if (coming.shares != s.shares) {
    const Assignment rows = s.share_out(*coming.batch);
    const std::span<const RowRange> own = rows.of(s.form.rank);
    coming.micro_batches.assign(own.begin(), own.end());
    coming.shares = s.shares;
  }
  return &coming;
}

int64_t Step::shares() const {
  return session_->state_->shares;
}

void Session::State::share_out() {
  assignment = share_out(*batch);
  const std::span<const RowRange> own = assignment.of(form.rank);
  micros.assign(own.begin(), own.end());
}

bool Session::State::is_compared(int64_t at_step) const {
  const int64_t every = config.run().digest_every;
  const bool after_copy = form.compare && at_step == form.next_step;
  return every > 0 && (at_step % every == 0 || after_copy || at_step == snapshot_at);
}

void Session::State::take_digest() {
  digest.reset();
  shard_digests.clear();
  if (!is_compared(applied)) {
    if (sharded == nullptr) arrays->require_unchanged();  // taking a digest asks for them, too
    return;
  }
  const auto began = std::chrono::steady_clock::now();
  if (sharded != nullptr) {
    take_digest_of_shards();
  } else {
    digest = digest_of_state();
  }
  digest_time = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - began);
  if (sharded != nullptr) digest_time += sharded->take_check_time();
}

elastic::StateDigest Session::State::digest_of_state() {
  return elastic::digest_of_state(*arrays, *program, learning_rate->save(), *array_digests);
}

void Session::State::note(const elastic::StateDigest& of) const {
  const std::string line = elastic::digest_line(applied, of);
  const FileDescriptor fd(
      ::open((directory.path() / elastic::kDigestsFile).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  // What cannot be kept is no reason to end a job: the ledger has the digest of the whole.
  if (fd.get() >= 0 && ::write(fd.get(), line.data(), line.size()) == static_cast<ssize_t>(line.size())) return;
  Log("session").write(LogLevel::kWarning,
                       fmt::format("{}: {}", elastic::kDigestsFile, std::generic_category().message(errno)));
}

void Session::State::settle() {
  if (!verdict) return;
  strike(elastic::InjectionPoint::kApply);
  const elastic::Commit commit = *std::exchange(verdict, std::nullopt);
  // A rule that learns from gradients learns nothing from one that is not there.
  if (!commit.skip || !learning_rate->wants_gradient_norms()) learning_rate->commit(applied, batch->size, norms);
  ++applied;
  if (sharded != nullptr) sharded->end_step(applied);
  if (commit.compare) {
    last_digest = digest_of_state();
    channel.send(elastic::Holds{applied, true, last_digest->root});
  }
  if (!commit.snapshot.empty() && sharded == nullptr) snapshot_at = applied;
  if (sharded != nullptr && (commit.wait || !commit.snapshot.empty())) keep_coordinator();
  if (!commit.snapshot.empty() && sharded != nullptr) {
    write_part(commit.snapshot);
  } else if (!commit.snapshot.empty() && form.rank == 0) {
    write_snapshot(commit.snapshot);
  }
  if (!(rates == commit.rates)) ++shares;
  rates = commit.rates;
  if (commit.wait) in_generation = false;
}

void Session::on_snapshot(SnapshotHooks hooks) {
  state_->snapshot_hooks = std::move(hooks);
}

std::string Session::State::with_hooks(const std::string& file, const std::function<std::string()>& write) {
  const auto words_of = [](const std::function<void()>& call, const char* when) -> std::string {
    try {
      call();
      return {};
    } catch (const std::exception& error) {
      return fmt::format("what the program does {} a snapshot failed: {}", when, error.what());
    } catch (...) {
      return fmt::format("what the program does {} a snapshot failed", when);
    }
  };
  std::string error;
  const SnapshotHooks hooks = snapshot_hooks;  // a hook may set others
  if (hooks.before) error = words_of([&] { hooks.before(applied); }, "before");
  if (error.empty()) error = write();
  if (!hooks.after) return error;
  const std::string path = (directory.path() / file).string();
  const std::string late = words_of([&] { hooks.after(applied, path, error); }, "after");
  if (!late.empty()) Log("session").write(LogLevel::kWarning, late);
  return error;
}

void Session::State::write_snapshot(const std::string& file) {
  const elastic::SnapshotHeader header{applied, fingerprint(), learning_rate->save(), facts.run_id, arrays->layout()};
  const ReservedDescriptor::Room room = reserved.room();
  const std::string error = with_hooks(file, [&] {
    const auto written = elastic::write_snapshot(directory.path() / file, header, [this](std::ostream& out) {
      elastic::write_arrays(*arrays, out, *program_stream, staging_of_arrays());
      strike(elastic::InjectionPoint::kSnapshot);
      program->save(out);
    });
    return written ? std::string{} : written.error().message();
  });
  channel.send(elastic::SnapshotWritten{applied, file, error});
}

bool Session::State::committed() {
  while (true) {
    elastic::ToWorker message = receive();
    if (const auto* commit = std::get_if<elastic::Commit>(&message)) {
      if (commit->step != applied) continue;
      verdict = *commit;
      is_in_attempt = false;
      if (commit->evaluation.step >= 0) last_evaluation = commit->evaluation;
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
  try {
    // What this rank has enqueued is its share, too: its clock goes on, and nobody is said to wait for it yet. An
    // update that is still enqueued reads the gradient of the step before, whose memory the sums take now.
    program_stream->synchronize();
    clock.stop();
    if (sharded != nullptr) sharded->note_commit();
    strike(elastic::InjectionPoint::kBucket);  // where none was under way before
    channel.send(
        elastic::Reducing{form.generation, applied, elastic::digest_of(assignment), elastic::digest_of(*batch)});
    const bool is_told = recorder && sharded == nullptr;  // the runtime tells of a sharded model's
    if (is_told) recorder->begin_call(sharded::TracedCall::Kind::kEndStep);
    auto reduced = reduction->reduce(communicator.get(), *stream, [this] { strike(elastic::InjectionPoint::kReduce); });
    if (is_told) recorder->end_call(0, 0);
    if (sharded != nullptr) reduce_shards(reduced);
    return reduced;
  } catch (const Error& error) {
    tell_broken(error);
    return std::nullopt;
  }
}

void Session::State::begin_buckets() {
  if (sharded != nullptr || !reduction->begin_buckets(communicator.get(), *stream)) return;
  strike(elastic::InjectionPoint::kBucket);
}

void Session::State::give_up_buckets(const Error& why) {
  tell_broken(why);  // before the others meet what follows
  communicator.abort(form.generation);
  reduction->drop_buckets(*stream);
  in_generation = false;
}

void Session::State::reduce_shards(elastic::ReductionResult& reduced) {
  const double tokens = reduced.loss_tokens > 0 ? static_cast<double>(reduced.loss_tokens) : 1.0;
  const sharded::GradientFacts gradient = sharded->finish_gradient(1.0 / tokens);
  if (config.run().on_nonfinite != "ignore") reduced.finite = reduced.finite && gradient.finite;
  const std::span<const RowRange> blocks = assignment.of(form.rank);
  for (size_t i = 0; i < blocks.size() && !gradient.finite; ++i) {  // else there is none, on no rank
    const std::optional<bool> is_finite = sharded->is_finite(i);
    if (!is_finite.value_or(true)) reduced.not_finite.push_back(blocks[i]);
    if (!is_finite) reduced.sum_not_finite.push_back(blocks[i]);
  }
  if (shard_digests.empty()) return;
  sharded->combine_over_ranks(shard_digests, ReduceOp::kSum);
  digest = digest_of_shards(shard_digests);
}

void Session::State::take_mean(std::span<float> sum, double scale) {
  const std::array<const void*, 1> from{sum.data()};
  if (!sum.empty()) stream->reduce(sum.data(), from, sum.size(), DType::kF32, ReduceOp::kSum, scale);
  stream->synchronize();
  mean_gradient = sum;
  host_gradient_is_there = false;
}

std::span<const float> Session::State::gradient_on_host() {
  if (device_properties.host_visible) return mean_gradient;
  if (!std::exchange(host_gradient_is_there, true)) {
    host_gradient.resize(mean_gradient.size());
    stream->copy(host_gradient.data(), mean_gradient.data(), mean_gradient.size_bytes());
    stream->synchronize();
  }
  return host_gradient;
}

double Session::State::norm_of_mean() {
  if (device_properties.host_visible) return squared_norm(mean_gradient);
  const std::array<uint64_t, 1> whole{mean_gradient.size()};
  return squared_norm(*stream, mean_gradient, whole);
}

int64_t Step::index() const {
  return session_->state_->applied;
}
const Batch& Step::batch() const {
  return *session_->state_->batch;
}
std::shared_ptr<const Batch> Step::shared_batch() const {
  return session_->state_->batch;
}
const std::vector<RowRange>& Step::micro_batches() const {
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
Scaling Step::scaling(double base_lr) const {
  if (!(base_lr > 0) || !std::isfinite(base_lr))
    throw Error(Status::kInvalidArgument,
                fmt::format("the base rate of a group is finite and above 0, not {}", base_lr));
  const Session::State& s = *session_->state_;
  return s.learning_rate->scaling(s.at_hand, s.batch->size, base_lr);
}

Scaling Step::scaling(std::string_view group) const {
  const std::map<std::string, double>& groups = session_->config().lr().groups;
  const auto found = groups.find(std::string(group));
  if (found != groups.end()) return scaling(found->second);
  std::string there;
  for (const auto& [name, rate] : groups) there += fmt::format("{}{}", there.empty() ? "" : ", ", name);
  const std::string name = printable(group);
  throw Error(Status::kNotFound,
              groups.empty() ? fmt::format("this program asks for the base rate of a group '{}', and the config has no "
                                           "[lr.groups]; add --set lr.groups.{}=RATE or, to the config, [lr.groups]",
                                           name, name)
                             : fmt::format("[lr.groups] has no group '{}'; it has {}", name, there),
              Origin::kInput);
}

void Step::add(RowRange rows, double loss_sum, std::span<const float> gradient) {
  session_->state_->reduction->check(rows, gradient);
  add_piece(rows, {.offset = 0, .count = gradient.size(), .data = gradient.data()});
  session_->state_->program_stream->synchronize();
  add(rows, loss_sum);
}

void Step::add_piece(RowRange rows, const GradientPiece& piece) {
  Session::State& s = *session_->state_;
  s.reduction->check(rows, piece);
  s.tell_results();
  if (s.added == 0) s.strike(elastic::InjectionPoint::kForward);
  s.reduction->add_piece(rows, piece);
  s.begin_buckets();
}

void Step::add(RowRange rows, double loss_sum) {
  Session::State& s = *session_->state_;
  if (s.sharded != nullptr) {
    if (rows.count == 0) return;
    if (s.sharded->micro_batches_done() <= s.added) {
      throw Error(
          Status::kFailedPrecondition,
          "the micro-batch had no pass over the sharded model; call ShardedModel::begin_pass and end_pass first");
    }
  }
  s.reduction->check(rows);
  const data::EntrySums sums = data::sum_entries(data::entries_of(*s.batch, rows), s.batches->dataset());
  s.reduction->add(rows, loss_sum, sums.loss_tokens, sums.digest);
  s.clock.computed(balance::shape_of(data::entries_of(*s.batch, rows), s.batches->dataset()));
  ++s.added;
}

void Step::metric(std::string_view name, double value, double weight, MetricRule rule) {
  Session::State& s = *session_->state_;
  if (s.voted) {
    throw Error(Status::kFailedPrecondition,
                fmt::format("metric '{}' comes after Step::commit, which has counted those of step {}; give it before, "
                            "or by Session::evaluated",
                            name, s.applied));
  }
  s.metrics.add(name, value, weight, rule);
}

void Session::evaluated(std::string_view name, double value, double weight, MetricRule rule) {
  State& s = *state_;
  if (s.at_hand < 0 && !s.over) {
    throw Error(Status::kFailedPrecondition,
                "Session::evaluated was called before the first Session::next, when this worker may not hold the state "
                "of the job yet; call it once there is a step in hand");
  }
  s.results.add(name, value, weight, rule);
  if (s.over) s.tell_results();  // no next() comes
}

const std::optional<Evaluation>& Session::last_evaluation() const {
  return state_->last_evaluation;
}

void Session::end_after_step(std::string_view reason) {
  if (reason.empty() || reason.size() > elastic::kMostBytesOfWords) {
    throw Error(Status::kInvalidArgument,
                fmt::format("Session::end_after_step takes 1 to {} bytes that say why, not {}",
                            elastic::kMostBytesOfWords, reason.size()));
  }
  state_->reason_to_end = reason;
  state_->asked_at = state_->applied + (state_->verdict ? 1 : 0);
}

void Session::State::tell_results() {
  if (results.empty()) return;
  // A step that was committed is applied by now, whether it counts already or not.
  channel.send(elastic::Evaluated{applied + (verdict ? 1 : 0), results.shares(), is_in_attempt ? form.generation : -1});
  results.clear();
}

bool Step::attempt(const std::function<void()>& work) {
  Session::State& s = *session_->state_;
  if (s.sharded != nullptr) static_cast<void>(s.sharded->take_touched());
  try {
    work();
    return true;
  } catch (const Error& error) {
    if (give_up(error) && s.sharded != nullptr) return false;
    throw;
  } catch (const std::exception& error) {
    s.give_up_passes(Error(Status::kInternal, error.what()));
    throw;
  } catch (...) {
    s.give_up_passes(Error(Status::kInternal, "the program threw in its passes"));
    throw;
  }
}

bool Step::give_up(const Error& error) {
  Session::State& s = *session_->state_;
  s.give_up_passes(error);
  const bool is_lost = error.status() == Status::kAborted || error.status() == Status::kPeerLost;
  if (!is_lost || s.sharded == nullptr) s.tell_refusal(error);
  return is_lost;
}

void Session::State::give_up_passes(Error error) {
  if (sharded == nullptr) return;
  // What was read is written on other ranks, maybe: of the step they hold one part, and this rank another.
  is_spoiled = sharded->take_touched() && verdict;
  gave_up_itself = error.status() != Status::kAborted && error.status() != Status::kPeerLost;
  sharded->abandon();
  given_up = std::move(error);
}

std::optional<Committed> Step::commit() {
  return session_->state_->or_tell([this] { return reduce_and_vote(); });
}

std::optional<Committed> Step::reduce_and_vote() {
  Session::State& s = *session_->state_;
  if (s.verdict)
    throw Error(Status::kFailedPrecondition,
                "Step::commit was called twice; apply the gradient and call Session::next");
  if (!s.reduction->complete()) {
    throw Error(Status::kFailedPrecondition,
                fmt::format("step {}: {} of {} micro-batches were added before commit; call Step::add once for each of "
                            "Step::micro_batches first",
                            s.applied, s.added, s.micros.size()));
  }
  if (s.sharded != nullptr && !s.sharded->is_complete()) {
    throw Error(Status::kFailedPrecondition,
                fmt::format("step {}: the sharded model made passes over {} of {} micro-batches before commit; "
                            "micro-batches without rows need a pass, too",
                            s.applied, s.sharded->micro_batches_done(), s.sharded->rounds()));
  }
  s.tell_results();
  if (s.added == 0) s.strike(elastic::InjectionPoint::kForward);
  s.in_generation = false;
  s.voted = true;
  const auto reduced = s.reduce();
  if (!reduced) {
    s.channel.require_agent();
    return std::nullopt;
  }
  // Before the vote, so that whatever is committed has its line, whoever dies in between.
  if (s.digest && s.form.rank == 0) s.note(*s.digest);
  s.strike(elastic::InjectionPoint::kVote);
  std::vector<RowRange> not_finite = merged(reduced->not_finite);
  const size_t told = std::min(not_finite.size(), kMostRangesTold);
  const auto more = static_cast<int64_t>(not_finite.size() - told);
  not_finite.resize(told);
  s.channel.send(elastic::Vote{s.form.generation, s.applied, reduced->digest, reduced->loss_sum, reduced->loss_tokens,
                               s.scaling.learning_rate, s.clock.time(), reduced->finite, std::move(not_finite), more,
                               reduced->sum_not_finite.empty(), reduced->own_sum_overflows, s.digest.has_value(),
                               s.digest ? s.digest->root : 0, s.digest_time.count(),
                               s.sharded != nullptr ? s.sharded->visits() : sharded::VisitCount{},
                               elastic::numbers_of(s.scaling), s.metrics.shares(), s.reason_to_end});
  const bool committed = s.committed();
  if (committed) s.tell_epoch();
  if (committed) s.strike(elastic::InjectionPoint::kCommit);
  s.in_generation = committed;
  if (!committed || s.verdict->skip) return std::nullopt;  // after a skip Session::next goes on as after an update
  const double tokens = reduced->loss_tokens > 0 ? static_cast<double>(reduced->loss_tokens) : 1.0;
  if (s.sharded != nullptr) {
    const bool is_kept = !s.verdict->snapshot.empty() && s.config.run().digest_every > 0;
    s.sharded->allow_update(is_kept || s.is_compared(s.applied + 1));
    if (s.learning_rate->wants_gradient_norms()) {
      s.norms = elastic::norms_of(*reduced, s.sharded->squared_gradient_norm());
    }
    return Committed(*this, reduced->loss_sum / tokens);
  }
  s.take_mean(reduced->gradient, 1.0 / tokens);
  if (s.learning_rate->wants_gradient_norms()) s.norms = elastic::norms_of(*reduced, s.norm_of_mean());
  return Committed(*this, reduced->loss_sum / tokens);
}

std::span<const float> Committed::device_gradient() const {
  return step_->session_->state_->mean_gradient;
}
std::span<const float> Committed::gradient() const {
  return step_->session_->state_->gradient_on_host();
}

}  // namespace pliant
