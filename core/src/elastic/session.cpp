// The worker's side of the step protocol. See docs/explanation/commit-protocol.md.
#include "pliant/session.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <utility>
#include <vector>

#include "base/environment.hpp"
#include "base/inside.hpp"
#include "base/log.hpp"
#include "base/result.hpp"
#include "config/open.hpp"
#include "data/digest.hpp"
#include "data/input_file.hpp"
#include "data/position.hpp"
#include "elastic/agent/warden.hpp"
#include "elastic/assignment_record.hpp"
#include "elastic/calling.hpp"
#include "elastic/epoch_log.hpp"
#include "elastic/plugin_files.hpp"
#include "elastic/session_state.hpp"
#include "plan/scheduler.hpp"

namespace pliant {

namespace elastic {

Broken broken(int64_t generation, const Error& error) {
  const bool peer_lost = error.status() == Status::kAborted || error.status() == Status::kPeerLost;
  const bool shortage = error.status() == Status::kResourceExhausted;
  return {generation, error.message(),
          peer_lost  ? BreakCause::kPeerLost
          : shortage ? BreakCause::kShortage
                     : BreakCause::kFault};
}

}  // namespace elastic

namespace {

constexpr const char* kRunDirectory = "PLIANT_RUN_DIR";
constexpr const char* kLocalRank = "LOCAL_RANK";

}  // namespace

std::string Session::State::fingerprint() const {
  return fmt::format("{:016x}", batches->fingerprint());
}

std::string Session::State::digest_of_options() const {
  return elastic::digest_of_config(config.resolved_toml());
}

std::string Session::State::noted(std::string_view list) const {
  data::Digest of_list;
  of_list.add(list);
  std::string name = fmt::format("{:016x}", of_list.value());
  const std::filesystem::path file = directory.list_of(name);
  std::error_code error;
  if (std::filesystem::exists(file, error)) return name;
  std::filesystem::create_directories(file.parent_path(), error);
  const std::filesystem::path draft = fmt::format("{}.{}", file.string(), ::getpid());
  std::ofstream out(draft, std::ios::binary);
  out << list;
  out.close();
  if (out) std::filesystem::rename(draft, file, error);  // else a difference is named by the digests alone
  return name;
}

std::string Session::State::digest_of_arrays() const {
  return arrays->empty() ? std::string() : noted(arrays->layout());
}

std::string Session::State::facts_of_gradient() const {
  std::string size = fmt::format("{} elements", program->gradient_size());
  const std::string layout = program->gradient_layout();
  if (layout.empty()) return size;
  return fmt::format("{} of parameters of digest {}", size, noted(layout));
}

std::string Session::State::digest_of_policies() const {
  std::vector<int64_t> costs(static_cast<size_t>(4 * config.run().workers * facts.granule));
  for (size_t row = 0; row < costs.size(); ++row) costs[row] = static_cast<int64_t>(1 + row * 37 % 101);
  data::Digest answers;
  try {
    answers.add(elastic::digest_of(balancer->assign(costs, {.world_size = config.run().workers,
                                                            .micro_batch = facts.granule,
                                                            .granule = facts.granule,
                                                            .deterministic = config.run().deterministic,
                                                            .in_turn = false})));
    const Scaling of_mean = learning_rate->scaling(0, mean_batch);
    // Another machine's arithmetic may differ in the last bits.
    answers.add(std::string_view(fmt::format("{:.6g} {:.6g} {:.6g} {:.6g}", of_mean.learning_rate,
                                             of_mean.learning_rate_factor, of_mean.one_minus_beta1, of_mean.progress)));
  } catch (const Error& error) {  // that is the step's to meet
    answers.add(std::string_view(error.message()));
  }
  return fmt::format("{:016x}", answers.value());
}

void Session::State::open_device() {
  if (accelerator) return;
  Accelerator opened(config);
  const std::string& name = config.use("accelerator");
  const int32_t count = opened.device_count();
  if (count == 0) {
    const std::string why = opened.why_no_devices();
    throw Error(Status::kNotFound,
                fmt::format("accelerator '{}' finds no device on this machine{}{}; `pliant accel list` shows the "
                            "devices of all accelerators",
                            name, why.empty() ? "" : ": ", why),
                Origin::kPlugin);
  }
  const char* const local_rank = environment_variable(kLocalRank);
  const int64_t own = local_rank == nullptr ? 0 : std::strtoll(local_rank, nullptr, 10) % count;
  const int64_t chosen = config.accelerator().device.value_or(std::max<int64_t>(own, 0));
  if (chosen >= count) {
    throw Error(
        Status::kInvalidArgument,
        fmt::format(
            "[accelerator] device = {}, but '{}' has {} on this machine; omit it to give each rank its own device",
            chosen, name, count == 1 ? "only device 0" : fmt::format("devices 0..{}", count - 1)),
        Origin::kInput);
  }
  device = static_cast<int32_t>(chosen);
  try {
    device_properties = opened.properties(device);
    staging.emplace(opened, elastic::StateArrays::kChunkBytes);
    stream.emplace(opened, device);
    program_stream.emplace(opened, device);
  } catch (const Error& error) {  // it is the machine that does not serve, which no restart mends
    throw error.with_origin(Origin::kPlugin);
  }
  accelerator.emplace(std::move(opened));
  array_digests.emplace(*accelerator, device, *program_stream, device_properties.host_visible);
}

elastic::ToWorker Session::State::receive() {
  if (put_back) return *std::exchange(put_back, std::nullopt);
  while (true) {
    elastic::ToWorker message = channel.receive();
    const auto* const order = std::get_if<elastic::Assemble>(&message);
    if (order == nullptr) return message;
    finish_snapshot(*order);
  }
}

void Session::State::strike(elastic::InjectionPoint at) {
  using elastic::InjectionPoint;
  const auto is_due = [&](const elastic::Injection& one) {
    if (at == InjectionPoint::kCopy) return one.step <= form.next_step;
    if (at == InjectionPoint::kSnapshot || at == InjectionPoint::kFinish) return one.step <= applied;
    return one.step == applied;
  };
  const auto found = std::find_if(form.injections.begin(), form.injections.end(),
                                  [&](const elastic::Injection& one) { return one.at == at && is_due(one); });
  if (found == form.injections.end()) return;
  const elastic::Injection injection = *found;
  form.injections.erase(found);  // whoever is continued is struck once
  channel.send(elastic::Injected{injection.id});
  ::kill(::getpid(), injection.stop ? SIGSTOP : SIGKILL);
}

void Session::State::wait_for_program() noexcept {
  try {
    program_stream->synchronize();
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): no step comes that it could harm
  }
}

