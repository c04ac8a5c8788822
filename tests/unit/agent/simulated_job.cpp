#include "unit/agent/simulated_job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "data/digest.hpp"
#include "elastic/assignment_record.hpp"
#include "elastic/snapshot_draft.hpp"

namespace pliant::elastic {
namespace {

constexpr int64_t kMostEvents = 200000;
constexpr int64_t kTick = 250;  // events

std::set<int32_t> chunks_of(const sharded::Ownership& map, int32_t rank) {
  std::set<int32_t> chunks;
  for (const sharded::OwnedRun& run : map.runs_of(rank)) {
    for (int32_t i = 0; i < run.chunks.count; ++i) chunks.insert(static_cast<int32_t>(run.chunks.first) + i);
  }
  return chunks;
}

uint64_t digest_of_state(const std::vector<SimulatedJob::Entry>& state) {
  data::Digest digest;
  for (const SimulatedJob::Entry& entry : state) {
    digest.add(static_cast<uint64_t>(entry.step));
    digest.add(static_cast<uint64_t>(entry.generation));
  }
  return digest.value();
}

}  // namespace

SimulatedJob::SimulatedJob(GroupOptions options, int64_t steps, uint32_t seed, Disturbances disturbances)
    : steps_(steps),
      random_(seed),
      disturbances_(disturbances),
      initial_(options.workers),
      group_(options, *this, 0, std::nullopt) {
  for (int64_t i = 0; i < options.workers; ++i) spawn();
}

std::optional<JobEnd> SimulatedJob::run() {
  while (!group_.job_end() && violation_.empty() && events_ < kMostEvents) {
    if (++events_ == disturbances_.stop_after) group_.request_stop(SIGINT);
    if (events_ == disturbances_.fails_after) group_.fail(job_failed("the run directory is gone"));
    if (events_ == disturbances_.joins_after) {
      ++initial_;
      spawn();
    }
    if (events_ % kTick == 0) {
      stops_after_look_ = disturbances_.agent_stops > 0 && random_() % 4 == 0;
      if (stops_after_look_) --disturbances_.agent_stops;
      group_.tick();
    }
    if (!act()) break;
  }
  note_progress();
  return group_.job_end();
}

// One random thing that can happen next.
bool SimulatedJob::act() {
  const bool may_kill = !disturbances_.corrupt || corrupted_;  // sooner it would be an ordinary loss
  if (may_kill && disturbances_.kills > kills_done_ && random_() % disturbances_.one_in == 0) {
    strike();
    return true;
  }
  if (disturbances_.freezes > freezes_done_ && random_() % disturbances_.one_in == 0) {
    freeze();
    return true;
  }
  if (workers_.empty()) return group_.restarts() > static_cast<int64_t>(starts_.size()) - initial_;  // one is to come
  auto at = std::next(workers_.begin(), static_cast<std::ptrdiff_t>(random_() % workers_.size()));
  const WorkerId id = at->first;
  Worker& worker = at->second;
  const bool killed = worker.form.rank == -2;
  if (is_frozen(worker) && !killed) return true;
  if (worker.busy_until > events_ && !worker.done) {  // its program is elsewhere; what it said is on its way
    if (!worker.outbox.empty()) deliver_to_agent(id);
    return true;
  }
  if (std::exchange(worker.busy_until, 0) > 0 && !worker.done) worker.outbox.push_back(BusyWith{});
  switch (random_() % 3) {
    case 0:
      if (!worker.outbox.empty()) {
        deliver_to_agent(id);
      } else if (worker.done) {
        finished_.push_back(worker.state);
        remove(id, worker.exit);
      }
      break;
    case 1:
      if (!worker.done) handle(id, worker);
      break;
    default:
      if (!worker.done) progress(id, worker);
  }
  return true;
}

void SimulatedJob::strike() {
  if (workers_.empty()) return;
  ++kills_done_;
  die(std::next(workers_.begin(), static_cast<std::ptrdiff_t>(random_() % workers_.size()))->second);
}

void SimulatedJob::freeze() {
  if (workers_.empty() || (disturbances_.freeze_all && lineage_.empty())) return;
  ++freezes_done_;
  if (disturbances_.freeze_all) {
    for (auto& [id, worker] : workers_) worker.frozen_until = kMostEvents;
    return;
  }
  Worker& worker = std::next(workers_.begin(), static_cast<std::ptrdiff_t>(random_() % workers_.size()))->second;
  worker.frozen_until = events_ + 1 + static_cast<int64_t>(random_()) % disturbances_.longest_freeze;
}

void SimulatedJob::wake(WorkerId id) {
  if (const auto found = workers_.find(id); found != workers_.end()) found->second.frozen_until = 0;
}

bool SimulatedJob::is_stopped(WorkerId id) {
  const auto found = workers_.find(id);
  return found != workers_.end() && is_frozen(found->second);
}

void SimulatedJob::note_progress() {
  longest_gap_ = std::max(longest_gap_, events_ - progress_at_);
  progress_at_ = events_;
}

void SimulatedJob::kill(WorkerId id) {
  const auto found = workers_.find(id);
  if (found == workers_.end()) return;
  if (!is_frozen(found->second) && !found->second.done) ++healthy_killed_;
  die(found->second);
}

// The group may ask for this while it walks its members: the end is noticed later, as with a process.
void SimulatedJob::die(Worker& worker) {
  while (!worker.outbox.empty() && random_() % 2 == 0) worker.outbox.pop_back();  // lost or not: both are legal
  worker.done = true;
  worker.form.rank = -2;  // marks the killed
}

void SimulatedJob::remove(WorkerId id, ExitStatus status) {
  const bool killed = workers_.at(id).form.rank == -2;
  if (killed || status.code != 0) finished_.pop_back();
  broken_.insert(workers_.at(id).form.generation);
  workers_.erase(id);
  group_.ended(id, killed ? ExitStatus{true, 9} : status);
}

void SimulatedJob::deliver_to_agent(WorkerId id) {
  const FromWorker message = workers_.at(id).outbox.front();
  workers_.at(id).outbox.pop_front();
  if (std::holds_alternative<Ready>(message)) ready_.push_back(id);
  const auto* const formed = std::get_if<Formed>(&message);
  if (formed != nullptr && !broken_.contains(formed->generation)) ++formed_[formed->generation];
  group_.received(id, message);
}

bool SimulatedJob::peers_reached(const Worker& worker, At at) const {
  int64_t there = 0;
  for (const auto& [id, other] : workers_) {
    if (other.done || other.form.generation != worker.form.generation || other.form.rank < 0) continue;
    if (other.at >= at && other.state.size() >= worker.state.size()) ++there;
  }
  return there == worker.form.world_size;
}

// Takes one message of the agent, as Session does.
void SimulatedJob::handle(WorkerId id, Worker& worker) {
  if (worker.inbox.empty()) return;
  const bool may_wait_only = worker.at == At::kComputing || worker.at == At::kReducing || worker.at == At::kJoining ||
                             worker.at == At::kCopying;
  if (may_wait_only) {  // messages are read between steps only, but an abort ends the wait from wherever it stands
    const bool aborted = std::any_of(worker.inbox.begin(), worker.inbox.end(), [&](const ToWorker& waiting) {
      const auto* abort = std::get_if<Abort>(&waiting);
      return abort != nullptr && abort->generation >= worker.form.generation;
    });
    if (aborted) worker.at = At::kWaiting;
    return;
  }
  const ToWorker message = worker.inbox.front();
  worker.inbox.pop_front();
  if (const auto* form = std::get_if<Form>(&message)) {
    if (worker.at == At::kVoted) {  // the agent went on without this step
      worker.at = At::kWaiting;
    }
    worker.form = *form;
    worker.rates = form->rates;
    if (form->rank < 0) {
      worker.at = At::kWaiting;
      return;
    }
    if (form->rank > 0) worker.at = At::kNeedsId;
    if (disturbances_.sharded) {
      take_shards(worker);
    } else if (!form->restore.empty()) {
      worker.state = snapshots_.at(form->next_step);
      worker.partial = false;
    }
    const bool gives_part = !disturbances_.sharded && form->rank == 0 && worker.partial;
    if (gives_part) return violate("a part of a copy is given to others");
    if (form->rank == form->donor) donated_[form->generation][0] = worker.state;
    if (form->rank == 0) {
      worker.at = At::kJoining;
      worker.outbox.push_back(CommIdMade{form->generation, "id"});
      worker.outbox.push_back(Joining{form->generation});
    }
  } else if (const auto* tell = std::get_if<Tell>(&message)) {
    const bool compares = tell->compare && !worker.partial;
    worker.outbox.push_back(Holds{worker.holds(), compares, compares ? digest_of_state(worker.state) : 0});
  } else if (std::holds_alternative<WriteData>(message)) {
    if (is_odd(id)) violate("a worker writes other data than that of the most");
    if (disturbances_.data_changed) return worker.outbox.push_back(DataWritten{"it has changed", 4, Origin::kInput});
    if (disturbances_.data_shortages > 0) {
      --disturbances_.data_shortages;
      return worker.outbox.push_back(DataWritten{"no descriptor is left", 5, Origin::kRun});
    }
    data_writers_.push_back(id);
    worker.outbox.push_back(DataWritten{});
  } else if (const auto* shared = std::get_if<CommIdShared>(&message)) {
    if (worker.at != At::kNeedsId || shared->generation != worker.form.generation) return;
    worker.at = At::kJoining;
    worker.outbox.push_back(Joining{worker.form.generation});
  } else if (const auto* abort = std::get_if<Abort>(&message)) {
    if (abort->generation >= worker.form.generation) worker.at = At::kWaiting;
  } else if (const auto* commit = std::get_if<Commit>(&message)) {
    if (worker.at != At::kVoted || commit->step != static_cast<int64_t>(worker.state.size())) return;
    if (worker.spoilt) return violate("a rank goes on with a part of the state that it has not");
    worker.state.push_back({commit->step, worker.form.generation});
    rates_seen_.insert({commit->rates.per_token, commit->rates.per_square});
    worker.rates = commit->rates;
    if (!commit->snapshot.empty() && disturbances_.sharded) {
      write_part(worker, commit->step + 1, commit->snapshot);
    } else if (!commit->snapshot.empty() && worker.form.rank == 0) {
      snapshots_[commit->step + 1] = worker.state;
      worker.outbox.push_back(SnapshotWritten{commit->step + 1, commit->snapshot, ""});
    }
    if (commit->compare && disturbances_.corrupt_last && !corrupted_ && random_() % 2 == 0) {
      corrupted_ = true;
      worker.state.back().generation = -1;
    }
    if (commit->compare) worker.outbox.push_back(Holds{worker.holds(), true, digest_of_state(worker.state)});
    const auto steps = static_cast<int64_t>(worker.state.size());
    if (steps % 3 == 0)
      worker.outbox.push_back(Evaluated{steps, {{"valid", MetricRule::kMean, {static_cast<double>(steps)}, {1}}}});
    worker.at = commit->wait ? At::kWaiting : At::kComputing;
  } else if (const auto* save = std::get_if<Save>(&message)) {
    if (disturbances_.sharded && worker.partial) {
      return worker.outbox.push_back(SnapshotWritten{save->step, save->file, "it holds a part of a state"});
    }
    if (save->step != worker.holds()) return violate("a worker is to save another state");
    if (disturbances_.sharded) return write_part(worker, save->step, save->file);
    snapshots_[save->step] = worker.state;
    worker.outbox.push_back(SnapshotWritten{save->step, save->file, ""});
  } else if (const auto* order = std::get_if<Assemble>(&message)) {
    assemble(worker, *order);
  } else {
    worker.outbox.push_back(Finished{});
    worker.done = true;
  }
}

// From a snapshot or from nothing every rank takes the part of its rank; else it goes on with the one that it has.
void SimulatedJob::take_shards(Worker& worker) {
  const Form& form = worker.form;
  const auto rank = static_cast<int32_t>(form.rank);
  if (form.owners.empty()) {
    worker.state = form.restore.empty() ? std::vector<Entry>() : snapshots_.at(form.next_step);
    worker.partial = worker.spoilt = false;
    worker.map = *sharded::Ownership::deal(disturbances_.chunks, static_cast<int32_t>(form.world_size));
    worker.place = rank;
    worker.chunks = chunks_of(worker.map, rank);
    return;
  }
  const auto was = static_cast<int32_t>(form.was.at(static_cast<size_t>(rank)));
  const auto from = sharded::Ownership::load(form.owners);
  // The agent may not know yet that a part was given away: then nothing may come of this generation.
  const bool has_part = !worker.partial && !worker.spoilt && was >= 0 && worker.chunks == chunks_of(*from, was);
  worker.spoilt = was >= 0 && !has_part;
}

sharded::MovePlan SimulatedJob::moves_of(const Form& form) const {
  const auto from = sharded::Ownership::load(form.owners);
  std::vector<int32_t> next(static_cast<size_t>(from->world_size()), sharded::kLeaves);
  for (size_t i = 0; i < static_cast<size_t>(form.stay); ++i) {
    if (form.was[i] >= 0) next[static_cast<size_t>(form.was[i])] = static_cast<int32_t>(i);
  }
  return *sharded::plan_moves(*from, static_cast<int32_t>(form.stay), next);
}

void SimulatedJob::finish_move(Worker& worker) {
  const Form& form = worker.form;
  const sharded::MovePlan plan = moves_of(form);
  const auto rank = static_cast<int32_t>(form.rank);
  int64_t sent = 0;
  for (const sharded::Move& move : plan.moves) {
    if (move.from == form.was[static_cast<size_t>(rank)]) sent += move.chunks.count;
  }
  if (form.was[static_cast<size_t>(rank)] < 0) worker.state = donated_.at(form.generation).at(0);
  worker.map = plan.to;
  worker.place = rank;
  worker.chunks = rank < form.stay ? chunks_of(plan.to, rank) : std::set<int32_t>{};
  worker.partial = false;
  chunks_moved_ += sent;
  if (static_cast<int64_t>(worker.state.size()) != form.next_step)
    return violate("a worker joins with the wrong state");
  worker.formed = form.generation;
  if (!plan.moves.empty()) worker.moved = {form.generation, form.world_size};
  worker.outbox.push_back(Formed{form.generation, plan.to.save(), sent});
  worker.at = form.stay < form.world_size ? At::kWaiting : At::kComputing;
}

bool SimulatedJob::receives(const Form& form) const {
  const std::vector<sharded::Move> moves = moves_of(form).moves;
  return std::any_of(moves.begin(), moves.end(), [&form](const sharded::Move& one) { return one.to == form.rank; });
}

bool SimulatedJob::owns_once(int64_t generation) const {
  size_t owned = 0;
  std::set<int32_t> chunks;
  for (const auto& [id, worker] : workers_) {
    if (worker.done || worker.form.generation != generation || worker.form.rank < 0) continue;
    owned += worker.chunks.size();
    chunks.insert(worker.chunks.begin(), worker.chunks.end());
  }
  return owned == chunks.size() && std::cmp_equal(owned, disturbances_.chunks);
}

bool SimulatedJob::all_parts_live() const {
  std::set<int32_t> live;
  bool any = false;  // of a state without chunks one is enough
  for (const auto& [id, worker] : workers_) {
    const auto told = formed_.find(worker.moved.first);  // else the agent cannot know that all have moved
    const bool is_told = worker.moved.second == 0 || (told != formed_.end() && told->second == worker.moved.second);
    if (worker.done || worker.partial || worker.spoilt || !is_told || is_frozen(worker) || worker.state != lineage_)
      continue;
    live.insert(worker.chunks.begin(), worker.chunks.end());
    any = true;
  }
  return any && std::cmp_equal(live.size(), disturbances_.chunks);
}

void SimulatedJob::write_part(Worker& worker, int64_t step, const std::string& file) {
  if (worker.is_short && disturbances_.short_of_disk)
    return worker.outbox.push_back(PartWritten{step, file, "no descriptor is left", worker.form.generation});
  auto& written = parts_[{worker.form.generation, step}];
  if (!worker.spoilt) written.insert(worker.chunks.begin(), worker.chunks.end());
  const bool first = &worker == &workers_.begin()->second;
  const sharded::Ownership other = *sharded::Ownership::deal(disturbances_.chunks, std::max(1, disturbances_.chunks));
  const sharded::Ownership& map = first && disturbances_.other_map ? other : worker.map;
  const uint64_t cut = digest_of_cut(map.runs_of(worker.place));
  const uint64_t beside = first && disturbances_.other_rest ? 101 : 100;
  worker.outbox.push_back(PartWritten{step, file, "", worker.form.generation, cut, beside});
  worker.written = {worker.form.generation, step};
}

void SimulatedJob::assemble(Worker& worker, const Assemble& order) {
  if (worker.written.second != order.step || !std::cmp_equal(parts_[worker.written].size(), disturbances_.chunks))
    violate("a snapshot is put together before all its parts are there");
  snapshots_[order.step] = {worker.state.begin(), worker.state.begin() + order.step};
  worker.outbox.push_back(SnapshotWritten{order.step, order.file, ""});
}

// Lets a worker go one step further by itself, if its peers allow.
void SimulatedJob::progress(WorkerId, Worker& worker) {
  if (disturbances_.shortages > 0 && !worker.is_short && random_() % disturbances_.one_in == 0) {
    --disturbances_.shortages;
    worker.is_short = true;
  }
  if (worker.is_short && (worker.at == At::kJoining || worker.at == At::kReducing)) {
    worker.outbox.push_back(Broken{worker.form.generation, "no descriptor is left", BreakCause::kShortage});
    worker.at = At::kWaiting;
    return;
  }
  if (worker.at == At::kJoining) {
    int64_t joined = 0;
    for (const auto& [id, other] : workers_) {
      if (other.done || other.form.generation != worker.form.generation || other.form.rank < 0) continue;
      if (other.at >= At::kJoining || other.formed == worker.form.generation) ++joined;
    }
    if (joined < worker.form.world_size) return;
    if (!worker.form.owners.empty()) {
      if (moves_of(worker.form).moves.empty()) return finish_move(worker);
      worker.partial = true;
      worker.outbox.push_back(Copying{worker.form.generation, true});
      worker.at = At::kCopying;
      return;
    }
    if (disturbances_.in_place && worker.form.wants_state) {
      worker.partial = true;
      worker.outbox.push_back(Copying{worker.form.generation, true});
      worker.at = At::kCopying;
      return;
    }
    if (worker.form.wants_state) worker.state = donated_.at(worker.form.generation).at(0);
    stand(worker);
  } else if (worker.at == At::kCopying && disturbances_.spoilt_moves > 0 && !worker.form.owners.empty() &&
             receives(worker.form)) {
    --disturbances_.spoilt_moves;
    worker.outbox.push_back(Broken{worker.form.generation, "chunk 4 came with other bytes", BreakCause::kFault});
    worker.at = At::kWaiting;
  } else if (worker.at == At::kCopying && !worker.form.owners.empty()) {
    const auto moves = [&worker](const auto& entry) {
      const Worker& other = entry.second;
      return !other.done && other.form.generation == worker.form.generation && other.at >= At::kCopying;
    };
    const auto formed = [&worker](const auto& entry) {  // who leaves waits again
      const Worker& other = entry.second;
      return !other.done && other.form.generation == worker.form.generation && other.at == At::kWaiting &&
             !other.partial;
    };
    const auto there = std::count_if(workers_.begin(), workers_.end(), [&](const auto& entry) {
      return moves(entry) || (worker.form.stay < worker.form.world_size && formed(entry));
    });
    if (there >= worker.form.world_size) finish_move(worker);
  } else if (worker.at == At::kCopying) {
    worker.state = donated_.at(worker.form.generation).at(0);
    worker.partial = false;
    stand(worker);
  } else if (worker.at == At::kComputing && disturbances_.busies > 0 && random_() % disturbances_.one_in == 0) {
    --disturbances_.busies;
    worker.busy_until = events_ + kBusy;
    worker.outbox.push_back(BusyWith{"evaluation", disturbances_.busy_says_s});
  } else if (worker.at == At::kComputing) {
    if (disturbances_.corrupt && !corrupted_ && !worker.state.empty() && random_() % disturbances_.one_in == 0) {
      corrupted_ = true;
      worker.state.back().generation = -1;
    }
    const auto step = static_cast<int64_t>(worker.state.size());
    if (disturbances_.refusing > 0 && step == disturbances_.refuses_at) {
      worker.done = true;
      worker.exit = {false, disturbances_.exit_code,
                     fmt::format("process {}: the budget is too small", disturbances_.refusing)};
      const std::string option = disturbances_.alike ? "budget" : fmt::format("option_{}", disturbances_.refusing);
      if (!disturbances_.silent) worker.outbox.push_back(Refused{5, Origin::kInput, option});
      --disturbances_.refusing;
      return;
    }
    const auto own = assignment_of(step, {.world_size = worker.form.world_size}, worker.rates);
    worker.outbox.push_back(Reducing{worker.form.generation, step, digest_of(*own)});
    worker.at = At::kReducing;
  } else if (worker.at == At::kReducing && peers_reached(worker, At::kReducing)) {
    if (disturbances_.sharded && !owns_once(worker.form.generation))
      return violate("a part of the state has no owner, or two");
    const StepFacts facts = *facts_of(static_cast<int64_t>(worker.state.size()));
    const auto now = static_cast<int64_t>(worker.state.size());
    const bool compared =
        now % disturbances_.digest_every == 0 || (worker.form.compare && now == worker.form.next_step);
    worker.outbox.push_back(Vote{worker.form.generation,
                                 static_cast<int64_t>(worker.state.size()),
                                 facts.digest,
                                 1.0,
                                 facts.size.loss_tokens,
                                 0.1,
                                 share_time(facts),
                                 true,
                                 {},
                                 0,
                                 true,
                                 false,
                                 compared,
                                 compared ? digest_of_state(worker.state) : 0});
    const bool asks = now == disturbances_.ends_after && worker.form.rank == worker.form.world_size - 1;
    if (asks) std::get<Vote>(worker.outbox.back()).end = "good enough";
    worker.at = At::kVoted;
  }
}

void SimulatedJob::stand(Worker& worker) {
  if (static_cast<int64_t>(worker.state.size()) != worker.form.next_step)
    return violate("a worker joins with the wrong state");
  Formed formed{worker.form.generation};
  if (disturbances_.sharded) {
    formed.owners = worker.map.save();
  }
  worker.outbox.push_back(formed);
  if (disturbances_.corrupt_copy && !corrupted_ && worker.form.wants_state && !worker.state.empty()) {
    corrupted_ = true;
    worker.state.back().generation = -1;
  }
  const bool gave = worker.form.rank == 0 && worker.form.copy_state && !worker.state.empty();
  if (gave && disturbances_.corrupt_donor && !corrupted_ && random_() % 2 == 0) {
    corrupted_ = true;
    worker.state.back().generation = -1;
  }
  worker.at = At::kComputing;
}

void SimulatedJob::violate(std::string what) {
  if (violation_.empty()) violation_ = std::move(what);
}

// What the group asks for.

void SimulatedJob::send(WorkerId worker, const ToWorker& message) {
  if (const auto found = workers_.find(worker); found != workers_.end()) found->second.inbox.push_back(message);
}

void SimulatedJob::spawn() {
  const WorkerId id = next_id_++;
  starts_.push_back(now());
  group_.started(id);
  if (id >= initial_ && disturbances_.stillborn > 0) {
    --disturbances_.stillborn;
    return die(workers_[id]);
  }
  Ready ready{is_odd(id) ? "odd" : "data"};
  ready.sharded = disturbances_.sharded;
  workers_[id].outbox = {Hello{id}, ready};
}

Result<> SimulatedJob::open_plan(const std::string& fingerprint) {
  if (data_writers_.empty()) violate("a plan is made before the data set is there");
  if (fingerprint != "data") violate("a plan is made of other data than that of the most");
  return {};
}

Result<int64_t> SimulatedJob::next_generation(int64_t) {
  if (disturbances_.refusals > 0 && random_() % 2 == 0) {
    --disturbances_.refusals;
    return failed(Status::kResourceExhausted, "no descriptor is left");
  }
  return ++generation_;
}

Result<StepFacts> SimulatedJob::facts_of(int64_t step) {
  StepFacts facts;
  facts.batch_index = step;
  facts.size = {8, 8, 80, 80};
  facts.digest = static_cast<uint64_t>(step) * 977;
  return facts;
}

// Shares of random shape, whose cost moves from tokens to squares as the job goes on.
ShareTime SimulatedJob::share_time(const StepFacts& facts) {
  const auto tokens = static_cast<int64_t>(random_() % 1000) + 1;
  const double squares = static_cast<double>(tokens) * static_cast<double>(random_() % 500 + 1);
  const double part = std::min(1.0, static_cast<double>(facts.batch_index) / 40);
  const double time = (1 - part) * 250 * static_cast<double>(tokens) + part * squares;
  return {tokens, squares, static_cast<int64_t>(time) + 1};
}

Result<Assignment> SimulatedJob::assignment_of(int64_t step, const Sharing& how, CostRates rates) {
  // Other rates, another assignment: a rank with rates of its own is found out.
  Assignment made = share_out(facts_of(step)->size.rows, {.world_size = how.world_size});
  const auto turn = static_cast<size_t>(rates.per_token / 1000 + rates.per_square / 1000) % made.blocks.size();
  std::rotate(made.blocks.begin(), made.blocks.begin() + static_cast<std::ptrdiff_t>(turn), made.blocks.end());
  return made;
}

Result<> SimulatedJob::record(const CommitRecord& record) {
  if (record.step != static_cast<int64_t>(lineage_.size()))
    violate(fmt::format("commit {} after {} commits", record.step, lineage_.size()));
  lineage_.push_back({record.step, record.generation});
  return {};
}

Result<> SimulatedJob::record(const SnapshotRecord& record) {
  if (!snapshots_.contains(record.step)) {
    violate("a snapshot is recorded that nobody wrote");
  } else {
    std::erase(recorded_, record.step);
    recorded_.push_back(record.step);
  }
  return {};
}

void SimulatedJob::drop_snapshot(const SnapshotRecord& record) {
  std::erase(recorded_, record.step);
  snapshots_.erase(record.step);
}

Result<> SimulatedJob::record(const RestartRecord& record) {
  if (record.step > static_cast<int64_t>(lineage_.size())) violate("a restart goes forward");
  for (const auto& [id, worker] : workers_) {
    if (!disturbances_.sharded && !worker.done && !worker.partial && worker.state == lineage_)
      violate(fmt::format("the job goes back though worker {} lives", id));
  }
  if (disturbances_.sharded && all_parts_live()) violate("the job goes back though all parts of its state are there");
  ++restarts_;
  lineage_.resize(static_cast<size_t>(record.step), {0, 0});
  return {};
}

}  // namespace pliant::elastic
