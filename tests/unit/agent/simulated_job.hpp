// SimulatedJob: a whole job without processes: the real Group, workers that follow the protocol, and a seeded order of
// events.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "elastic/agent/group.hpp"
#include "elastic/snapshot.hpp"
#include "sharded/shards/moves.hpp"

namespace pliant::elastic {

struct Disturbances {
  int kills = 0;                  ///< workers killed at random moments
  uint32_t one_in = 60;           ///< events between two kills, on average
  int stop_after = -1;            ///< request a stop after that many events; -1 = never
  int freezes = 0;                ///< workers stopped (SIGSTOP) at random moments
  bool freeze_all = false;        ///< all at once, once a step is committed, until they are continued
  int stillborn = 0;              ///< replacements that die before they say anything
  int refusals = 0;               ///< calls of the rendezvous that it refuses for lack of resources, at random
  int shortages = 0;              ///< workers whose collectives all fail from a random moment on, each for itself
  bool short_of_disk = false;     ///< sharded: these write no part of a snapshot either
  int agent_stops = 0;            ///< times that the agent is stopped for 2 s, in a tick that has looked at the clock
  bool corrupt = false;           ///< one worker comes to another state, once, at a random step
  bool corrupt_donor = false;     ///< one that gave its state to others comes to another one before it is compared
  int64_t digest_every = 1;       ///< [run] digest_every of the workers
  bool corrupt_last = false;      ///< one worker comes to another state by the update of the last step
  bool sharded = false;           ///< each worker holds a part of the state
  int32_t chunks = 11;            ///< sharded: that the state has
  int64_t leaves_at = -1;         ///< rank 1 leaves when that step is committed
  int64_t joins_after = -1;       ///< one more worker is started after that many events
  int64_t fails_after = -1;       ///< the agent gives up after that many events
  bool other_rest = false;        ///< sharded: one worker's small state is another than the others'
  bool other_map = false;         ///< sharded: one worker writes its parts by another map than the others
  int refusing = 0;               ///< workers that exit as they begin the step `refuses_at`, each in its own words
  int exit_code = 2;              ///< with this
  int64_t refuses_at = 3;         ///< see there
  bool alike = true;              ///< all refuse the same option
  bool silent = false;            ///< and say nothing to the agent
  uint64_t odd = 0;               ///< bits of workers, by the order of starting, that load other data
  int data_shortages = 0;         ///< writers of the data set that are short of something, the first ones
  bool data_changed = false;      ///< the data set on disk is another one
  bool corrupt_copy = false;      ///< the first copy of a state with steps in it goes wrong
  int spoilt_moves = 0;           ///< parts of the state that reach their new owner with other bytes, the first ones
  bool in_place = false;          ///< states are copied over what a worker held, which takes a while
  int busies = 0;                 ///< ranks that do what is no step for 8 s as they compute, at random moments
  int64_t ends_after = -1;        ///< a rank asks for the end of the job with the vote for this step
  double busy_says_s = 60;        ///< for which they announce so long
  int64_t longest_freeze = 6000;  ///< events, a thousandth of a second each; then it continues
};

class SimulatedJob final : public GroupActions {
 public:
  SimulatedJob(GroupOptions options, int64_t steps, uint32_t seed, Disturbances disturbances);

  /// Runs until the group has ended, or returns nullopt after an absurd number of events.
  std::optional<JobEnd> run();