void Session::State::tell_refusal(const Error& error) {
  if (error.origin() != Origin::kInput && error.origin() != Origin::kPlugin) return;
  channel.send(elastic::Refused{static_cast<int>(error.status()), error.origin(), error.options()});
}

void Session::State::tell_broken(const Error& error) {
  if (communicator.is_over(form.generation)) return;
  elastic::Broken message = elastic::broken(form.generation, error);
  if (refuses_snapshot) message.cause = elastic::BreakCause::kRefused;
  channel.send(message);
}

Session::Session(std::unique_ptr<State> state) : state_(std::move(state)) {
  state_->step.reset(new Step(*this));
}
Session::~Session() {
  if (!state_) return;
  if (state_->sharded != nullptr) state_->sharded->leave_group();
  if (state_->reduction && state_->reduction->has_begun()) {
    state_->communicator.abort(state_->form.generation);
    state_->reduction->drop_buckets(*state_->stream);
  }
}
Session::Session(Session&& other) noexcept : state_(std::move(other.state_)) {
  state_->step->session_ = this;
}

namespace {

// Of the agent that started this process, none: it gets the signals itself. A handler has no other way to it.
std::atomic<int> agent_to_signal{-1};
std::atomic<pid_t> worker_of_agent{-1};  // what it forks is no worker, and may be ended by a signal

}  // namespace

