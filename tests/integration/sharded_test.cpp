// Jobs whose state is cut over the workers: the same bits with every coordinator, on every accelerator, at every number
// of workers and after every loss, and what is refused.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "integration/sharded_jobs.hpp"

using namespace pliant::test;

namespace {

void set_all(const std::map<std::string, std::string>& environment) {
  for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
}
void unset_all(const std::map<std::string, std::string>& environment) {
  for (const auto& [name, value] : environment) ::unsetenv(name.c_str());
}

/// What rank 0 says of its steps, of a job with --show-logs.
std::string lines_of(const Ended& ended) {
  std::string lines;
  std::istringstream all(ended.err);
  for (std::string line; std::getline(all, line);) {
    if (has(line, "rank 0| step ")) lines += line + "\n";
  }
  return lines;
}

/// The numbers that lines with `words` end with, in their order.
std::vector<float> numbers_after(const std::string& lines, const std::string& words) {
  std::vector<float> numbers;
  for (size_t at = 0; (at = lines.find(words, at)) != std::string::npos;) {
    at += words.size();
    numbers.push_back(std::stof(lines.substr(at)));
  }
  return numbers;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsSanitized = true;  // a job takes seconds: one machine of each kind
#else
constexpr bool kIsSanitized = false;
#endif

/// An accelerator of sharded jobs, most of them software doubles.
struct ShardedMachine {
  std::string name;
  std::vector<std::string> sets;
  std::map<std::string, std::string> environment;
};
std::vector<ShardedMachine> sharded_machines() {
  const std::string cuda = "accelerator.use=\"cuda\"";
  std::vector<ShardedMachine> machines;
  if (!kIsSanitized) machines.push_back({"host", {}, {}});
  for (const char* const visible : {"true", "false"}) {
    if (kIsSanitized && has(visible, "true")) continue;
    machines.push_back({fmt::format("sim, host_visible = {}", visible),
                        {"accelerator.use=\"sim\"",
                         fmt::format("accelerator.path=\"{}/accelerator-sim.pliant.so\"", PLIANT_TESTKIT_PLUGIN_DIR),
                         "accelerator.sim.reorder=true", "accelerator.sim.max_delay_us=100",
                         fmt::format("accelerator.sim.host_visible={}", visible)},
                        {}});
  }
#ifdef PLIANT_SOFT_CUDA_DIR
  const std::map<std::string, std::string> one{{"LD_LIBRARY_PATH", PLIANT_SOFT_CUDA_DIR}};
  std::map<std::string, std::string> four = one;
  four["PLIANT_SOFT_CUDA_DEVICES"] = "4";
  if (!kIsSanitized) machines.push_back({"cuda, one device", {cuda}, one});
  machines.push_back({"cuda, four devices", {cuda}, four});
#endif
  if (std::filesystem::exists("/dev/nvidia0")) machines.push_back({"cuda, a GPU", {cuda}, {}});
#ifdef PLIANT_SOFT_LEVEL_ZERO
  machines.push_back(
      {"level_zero", {"accelerator.use=\"level_zero\""}, {{"ZE_ENABLE_ALT_DRIVERS", PLIANT_SOFT_LEVEL_ZERO}}});
#endif
  return machines;
}

}  // namespace

TEST_CASE("the bits of a sharded job depend neither on the coordinator nor on the number of workers") {
  REQUIRE(has(undisturbed(), "weights"));
  for (const auto& job_of : std::vector<std::pair<int64_t, std::string>>{
           {1, "zero3"}, {2, "zero3"}, {2, "eager"}, {4, "zero3"}, {4, "eager"}}) {
    const int64_t workers = job_of.first;
    const std::string& coordinator = job_of.second;
    CAPTURE(workers);
    CAPTURE(coordinator);
    JobRunner job;
    CHECK(state_after(job, sharded_job(workers, {fmt::format("coordinator.use=\"{}\"", coordinator)})) ==
          undisturbed());
  }
}

TEST_CASE(
    "a sharded job that loses a worker goes back to its newest snapshot and ends with the bits of one that did not") {
  for (const char* const point : {"forward", "reduce", "vote", "commit", "apply"}) {
    CAPTURE(point);
    JobRunner job;
    std::vector<std::string> command = sharded_job(4);
    command.insert(command.end(), {"--inject", fmt::format("kill:rank=2,step=6,at={}", point)});
    CHECK(state_after(job, command) == undisturbed());
    REQUIRE(job.ledger("restart").size() == 1);
    CHECK(job.ledger("restart").front().at("step") == 4);
  }
}

TEST_CASE("a sharded job that loses a worker before its first snapshot begins anew") {
  JobRunner job;
  std::vector<std::string> command = sharded_job(2);
  command.insert(command.end(), {"--inject", "kill:rank=0,step=2"});
  CHECK(state_after(job, command) == undisturbed());
  CHECK(job.ledger("restart").front().at("step") == 0);
}

TEST_CASE("a rate that follows the norms of micro-batches is the same at every number of workers") {
  const std::vector<std::string> rule{"lr.use=\"adascale\"", "lr.optimizer=\"sgd_momentum\"", "lr.base_batch=30",
                                      "lr.base_lr=0.001"};
  std::vector<std::string> states;
  for (const int64_t workers : {1, 2, 4}) {
    JobRunner job;
    states.push_back(state_after(job, sharded_job(workers, rule)));
    CHECK(states.back() == states.front());
    CHECK(states.back() != undisturbed());
    CHECK(job.ledger("commit").back().at("lr").get<double>() > 0.001);
  }
}

TEST_CASE("with bf16 a job has the same bits at every number of workers, other ones than with f32, and learns") {
  const std::vector<std::string> bf16{"coordinator.compute_dtype=\"bf16\"", "coordinator.reduce_dtype=\"bf16\""};
  std::vector<std::string> states;
  for (const int64_t workers : {1, 2, 4}) {
    JobRunner job;
    states.push_back(state_after(job, sharded_job(workers, bf16)));
    CHECK(states.back() == states.front());
    CHECK(states.back() != undisturbed());
    const auto commits = job.ledger("commit");
    CHECK(commits.back().at("loss").get<double>() < commits.front().at("loss").get<double>());
  }
}

TEST_CASE("a program that knows f32 only says so where the config asks for bf16") {
  JobRunner job;
  const std::string tinylm = std::string(PLIANT_SOURCE_DIR) + "/samples/tinylm/zero3.toml";
  if (!std::filesystem::exists(std::string(PLIANT_BIN_DIR) + "/tinylm")) return;
  std::ofstream(job.folder() / "some.txt") << std::string(4000, 'a') << ". And so on.\n";
  const Ended ended = job.run({"run", tinylm, "--json", "--set", "coordinator.compute_dtype=\"bf16\"", "--set",
                               fmt::format("data.text=\"{}\"", (job.folder() / "some.txt").string())});
  INFO(ended.err);
  CHECK(ended.exit_code == 2);
  CHECK(has(ended.err, "tinylm computes in f32: leave compute_dtype and reduce_dtype of [coordinator] out"));
}

TEST_CASE("evaluation between steps says the same and leaves training its bits, whoever trains with whatever") {
  std::string evaluated;
  for (const int64_t workers : {1, 2, 3}) {
    for (const char* const coordinator : {"eager", "zero3"}) {
      CAPTURE(workers);
      CAPTURE(coordinator);
      JobRunner job;
      std::vector<std::string> command = sharded_job(workers, {fmt::format("coordinator.use=\"{}\"", coordinator),
                                                               "app.eval_every=5", "app.show=\"layer.2.weights\""});
      command.emplace_back("--show-logs");
      const Ended ended = job.run(command);
      INFO(ended.err);
      REQUIRE(ended.exit_code == 0);
      CHECK(last_state(job) == undisturbed());
      if (evaluated.empty()) evaluated = lines_of(ended);
      CHECK(lines_of(ended) == evaluated);
    }
  }
  for (const char* const words :
       {"step 5: held-out loss 0.", "step 10: held-out loss 0.", "step 10: layer.2.weights begins with 0."}) {
    CHECK(has(evaluated, words));
  }
}

TEST_CASE("the summary says how many passes followed the order that the coordinator had recorded") {
  const auto passes_of = [](const std::vector<std::string>& sets) {
    JobRunner job;
    const Ended ended = job.run(sharded_job(2, sets));
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    return ended.summary.value("passes_of_a_rank", nlohmann::json());
  };
  const nlohmann::json steady = passes_of({});
  const int64_t all = steady.at("all");
  CHECK(all >= kShardedSteps);
  CHECK(steady.at("followed") == all - 1);  // the first is recorded
  const nlohmann::json untied = passes_of({"app.untie_after=6"});
  CHECK(untied.at("all") == all);
  CHECK(untied.at("followed") == all - 2);  // and the first after the change
  CHECK(passes_of({"coordinator.use=\"eager\""}).is_null());
}

namespace {

/// A job whose coordinator counts passes, decides by that, and keeps the count.
std::vector<std::string> remembering_job(int64_t workers, std::vector<std::string> sets = {}) {
  sets.emplace_back("coordinator.use=\"remembering\"");
  std::vector<std::string> words = sharded_job(workers, sets);
  words.insert(words.end(), {"--plugin-dir", PLIANT_TEST_REMEMBERING_DIR, "--show-logs"});
  return words;
}

/// Passes of the worker with most of them that began with nothing remembered.
int64_t passes_anew(const Ended& ended) {
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  const nlohmann::json& passes = ended.summary.at("passes_of_a_rank");
  return passes.at("all").get<int64_t>() - passes.at("followed").get<int64_t>();
}

}  // namespace

TEST_CASE("what a coordinator has learnt goes on with the ranks that leave or join, and comes back with a snapshot") {
  for (const char* const disturbance : {"leave:rank=2,step=6", "kill:rank=2,step=6", "leave:rank=1,step=7"}) {
    CAPTURE(disturbance);
    JobRunner job;
    const Ended ended = job.run(disturbed(remembering_job(4), {disturbance}));
    CHECK(passes_anew(ended) == 1);  // the first of all
    CHECK(last_state(job) == undisturbed());
    CHECK_FALSE(has(ended.err, "begins anew"));
  }
}

TEST_CASE("a job that is resumed goes on with what its coordinator had learnt, or says why not") {
  struct Again {
    std::vector<std::string> sets;
    int64_t anew;
    const char* said;
  };
  const std::string longer = "run.max_steps=16";
  const std::string expected = [&] {
    JobRunner job;
    return state_after(job, sharded_job(1, {longer, "coordinator.use=\"eager\""}));
  }();
  const std::string refuses = "coordinator.remembering.refuses=true";
  for (const Again& again :
       {Again{{longer}, 0, ""}, Again{{longer, refuses}, 1, "it remembers nothing of that"},
        Again{{longer, "run.workers=2"}, 0, ""},
        Again{{longer, "coordinator.budget=1000000"}, 1, "of another coordinator, or of another model"}}) {
    JobRunner job;
    CHECK(passes_anew(job.run(remembering_job(4))) == 1);
    std::vector<std::string> words = remembering_job(4, again.sets);
    words.emplace_back("--resume");
    const Ended resumed = job.run(words);
    CHECK(passes_anew(resumed) == again.anew);
    CHECK(has(resumed.err, "'remembering' does not go on with what was kept of it and begins anew: ") ==
          (again.anew > 0));
    CHECK(has(resumed.err, again.said));
    CHECK(last_state(job) == expected);
  }
}

TEST_CASE("ranks that have kept different things begin anew together, and so do those with another model by now") {
  JobRunner job;
  const Ended ended =
      job.run(disturbed(remembering_job(4, {"coordinator.remembering.differs=true"}), {"leave:rank=2,step=6"}));
  CHECK(passes_anew(ended) == 2);
  CHECK(has(ended.err, "begins anew: not every rank has the same, or can go on with it"));
  CHECK(last_state(job) == undisturbed());
  JobRunner calm;
  const std::string untied = "app.untie_after=5";
  const std::string expected = state_after(calm, sharded_job(1, {untied, "coordinator.use=\"eager\""}));
  for (const char* const disturbance : {"leave:rank=2,step=8", "kill:rank=1,step=9"}) {
    JobRunner other;
    // The first, and the first after the change; more where who joins has not made the change yet.
    CHECK(passes_anew(other.run(disturbed(remembering_job(4, {untied}), {disturbance}))) >= 2);
    CHECK(last_state(other) == expected);
  }
}

TEST_CASE("averages of the weights follow them step by step, and leave training its bits") {
  const auto near = [](double value) { return doctest::Approx(value).epsilon(1e-6); };
  const auto said_by = [](const std::string& parameter, const std::vector<std::string>& more) {
    JobRunner job;
    std::vector<std::string> sets{"app.eval_every=1", fmt::format("app.show=\"{}\"", parameter)};
    sets.insert(sets.end(), more.begin(), more.end());
    std::vector<std::string> command = sharded_job(2, sets);
    command.emplace_back("--show-logs");
    const Ended ended = job.run(command);
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    return lines_of(ended);
  };
  const std::string plain = said_by("layer.1.weights", {});
  const std::string with = said_by("layer.1.weights", {"lr.ema=0.75"});
  CHECK(numbers_after(with, "held-out loss ") == numbers_after(plain, "held-out loss "));
  const std::vector<float> weights = numbers_after(with, "layer.1.weights begins with ");
  const std::vector<float> averages =
      numbers_after(said_by("layer.1.weights.average", {"lr.ema=0.75"}), "layer.1.weights.average begins with ");
  REQUIRE(weights.size() == kShardedSteps);
  REQUIRE(averages.size() == kShardedSteps);
  for (size_t step = 1; step < weights.size(); ++step) {
    CAPTURE(step);
    CHECK(averages[step] == near(averages[step - 1] + 0.25F * (weights[step] - averages[step - 1])));
    CHECK(averages[step] != near(weights[step]));
  }
  // Without memory they are the weights, and so are their losses.
  const std::string copied = said_by("layer.1.weights.average", {"lr.ema=0"});
  const std::vector<float> copies = numbers_after(copied, "layer.1.weights.average begins with ");
  const std::vector<float> losses = numbers_after(plain, "held-out loss ");
  const std::vector<float> losses_of_copies = numbers_after(copied, ", of the averages ");
  REQUIRE(copies.size() == kShardedSteps);
  REQUIRE(losses_of_copies.size() == kShardedSteps);
  for (size_t step = 0; step < copies.size(); ++step) {
    CAPTURE(step);
    CHECK(copies[step] == near(weights[step]));
    CHECK(losses_of_copies[step] == near(losses[step]));
  }
}

TEST_CASE("averages of the weights have the same bits, whoever trains with whatever, dies or leaves") {
  const std::vector<std::string> changes{"lr.ema=0.75", "app.eval_every=3"};
  std::string expected;
  for (const int64_t workers : {1, 3}) {
    for (const char* const coordinator : {"eager", "zero3"}) {
      CAPTURE(workers);
      CAPTURE(coordinator);
      std::vector<std::string> sets = changes;
      sets.push_back(fmt::format("coordinator.use=\"{}\"", coordinator));
      JobRunner job;
      const std::string state = state_after(job, sharded_job(workers, sets));
      if (expected.empty()) expected = state;
      CHECK(state == expected);
    }
  }
  for (const char* const injection : {"kill:rank=1,step=6,at=gather", "kill:rank=2,step=10", "leave:rank=0,step=6"}) {
    CAPTURE(injection);
    JobRunner job;
    CHECK(state_after(job, disturbed(sharded_job(4, changes), {injection})) == expected);
  }
}

TEST_CASE(
    "a module that has other parameters from a step on has the same bits, whoever trains with whatever and dies") {
  const std::vector<std::string> changes{"app.eval_every=1", "app.untie_after=6"};
  std::string untied;
  for (const int64_t workers : {1, 3}) {
    for (const char* const coordinator : {"eager", "zero3"}) {
      CAPTURE(workers);
      CAPTURE(coordinator);
      std::vector<std::string> sets = changes;
      sets.push_back(fmt::format("coordinator.use=\"{}\"", coordinator));
      JobRunner job;
      const std::string state = state_after(job, sharded_job(workers, sets));
      if (untied.empty()) untied = state;
      CHECK(state == untied);
    }
  }
  CHECK(untied != undisturbed());
  {  // Who is started anew comes with the parameters of before, the others with those of now: they decide alike.
    JobRunner job;
    const std::vector<std::string> seed{
        "app.untie_after=6", "coordinator.zero3.version=\"seed\"", "coordinator.zero3.param_persistence_threshold=-1",
        "coordinator.zero3.max_reuse_distance=0", "coordinator.zero3.reduce_bucket_size=1"};
    const Ended ended = job.run(disturbed(sharded_job(4, seed), {"kill:rank=2,step=10"}));
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    CHECK(last_state(job) == untied);
    CHECK(ended.summary.at("restarts") == 1);
    CHECK(job.ledger("restart").front().at("step") == 8);
  }
  for (const auto& death :
       std::vector<std::pair<std::string, int64_t>>{{"kill:rank=2,step=7", 4}, {"kill:rank=2,step=10", 8}}) {
    CAPTURE(death.first);
    JobRunner job;
    CHECK(state_after(job, disturbed(sharded_job(4, changes), {death.first})) == untied);
    CHECK(job.ledger("restart").front().at("step") == death.second);
  }
}

TEST_CASE("a parameter that the sample does not have is refused by the key that names it") {
  JobRunner job;
  const Ended ended = job.run(sharded_job(1, {"app.show=\"layer.9.weights\""}));
  INFO(ended.err);
  CHECK(ended.exit_code == 2);
  CHECK(has(ended.err, "app.show names no parameter"));
}

TEST_CASE("ranks that leave give what they own to the others: no step is lost, and the bits are as undisturbed") {
  struct Leave {
    std::vector<int> who;
    int64_t moved;  ///< chunks; the last of 4 ranks owns 3 of 9, the others 2
  };
  for (const Leave& leave : {Leave{{0}, 2}, Leave{{2}, 2}, Leave{{3}, 3}, Leave{{1, 3}, 5}}) {
    CAPTURE(leave.moved);
    JobRunner job;
    std::vector<std::string> command = sharded_job(4, {"run.snapshot_every=0"});
    for (const int rank : leave.who) {
      command.insert(command.end(), {"--inject", fmt::format("leave:rank={},step=6", rank)});
    }
    const Ended ended = job.run(command);
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    CHECK(last_line(job.latest() / "digests.jsonl") == undisturbed());
    CHECK(job.ledger("restart").empty());
    REQUIRE(job.ledger("generation").size() == 2);
    CHECK(job.ledger("generation").back().at("world_size") == 4 - leave.who.size());
    CHECK(job.ledger("generation").back().at("next_step") == 7);
    CHECK(ended.summary.at("bytes_moved") == leave.moved * 4096);
    CHECK(has(ended.err, "has left"));
  }
}

TEST_CASE("a rank that leaves as a snapshot is due loses neither") {
  JobRunner job;
  std::vector<std::string> command = sharded_job(4, {"run.snapshot_every=1"});
  command.insert(command.end(), {"--inject", "leave:rank=0,step=6"});
  CHECK(state_after(job, command) == undisturbed());
  CHECK(job.ledger("restart").empty());
}

TEST_CASE("a rank that dies while parts of the state move takes the job back to its newest snapshot") {
  for (const char* const rank : {"0", "2"}) {
    CAPTURE(rank);
    JobRunner job;
    std::vector<std::string> command = sharded_job(4);
    command.insert(command.end(),
                   {"--inject", "leave:rank=1,step=6", "--inject", fmt::format("kill:rank={},step=6,at=copy", rank)});
    CHECK(state_after(job, command) == undisturbed());
    REQUIRE(job.ledger("restart").size() == 1);
    CHECK(job.ledger("restart").front().at("step") == 4);
  }
}

TEST_CASE("a rank whose update broke off is ended by name, and nothing of what it left goes on or into a snapshot") {
  const auto command = [](const std::vector<std::string>& sets) {
    std::vector<std::string> all{fmt::format("run.command=[\"{}/breaking_worker\"]", PLIANT_TEST_BIN_DIR)};
    all.insert(all.end(), sets.begin(), sets.end());
    return sharded_job(2, all);
  };
  JobRunner well;
  const std::string expected = state_after(well, command({}));
  for (const bool leaves : {false, true}) {  // a snapshot is due after the step, or another rank takes its part over
    CAPTURE(leaves);
    JobRunner job;
    std::vector<std::string> broken = command({leaves ? "app.breaks_at=6" : "app.breaks_at=7"});
    if (leaves) broken.insert(broken.end(), {"--inject", "leave:rank=1,step=6"});
    const Ended ended = job.run(broken);
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    CHECK(last_line(job.latest() / "digests.jsonl") == expected);
    CHECK(has(ended.err, "what this rank owns is of no step: an update, or a move, did not come to its end"));
    REQUIRE(job.ledger("restart").size() == 1);
    CHECK(job.ledger("restart").front().at("step") == 4);
  }
}

TEST_CASE("a worker that comes late gets its share from the others, in place") {
  JobRunner job;
  // Whoever replaces another takes longer than the others are willing to wait.
  const std::filesystem::path slow = job.folder() / "slow.sh";
  std::ofstream(slow) << "#!/bin/sh\n[ \"$TORCHELASTIC_RESTART_COUNT\" = 0 ] || sleep 7\nexec sharded_trainer\n";
  std::filesystem::permissions(slow, std::filesystem::perms::owner_all);
  std::vector<std::string> command = sharded_job(
      4, {"run.max_steps=1000000", "run.epochs=1000000", fmt::format("run.command=[\"{}\"]", slow.string())});
  command.insert(command.end(), {"--inject", "kill:rank=2,step=6"});
  ::setenv("PATH", (std::string(PLIANT_BIN_DIR) + ":" + ::getenv("PATH")).c_str(), 1);
  const pid_t pid = job.start(command);
  REQUIRE(job.wait_for_commits(pid, 3));
  REQUIRE(JobRunner::wait_until(pid, [&job] {
    const auto generations = job.ledger("generation");
    const auto commits = job.ledger("commit");
    return generations.size() > 2 && !commits.empty() &&
           commits.back().at("generation") == generations.back().at("generation");
  }));
  ::kill(pid, SIGINT);
  const Ended ended = job.wait(pid);
  INFO(ended.err);
  CHECK(ended.exit_code == 130);
  const auto generations = job.ledger("generation");
  REQUIRE(generations.size() == 3);
  CHECK(generations[1].at("world_size") == 3);
  CHECK(generations[2].at("world_size") == 4);
  CHECK(generations[2].at("reason") == "a worker joined");
  CHECK(job.ledger("restart").size() == 1);            // for the death, and none for the join
  CHECK(ended.summary.at("bytes_moved") == 2 * 4096);  // of 9 chunks the fourth of 4 owns 2
  const std::string state = last_line(job.latest() / "digests.jsonl");
  const int64_t steps = nlohmann::json::parse(state).at("step").get<int64_t>() + 1;
  JobRunner other;
  CHECK(state_after(other, sharded_job(1, {"coordinator.use=\"eager\"", "run.epochs=1000000",
                                           fmt::format("run.max_steps={}", steps)})) == state);
}

TEST_CASE("a sharded job that is stopped keeps all parts of its state, and goes on with another number of workers") {
  JobRunner job;
  std::vector<std::string> command =
      sharded_job(4, {"run.max_steps=100000", "run.epochs=100000", "run.snapshot_every=0"});
  const pid_t pid = job.start(command);
  REQUIRE(job.wait_for_commits(pid, 3));
  ::kill(pid, SIGINT);
  const Ended ended = job.wait(pid);
  INFO(ended.err);
  CHECK(ended.exit_code == 130);
  REQUIRE(job.ledger("snapshot").size() == 1);
  const int64_t step = job.ledger("snapshot").front().at("step");
  CHECK(step >= 3);
  const int64_t more = step + 2;
  std::vector<std::string> again = sharded_job(2, {fmt::format("run.max_steps={}", more), "run.epochs=100000"});
  again.insert(again.end(), {"--resume", job.latest().string()});
  const Ended resumed = job.run(again);
  INFO(resumed.err);
  CHECK(resumed.exit_code == 0);
}

TEST_CASE("a budget that no layer fits in is refused by the name of the layer, before the job begins") {
  JobRunner job;
  const Ended ended = job.run(sharded_job(2, {"coordinator.budget=4096", "coordinator.use=\"eager\""}));
  INFO(ended.err);
  CHECK(ended.exit_code == 2);
  CHECK(has(ended.err, "[coordinator] budget = 4096"));
  CHECK(has(ended.err, "layer.0 alone uses 24064 bytes with its gradients (layer.0.weights)"));
}

TEST_CASE("a budget above what the device has left is refused by its name") {
  JobRunner job;
  const Ended ended = job.run(sharded_job(
      2, {"coordinator.budget=100000000", "coordinator.use=\"eager\"", "accelerator.host.memory_bytes=50000000"}));
  INFO(ended.err);
  CHECK(ended.exit_code == 2);
  CHECK(has(
      ended.err,
      "[coordinator] budget = 100000000 is more than the device has left (accelerator 'host': out of device memory"));
}

TEST_CASE("the summary says how many bytes of each kind a worker held") {
  JobRunner job;
  const Ended ended = job.run(sharded_job(1, {"coordinator.use=\"eager\"", "coordinator.budget=65536"}));
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  const nlohmann::json& bytes = ended.summary.at("bytes_of_a_rank");
  const auto shard = 9 * 1024 * sizeof(float);  // 9,000 weights in chunks
  CHECK(bytes.at("weights") >= shard);
  CHECK(bytes.at("weights") <= shard + 4096);  // and a stamp
  CHECK(bytes.at("optimizer") == 0);           // it has no state beside
  CHECK(bytes.at("gradients").get<uint64_t>() % shard == 0);
  CHECK(bytes.at("gradients") >= shard);
  CHECK(bytes.at("whole_at_once") >= 3 * 12032);  // the last layer's two parameters, a gradient
  CHECK(bytes.at("whole_at_once") <= 65536);
}

TEST_CASE("zero3 says that it keeps no budget below the whole model, and what does") {
  JobRunner job;
  const Ended ended = job.run(sharded_job(2, {"coordinator.budget=60000", "app.layers=9"}));
  INFO(ended.err);
  CHECK(ended.exit_code == 2);
  CHECK(has(ended.err, "keeps no budget of 60000 bytes"));
}

TEST_CASE("a budget that suffices changes no bit") {
  JobRunner job;
  CHECK(state_after(job, sharded_job(2, {"coordinator.budget=65536", "coordinator.use=\"eager\""})) == undisturbed());
}

TEST_CASE("a program that does not shard its model refuses a coordinator") {
  JobRunner job;
  const Ended ended = job.run(sharded_job(1, {"run.command=[\"device_trainer\"]"}));
  INFO(ended.err);
  CHECK(ended.exit_code == 2);
  CHECK(has(ended.err, "does not shard its model"));
}

TEST_CASE("a balancer that deals otherwise than in turn is refused in deterministic mode") {
  JobRunner job;
  const Ended ended = job.run(sharded_job(4, {"balancer.use=\"lpt\""}));
  INFO(ended.err);
  CHECK(ended.exit_code == 2);
  CHECK(has(ended.err, "[balancer] use = \"lpt\""));
}

TEST_CASE("a balancer that only changes who computes within a round changes no bit") {
  JobRunner job;
  CHECK(state_after(job, sharded_job(3, {"balancer.use=\"cost_sort\"", "balancer.cost_sort.window=1"})) ==
        undisturbed());
}

TEST_CASE("fast mode trains, too, and the ranks agree on their state") {
  JobRunner job;
  const Ended ended = job.run(sharded_job(4, {"run.deterministic=false"}));
  INFO(ended.err);
  CHECK(ended.exit_code == 0);
}

TEST_CASE(
    "a sharded job whose ranks leave and die at every point ends as undisturbed on every accelerator, also where work "
    "is late and runs in any order") {
  // Both ranks that are left are needed, so each of them is there whenever the other dies.
  std::vector<std::string> injections{"leave:rank=2,step=2"};
  for (const char* const death :
       {"rank=0,step=2,at=copy", "rank=1,step=5,at=gather", "rank=0,step=5,at=scatter", "rank=1,step=6,at=forward",
        "rank=0,step=6,at=reduce", "rank=1,step=7,at=vote", "rank=0,step=7,at=commit", "rank=1,step=8,at=snapshot",
        "rank=0,step=9,at=apply", "rank=0,step=12,at=finish"})
    injections.push_back(fmt::format("kill:{}", death));
  for (const ShardedMachine& machine : sharded_machines()) {
    for (const bool deterministic : {true, false}) {
      if (deterministic && machine.name == "host") continue;     // others do that
      if (!deterministic && has(machine.name, "sim")) continue;  // the ways of a device, and only to be late
      CAPTURE(machine.name);
      CAPTURE(deterministic);
      std::vector<std::string> sets = machine.sets;
      for (const char* const set : {"elasticity.\"v0.1\".min_gpus=2", "run.max_restarts=20"}) sets.emplace_back(set);
      sets.push_back(fmt::format("run.deterministic={}", deterministic));
      set_all(machine.environment);
      JobRunner job;
      const Ended ended = job.run(disturbed(sharded_job(3, sets), injections));
      unset_all(machine.environment);
      INFO(ended.err);
      REQUIRE(ended.exit_code == 0);
      CHECK(ended.summary.at("restarts") == injections.size() - 1);
      CHECK(!has(ended.err, "never struck"));
      check_commits(commits_of(job), undisturbed_job().commits, deterministic);
      if (deterministic) CHECK(last_state(job) == undisturbed());
    }
  }
}

TEST_CASE("a sharded job that was stopped goes on to the same bits on every accelerator, with more workers or fewer") {
  for (const ShardedMachine& machine : sharded_machines()) {
    CAPTURE(machine.name);
    set_all(machine.environment);
    JobRunner job;
    const auto with = [&machine](const std::string& set) {
      std::vector<std::string> sets = machine.sets;
      sets.push_back(set);
      return sets;
    };
    const Ended first = job.run(sharded_job(3, with("run.max_steps=7")));
    {
      INFO(first.err);
      REQUIRE(first.exit_code == 0);
    }
    for (const auto& [workers, steps] : {std::pair{4, 10}, std::pair{2, static_cast<int>(kShardedSteps)}}) {
      std::vector<std::string> again = sharded_job(workers, with(fmt::format("run.max_steps={}", steps)));
      again.insert(again.end(), {"--resume", job.latest().string()});
      const Ended resumed = job.run(again);
      INFO(resumed.err);
      REQUIRE(resumed.exit_code == 0);
    }
    unset_all(machine.environment);
    CHECK(last_state(job) == undisturbed());
    check_commits(commits_of(job), undisturbed_job().commits, true);
  }
}