  /// Step numbers of the commits that survive, in order; each with the generation that made it.
  struct Entry {
    int64_t step;
    int64_t generation;
    bool operator==(const Entry&) const = default;
  };
  [[nodiscard]] const std::vector<Entry>& lineage() const { return lineage_; }
  /// State of each worker at the moment it finished: what it applied, in order.
  [[nodiscard]] const std::vector<std::vector<Entry>>& finished_states() const { return finished_; }
  /// What the newest recorded snapshot holds.
  [[nodiscard]] std::vector<Entry> saved() const {
    return recorded_.empty() ? std::vector<Entry>() : snapshots_.at(recorded_.back());
  }
  [[nodiscard]] const std::vector<std::string>& log() const { return log_; }
  /// Every generation with the moment at which it was formed.
  [[nodiscard]] const std::vector<std::pair<double, GenerationRecord>>& generations() const { return generations_; }
  /// Rates that commits carried.
  [[nodiscard]] const std::set<std::pair<int64_t, int64_t>>& rates_seen() const { return rates_seen_; }
  /// When workers were started, in seconds.
  [[nodiscard]] const std::vector<double>& starts() const { return starts_; }
  [[nodiscard]] int kills_done() const { return kills_done_; }
  /// Those that were ready, in that order.
  [[nodiscard]] const std::vector<WorkerId>& ready() const { return ready_; }
  /// Those that wrote the data set.
  [[nodiscard]] const std::vector<WorkerId>& data_writers() const { return data_writers_; }
  /// Workers that were killed by the group although they ran.
  [[nodiscard]] int healthy_killed() const { return healthy_killed_; }
  /// The most events between two commits, or between the first and the last event and their neighbours.
  [[nodiscard]] int64_t longest_gap() const { return longest_gap_; }
  /// Sharded: parts that went to new owners, and generations that had to go back.
  [[nodiscard]] int64_t chunks_moved() const { return chunks_moved_; }
  [[nodiscard]] int restarts_of_lineage() const { return restarts_; }
  [[nodiscard]] int64_t restarts() const { return group_.restarts(); }
  [[nodiscard]] int64_t events() const { return events_; }
  /// A violated invariant, or empty.
  [[nodiscard]] const std::string& violation() const { return violation_; }

  void send(WorkerId worker, const ToWorker& message) override;
  void spawn() override;
  int64_t owed() const override { return 0; }
  [[nodiscard]] std::string resume_command() const override { return "pliant run toy --resume"; }
  void kill(WorkerId worker) override;
  void wake(WorkerId worker) override;
  bool is_stopped(WorkerId worker) override;
  Result<int64_t> next_generation(int64_t world_size) override;
  Result<> open_plan(const std::string& fingerprint) override;
  bool has_step(int64_t step) override { return step < steps_; }
  Result<StepFacts> facts_of(int64_t step) override;
  Result<Assignment> assignment_of(int64_t step, const Sharing& how, CostRates rates) override;
  Result<> record(const CommitRecord& record) override;
  Result<> record(const GenerationRecord& record) override {
    generations_.push_back({now(), record});
    return {};
  }
  Result<> record(const SnapshotRecord& record) override;
  Result<> record(const RestartRecord& record) override;
  Result<> record(const NotFiniteRecord& record) override {
    not_finite.push_back(record.step);
    return {};
  }
  Result<> record(const Evaluation& record) override {
    if (record.step > static_cast<int64_t>(lineage_.size())) violate("a state is evaluated that was never committed");
    if (record.values.at("valid") != static_cast<double>(record.step))
      violate("an evaluation is that of another state");
    evaluations.push_back(record);
    return {};
  }
  Result<> record(const EndRecord& record) override {
    if (record.step != static_cast<int64_t>(lineage_.size())) violate("the job is to end after another step");
    ends.push_back(record);
    return {};
  }
  std::vector<Evaluation> evaluations;
  std::vector<EndRecord> ends;
  std::vector<int64_t> not_finite;
  std::string snapshot_path(int64_t step) const override { return snapshot_file(step).string(); }
  void drop_snapshot(const SnapshotRecord& record) override;
  void confirmed(const SnapshotRecord& record) override { confirmed_.push_back(record.step); }
  bool has_snapshot(const SnapshotRecord& record) const override { return snapshots_.contains(record.step); }
  void committed(const CommitRecord&, int64_t) override { note_progress(); }
  void event(const std::string& line, bool) override { log_.push_back(line); }
  void interrupted() override {}
  double now() const override {
    const double seen = static_cast<double>(events_) * 0.001;
    if (std::exchange(stops_after_look_, false)) events_ += kAgentStop;
    return seen;
  }
  void agent_kill_point(int64_t, const char*) override {}