void pass_stop_signal(int number) noexcept {
  const int kept = errno;  // of the code that the signal interrupts
  const int agent = agent_to_signal.load(std::memory_order_relaxed);
  const bool passes = agent >= 0 && worker_of_agent.load(std::memory_order_relaxed) == ::getpid();
  if (passes) ::syscall(SYS_pidfd_send_signal, agent, number, nullptr, 0);
  errno = kept;
}

void leave_stop_signals_to_agent() {
  if (environment_variable(kRunDirectory) == nullptr && agent_to_signal.load(std::memory_order_relaxed) < 0) return;
  struct sigaction none {};
  none.sa_handler = [](int number) { pass_stop_signal(number); };
  none.sa_flags = SA_RESTART;
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(number, &none, nullptr);
}

Session Session::attach() {
  const char* directory = environment_variable(kRunDirectory);
  const char* fd_text = environment_variable(elastic::kAgentSocketVariable);
  if (directory == nullptr || fd_text == nullptr) {
    throw Error(Status::kFailedPrecondition,
                "this program is a worker of a job: start it with `pliant run CONFIG -- PROGRAM`", Origin::kInput);
  }
  const char* const spoken = environment_variable(elastic::kProtocolVariable);
  const bool same_protocol = spoken != nullptr && spoken == std::to_string(elastic::kProtocol);
  FileDescriptor agent = elastic::take_socket(fd_text, same_protocol);
  // The agent had the kernel end this process with it. A session is told of the agent's end instead, and the warden
  // ends what is still there after its grace.
  ::prctl(PR_SET_PDEATHSIG, 0);
  elastic::RunDirectory where{std::filesystem::path(directory)};
  // Said first: a worker that then finds its config wrong is one that uses the API, and ends the job.
  const std::string hello = to_line(elastic::FromWorker(elastic::Hello{::getpid()})) + "\n";
  if (::send(agent.get(), hello.data(), hello.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(hello.size())) {
    throw Error(Status::kFailedPrecondition, fmt::format("the agent of this job is gone; continue with `{}`",
                                                         elastic::resume_command_of_worker(where)));
  }
  if (!same_protocol) {
    throw Error(Status::kFailedPrecondition,
                fmt::format("this program was built with another version of Pliant than the `pliant run` that started "
                            "it (protocol {} instead of {}); build it again with that version",
                            elastic::kProtocol, spoken == nullptr ? "older" : spoken),
                Origin::kInput);
  }
  const auto told = [](const char* name) {
    const char* const value = environment_variable(name);
    return std::string(value == nullptr ? "" : value);
  };
  const char* const digest = environment_variable(kDigestVariable);
  return Session(State::open({std::move(agent), std::move(where), told(elastic::kProgramVariable),
                              told(elastic::Warden::kVariable),
                              digest == nullptr ? std::nullopt : std::optional<std::string>(digest)}));
}

Session Session::attach_at(const std::string& address, int64_t rank, int64_t world_size) {
  if (world_size < 1 || rank < 0 || rank >= world_size) {
    throw Error(Status::kInvalidArgument,
                fmt::format("a group of {} ranks has no rank {}: ranks are 0 .. world size - 1", world_size, rank),
                Origin::kInput);
  }
  elastic::Answered agent = or_throw(elastic::call_agent(address, {rank, world_size, elastic::kProtocol}));
  const int pidfd = static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(agent.welcome.agent), 0));
  worker_of_agent.store(::getpid(), std::memory_order_relaxed);
  // Where another one is left, a handler may use it at this moment.
  if (int none = -1; pidfd >= 0 && !agent_to_signal.compare_exchange_strong(none, pidfd)) ::close(pidfd);
  const std::string hello = to_line(elastic::FromWorker(elastic::Hello{::getpid()})) + "\n";
  static_cast<void>(::send(agent.socket.get(), hello.data(), hello.size(), MSG_NOSIGNAL));
  const std::string& digest = agent.welcome.elasticity_digest;
  return Session(
      State::open({std::move(agent.socket), elastic::RunDirectory(agent.welcome.directory), agent.welcome.program,
                   agent.welcome.incarnation, digest.empty() ? std::nullopt : std::optional<std::string>(digest)}));
}

