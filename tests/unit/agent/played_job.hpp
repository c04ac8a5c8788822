// PlayedJob: a group of workers that a test plays, message by message.
#pragma once

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "elastic/agent/group.hpp"
#include "elastic/assignment_record.hpp"
#include "elastic/snapshot_draft.hpp"
#include "sharded/shards/ownership.hpp"

namespace pliant::elastic {

using sharded::Ownership;

inline constexpr uint64_t kBeside = 7;  ///< digest of what is no part

inline GroupOptions options_for(int64_t workers, int64_t snapshot_every) {
  GroupOptions options;
  options.workers = workers;
  options.micro_batch_of = {{1, 4}, {2, 4}, {3, 2}};
  options.start_timeout_s = options.hang_timeout_s = 1e9;
  options.snapshot_every = snapshot_every;
  return options;
}

/// A job whose workers a test plays: what the group does is written down, and nothing happens by itself.
class PlayedJob final : public GroupActions {
 public:
  PlayedJob(int64_t workers, int64_t snapshot_every) : PlayedJob(options_for(workers, snapshot_every)) {}
  explicit PlayedJob(GroupOptions options, int64_t committed = 0, std::optional<SnapshotRecord> snapshot = {})
      : group(std::move(options), *this, committed, std::move(snapshot)) {}

  void send(WorkerId worker, const ToWorker& message) override { sent.emplace_back(worker, message); }
  void spawn() override { ++spawned; }
  int64_t owed() const override { return 0; }
  [[nodiscard]] std::string resume_command() const override { return "pliant run toy --resume"; }
  void kill(WorkerId worker) override { killed.push_back(worker); }
  void wake(WorkerId) override {}
  bool is_stopped(WorkerId) override { return false; }
  Result<int64_t> next_generation(int64_t) override { return ++generation; }
  Result<> open_plan(const std::string&) override { return {}; }
  Result<> record(const EndRecord& record) override {
    ends.push_back(record);
    return {};
  }
  bool has_step(int64_t step) override { return step < steps; }
  Result<StepFacts> facts_of(int64_t step) override {
    StepFacts facts;
    facts.batch_index = step;
    facts.size = {8, 8, 80, 80};
    return facts;
  }
  Result<Assignment> assignment_of(int64_t, const Sharing& how, CostRates) override {
    return share_out(8, {.world_size = how.world_size});
  }
  Result<> record(const CommitRecord& record) override {
    commits.push_back(record);
    return {};
  }
  Result<> record(const GenerationRecord&) override { return {}; }
  Result<> record(const SnapshotRecord& record) override {
    snapshots.push_back(record.step);
    return {};
  }
  Result<> record(const RestartRecord& record) override {
    restarts.push_back(record.step);
    return {};
  }
  Result<> record(const NotFiniteRecord&) override { return {}; }
  Result<> record(const Evaluation& record) override {
    evaluations.push_back(record);
    return {};
  }
  std::string snapshot_path(int64_t step) const override { return fmt::format("step-{}", step); }
  void drop_snapshot(const SnapshotRecord&) override {}
  void confirmed(const SnapshotRecord&) override {}
  bool has_snapshot(const SnapshotRecord&) const override { return true; }
  void committed(const CommitRecord&, int64_t) override {}
  void busy(const std::vector<BusyWorker>& workers) override { shown.push_back(workers); }
  void event(const std::string& line, bool) override { log += line + "\n"; }
  void interrupted() override {}
  double now() const override { return seconds; }
  std::optional<std::string> how_visits_differ(const std::vector<WorkerId>&, int64_t, bool) override { return parted; }
  void agent_kill_point(int64_t, const char*) override {}

  /// Workers first..end-1 are started and ready.
  void start(WorkerId first, WorkerId end) {
    for (WorkerId id = first; id < end; ++id) group.started(id);
    Ready ready{"data"};
    ready.sharded = true;
    for (WorkerId id = first; id < end; ++id) {
      group.received(id, Hello{id});
      group.received(id, ready);
    }
    for (const WorkerId id : told<WriteData>()) group.received(id, DataWritten{});
  }
  /// What was sent of that kind since it was last asked, with whom it went to.
  template <class Message>
  std::vector<std::pair<WorkerId, Message>> take() {
    std::vector<std::pair<WorkerId, Message>> taken;
    std::erase_if(sent, [&taken](const auto& one) {
      const auto* const message = std::get_if<Message>(&one.second);
      if (message != nullptr) taken.emplace_back(one.first, *message);
      return message != nullptr;
    });
    return taken;
  }
  template <class Message>
  std::vector<WorkerId> told() {
    std::vector<WorkerId> ids;
    for (const auto& one : take<Message>()) ids.push_back(one.first);
    return ids;
  }
  /// The ranks of the generation that was formed last have joined it; workers by rank.
  std::vector<WorkerId> join() {
    std::vector<WorkerId> ranks;
    for (const auto& [id, form] : take<Form>()) {
      if (form.generation != generation || form.rank < 0) continue;
      ranks.resize(std::max(ranks.size(), static_cast<size_t>(form.rank) + 1), -1);
      ranks[static_cast<size_t>(form.rank)] = id;
    }
    REQUIRE_FALSE(ranks.empty());
    group.received(ranks.front(), CommIdMade{generation, "id"});
    for (const WorkerId id : ranks) group.received(id, Joining{generation});
    return ranks;
  }
  /// They join it, and own from now on what `map` says.
  void form(const Ownership& map) {
    for (const WorkerId id : join()) group.received(id, Formed{generation, map.save()});
  }
  /// All ranks vote for the next step.
  void commit(const std::vector<WorkerId>& ranks) {
    const int64_t step = group.committed();
    const Assignment own = share_out(8, {.world_size = static_cast<int64_t>(ranks.size())});
    for (const WorkerId id : ranks) group.received(id, Reducing{generation, step, digest_of(own)});
    for (const WorkerId id : ranks) group.received(id, Vote{generation, step, 0, 1.0, 80});
    REQUIRE(group.committed() == step + 1);
  }
  /// `worker` has written what rank `rank` of `map` owns.
  void write(WorkerId worker, int64_t of_generation, const Ownership& map, int32_t rank) {
    const int64_t step = group.committed();
    group.received(
        worker, PartWritten{step, snapshot_path(step), "", of_generation, digest_of_cut(map.runs_of(rank)), kBeside});
  }

  /// Time goes by, with a tick every half second.
  void pass(double time) {
    for (const double end = seconds + time; seconds < end;) {
      seconds += 0.5;
      group.tick();
    }
  }

  double seconds = 0;
  int64_t steps = INT64_MAX;
  std::optional<std::string> parted;  ///< by the pages of visits
  int64_t generation = 0;
  int64_t spawned = 0;
  std::vector<std::pair<WorkerId, ToWorker>> sent;
  std::vector<WorkerId> killed;
  std::vector<int64_t> snapshots;
  std::vector<int64_t> restarts;
  std::vector<CommitRecord> commits;
  std::vector<Evaluation> evaluations;
  std::vector<EndRecord> ends;
  std::string log;
  std::vector<std::vector<BusyWorker>> shown;  ///< who was busy, each time that the group said so
  Group group;
};

using Workers = std::vector<WorkerId>;
inline const ExitStatus kKilled{true, 9};

inline Ownership dealt(int32_t chunks, int32_t ranks) {
  return *Ownership::deal(chunks, ranks);
}

}  // namespace pliant::elastic