 private:
  enum class At { kWaiting, kNeedsId, kJoining, kCopying, kComputing, kReducing, kVoted };
  struct Worker {
    At at = At::kWaiting;
    Form form;
    CostRates rates;  ///< of the step that it computes
    std::vector<Entry> state;
    bool partial = false;                 ///< the state is a part of a copy
    std::set<int32_t> chunks;             ///< sharded: that it owns
    sharded::Ownership map;               ///< by this one
    int32_t place = 0;                    ///< as this rank of it
    int64_t formed = 0;                   ///< sharded: generation that took over parts, or kept its own
    std::pair<int64_t, int64_t> moved;    ///< sharded: the last generation in which parts moved, and its ranks
    bool spoilt = false;                  ///< sharded: it went on with a part that it has not
    std::pair<int64_t, int64_t> written;  ///< sharded: generation and step of the part that it wrote last
    bool is_short = false;
    std::deque<ToWorker> inbox;
    std::deque<FromWorker> outbox;
    bool done = false;  ///< will exit once its outbox is empty
    ExitStatus exit;
    int64_t frozen_until = 0;
    int64_t busy_until = 0;
    [[nodiscard]] int64_t holds() const { return partial ? -1 : static_cast<int64_t>(state.size()); }
  };

  bool act();
  ShareTime share_time(const StepFacts& facts);
  void deliver_to_agent(WorkerId id);
  void handle(WorkerId id, Worker& worker);
  void progress(WorkerId id, Worker& worker);
  void stand(Worker& worker);
  [[nodiscard]] bool is_odd(WorkerId id) const { return id < 64 && ((disturbances_.odd >> id) & 1U) != 0; }
  void take_shards(Worker& worker);
  void finish_move(Worker& worker);
  [[nodiscard]] sharded::MovePlan moves_of(const Form& form) const;
  [[nodiscard]] bool receives(const Form& form) const;
  [[nodiscard]] bool owns_once(int64_t generation) const;
  [[nodiscard]] bool all_parts_live() const;
  void write_part(Worker& worker, int64_t step, const std::string& file);
  void assemble(Worker& worker, const Assemble& order);
  void strike();
  void freeze();
  void die(Worker& worker);
  void note_progress();
  [[nodiscard]] bool is_frozen(const Worker& worker) const { return events_ < worker.frozen_until; }
  void remove(WorkerId id, ExitStatus status);
  [[nodiscard]] bool peers_reached(const Worker& worker, At at) const;
  void violate(std::string what);

  std::map<int64_t, int64_t> formed_;  ///< generation -> ranks of it that have said so before one was lost
  std::set<int64_t> broken_;           ///< generations of which a rank was lost
  std::map<std::pair<int64_t, int64_t>, std::set<int32_t>> parts_;  ///< (generation, step): chunks that are written
  int64_t steps_;
  std::mt19937 random_;
  Disturbances disturbances_;
  int64_t initial_;  ///< workers of the first group
  std::map<WorkerId, Worker> workers_;
  std::map<int64_t, std::vector<Entry>> snapshots_;                   ///< by step
  std::map<int64_t, std::map<int64_t, std::vector<Entry>>> donated_;  ///< generation -> donor's state when it joined
  std::vector<Entry> lineage_;
  std::vector<std::vector<Entry>> finished_;
  std::vector<int64_t> recorded_;  ///< steps of snapshots that were recorded
  std::vector<int64_t> confirmed_;
  std::set<std::pair<int64_t, int64_t>> rates_seen_;
  std::vector<std::string> log_;
  std::vector<std::pair<double, GenerationRecord>> generations_;
  std::string violation_;
  std::vector<double> starts_;
  std::vector<WorkerId> ready_;
  std::vector<WorkerId> data_writers_;
  WorkerId next_id_ = 0;
  int64_t generation_ = 0;
  static constexpr int64_t kAgentStop = 2000;  ///< events
  static constexpr int64_t kBusy = 8000;       ///< events
  mutable int64_t events_ = 0;
  mutable bool stops_after_look_ = false;
  int kills_done_ = 0;
  bool corrupted_ = false;
  int freezes_done_ = 0;
  int healthy_killed_ = 0;
  int64_t longest_gap_ = 0;
  int64_t progress_at_ = 0;
  int64_t chunks_moved_ = 0;
  int restarts_ = 0;
  Group group_;
};

}  // namespace pliant::elastic