std::unique_ptr<Session::State> Session::State::open(Joined joined) {
  const elastic::RunDirectory& where = joined.directory;
  ConfigNeeds needs{"accelerator", "balancer", "lr", "sampler"};
  if (joined.digest) needs.insert("elasticity");
  ConfigOverrides as_resolved;
  as_resolved.read_environment = false;
  const auto places = data::read_whole(where.app_places());
  Config config = detail::Inside::handle_of<Config>(or_throw(config::open_state(
      where.config(), needs, as_resolved, false, places ? std::string_view((*places)->bytes()) : std::string_view())));
  if (joined.digest) or_throw(ensure_same_elasticity_as_agent(config, *joined.digest));
  elastic::JobFacts facts = or_throw(where.read_facts());
  return std::make_unique<State>(std::move(joined), std::move(config), std::move(facts));
}

const Config& Session::config() const {
  return state_->config;
}
uint64_t Session::seed() const {
  return static_cast<uint64_t>(state_->config.run().seed);
}

void Session::start(Dataset dataset, TrainingState& program) {
  if (state_->config.has("coordinator")) {
    throw Error(Status::kFailedPrecondition,
                "the config has [coordinator], but this program does not shard its model (pliant/sharded.hpp); remove "
                "the section",
                Origin::kInput);
  }
  begin(std::move(dataset), program);
}

void Session::require_not_started() const {
  if (state_->program != nullptr) throw Error(Status::kFailedPrecondition, "Session::start was called twice");
}

void Session::begin(Dataset dataset, TrainingState& program) {
  require_not_started();
  try {
    begin_with(std::move(dataset), program);
  } catch (...) {  // the program may bring something better
    state_->arrays.reset();
    state_->program = nullptr;
    throw;
  }
}

void Session::begin_with(Dataset dataset, TrainingState& program) {
  State& s = *state_;
  if (s.facts.global_batch < 1) throw Error(Status::kInvalidArgument, elastic::kNeedsPlan, Origin::kInput);
  s.open_device();
  s.arrays.emplace(program, elastic::MemoryCheck(*s.accelerator, s.device));
  s.program = &program;
  Plan plan;
  plan.global_batch = s.facts.global_batch;
  plan.granule = s.facts.granule;
  s.open_batches(plan, std::move(dataset));
  s.learning_rate.emplace(s.config, s.mean_batch);
  if (s.learning_rate->wants_job_length()) {
    if (!s.job_length) s.job_length = s.batches->job_length();
    s.learning_rate->set_job_length(*s.job_length);
  }
  s.balancer.emplace(s.config);
  if (s.sharded != nullptr) {
    // A balancer that deals otherwise than in turn is refused before this worker is ready, also where a job resumes. It
    // may do so in some steps only: as many as are looked at are of the epoch that is planned by now.
    constexpr int64_t kStepsTried = 64;
    if (const int64_t step = s.batches->next_step(); s.batches->has_step(step)) {
      const Batch first = s.batches->at_step(step);
      const int64_t end = std::min(s.batches->epoch(first.epoch).batches, first.index + kStepsTried);
      for (int64_t index = first.index; index < end; ++index) {
        static_cast<void>(s.balancer->assign(
            row_costs(s.batches->batch(first.epoch, index), s.batches->dataset(), s.balancer->rates()),
            {.world_size = s.config.run().workers,
             .micro_batch = s.facts.granule,
             .granule = s.facts.granule,
             .deterministic = s.config.run().deterministic,
             .in_turn = true}));
      }
    }
    s.first_rest.emplace(
        or_throw(elastic::Spool::of(s.directory.snapshots(), [&program](std::ostream& out) { program.save(out); })));
    s.first_lr_state = s.learning_rate->save();
  }
  s.reduction.emplace(*s.accelerator, s.device, *s.program_stream, program.gradient_size(),
                      s.config.run().deterministic);
  const bool measures = s.learning_rate->wants_gradient_norms();
  if (s.sharded != nullptr && measures) {
    const std::array<uint64_t, 1> whole{s.sharded->model.elements()};
    s.reduction->measure_parts(true, whole);
    s.sharded->measure_gradients([&s](size_t micro_batch, uint64_t offset, std::span<const float> values) {
      s.reduction->measure(micro_batch, offset, values);
    });
  } else {
    s.reduction->measure_parts(measures);
  }
  s.reduction->look_for_not_finite(s.config.run().on_nonfinite != "ignore");
  s.reduction->reduce_buckets((static_cast<uint64_t>(s.config.run().reduce_bucket) + sizeof(float) - 1) /
                              sizeof(float));
  s.channel.send(elastic::Ready{s.fingerprint(), s.digest_of_options(), s.device, s.device_properties.name,
                                s.device_properties.host_visible, s.sharded != nullptr,
                                s.sharded != nullptr ? s.digest_of_model() : std::string{}, s.digest_of_arrays(),
                                s.facts_of_gradient(), s.digest_of_policies(), elastic::plugin_files(s.config)});
}

void Session::State::open_batches(const Plan& plan, Dataset dataset) {
  const std::vector<elastic::BegunEpoch> begun = elastic::read_epochs(directory.path());
  if (begun.empty()) return open_batches_at_begin(plan, std::move(dataset));
  const elastic::BegunEpoch& last = begun.back();
  bool stands_there = true;
  try {
    batches.emplace(config, plan, dataset, last.position);
    mean_batch = last.mean_batch;
    const bool is_as_long = last.epochs == config.run().epochs && last.max_steps == config.run().max_steps;
    if (is_as_long) job_length = last.length;
  } catch (const Error&) {  // of other data or options, which the agent will name by what their begin is
    batches.reset();
    open_batches_at_begin(plan, std::move(dataset));
    stands_there = stand_at(last.position);
  }
  // One whose sampler gives other rows is no worker of this job, which others are at work at: it ends before it joins.
  if (stands_there) static_cast<void>(batches->epoch(last.epoch));
}

void Session::State::open_batches_at_begin(const Plan& plan, Dataset dataset) {
  batches.emplace(config, plan, std::move(dataset));
  mean_batch = batches->epoch(0).mean_batch();
}

bool Session::State::stand_at(const std::string& position) {
  const Result<data::Position> own = data::parse_position(batches->save());
  Result<data::Position> there = data::parse_position(position);
  if (!own || !there || own->fingerprint != there->fingerprint) return false;
  there->sampler = own->sampler;
  there->options = own->options;
  try {
    batches->load(data::to_bytes(*there));
    return true;
  } catch (const Error&) {
    return false;
  }
}

void Session::State::find_epoch() {
  if (batches->next_step() == applied) return;
  const bool made_again = batches->next_step() == applied + 1;
  const auto begun = made_again ? std::vector<elastic::BegunEpoch>() : elastic::read_epochs(directory.path());
  if (const elastic::BegunEpoch* const there = elastic::epoch_before(begun, applied)) {
    try {
      batches->load(there->position);
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): of other data or options; the epochs before are planned
    }
  }
  batches->seek(applied);
}

void Session::State::tell_epoch() {
  if (form.rank != 0 || batch->epoch <= epoch_told || batches->next_step() != applied + 1) return;
  const std::vector<elastic::BegunEpoch> begun = elastic::read_epochs(directory.path());
  for (const elastic::BegunEpoch& one : begun) epoch_told = std::max(epoch_told, one.epoch);
  if (batch->epoch <= epoch_told) return;
  const std::string position = batches->save();
  const Result<data::Position> saved = data::parse_position(position);
  // One that is at an epoch's end could not be checked by its rows.
  if (!saved || !saved->has_begun(batch->epoch)) return;
  epoch_told = batch->epoch;
  const elastic::BegunEpoch told{batch->epoch,        saved->first_step,     position, mean_batch, job_length,
                                 config.run().epochs, config.run().max_steps};
  const Result<> written = elastic::append_epoch(directory.path(), told);
  if (written) return;
  // It is no reason to end a job: who joins plans more.
  Log("session").write(LogLevel::kWarning, fmt::format("{}: {}", elastic::kEpochsFile, written.error().message()));
}

Busy Session::busy(std::string_view what, std::chrono::duration<double> at_most) {
  if (what.empty() || what.size() > elastic::kMostBytesOfWords) {
    throw Error(Status::kInvalidArgument, fmt::format("Session::busy takes 1 to {} bytes that say what is done, not {}",
                                                      elastic::kMostBytesOfWords, what.size()));
  }
  if (!(at_most.count() > 0)) {
    throw Error(Status::kInvalidArgument,
                fmt::format("Session::busy takes a time above 0 for {}, not {} s", what, at_most.count()));
  }
  return {state_->busy, state_->busy->begin(std::string(what), at_most.count())};
}

const Accelerator& Session::accelerator() {
  state_->open_device();
  return *state_->accelerator;
}
int32_t Session::device() {
  state_->open_device();
  return state_->device;
}
Stream& Session::stream() {
  state_->open_device();
  return *state_->program_stream;
}

Step* Session::next() {
  State& s = *state_;
  if (s.program == nullptr) throw Error(Status::kFailedPrecondition, "call Session::start before Session::next");
  if (s.is_in_next) {
    throw Error(Status::kFailedPrecondition,
                "Session::next was called within Session::next, by a snapshot hook or a method of the state; call it "
                "once that has returned");
  }
  const struct Within {
    explicit Within(bool& flag) : is_in_next(flag) { is_in_next = true; }
    ~Within() { is_in_next = false; }
    Within(const Within&) = delete;
    Within& operator=(const Within&) = delete;
    bool& is_in_next;
  } within(s.is_in_next);
  return s.or_tell([&s] { return s.has_next() ? s.step.get() : nullptr; });
}

bool Session::State::has_next() {
  if (std::exchange(is_in_attempt, false)) results.clear();  // it came to nothing
  tell_results();
  if (sharded != nullptr) {
    if (!given_up && sharded->is_in_pass()) {  // outside of Step::attempt, which gives it up itself
      gave_up_itself = true;
      sharded->abandon();
      given_up = Error(Status::kFailedPrecondition, "Session::next was called within a pass over the sharded model");
    }
    // What was given up stood between a commit and the end of its update: the step is made again.
    if (given_up && verdict && (sharded->owes_update() || sharded->step() == sharded::kNoStep)) is_spoiled = true;
  }
  if (std::exchange(is_spoiled, false)) {  // the job goes back to its snapshot
    verdict.reset();
    applied = -1;
    channel.send(elastic::Copying{form.generation, true, gave_up_itself});
  }
  if (reduction && reduction->has_begun()) {
    give_up_buckets(Error(Status::kFailedPrecondition,
                          "Session::next was called before Step::commit, when a part of the gradient was on its way"));
  }
  if (given_up) {  // the others wait for its passes
    tell_broken(*std::exchange(given_up, std::nullopt));
    in_generation = false;
  }
  settle();
  tell_results();  // of hooks
  if (!over) channel.require_agent();
  while (!over && !in_generation) {
    if (join()) {
      in_generation = true;
    } else {
      wait_for_program();
      channel.send(sharded != nullptr ? elastic::Finished{sharded->memory(), sharded->traced_passes()}
                                      : elastic::Finished{});
      // Others wait with their memory for a rank that has it mapped, and the program may take its time from here on.
      if (sharded == nullptr) communicator.clear();
      over = true;
    }
  }
  if (over) return false;
  prepare_step();
  clock.start();
  return true;
}

}  // namespace pliant
