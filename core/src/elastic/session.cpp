// The worker's side of the step protocol. See docs/explanation/commit-protocol.md.
#include "pliant/session.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "base/result.hpp"
#include "data/lengths_file.hpp"
#include "data/pieces.hpp"
#include "elastic/channel.hpp"
#include "elastic/lr_inputs.hpp"
#include "elastic/reduction.hpp"
#include "elastic/run_directory.hpp"
#include "elastic/snapshot.hpp"
#include "elastic/state_transfer.hpp"
#include "plan/scheduler.hpp"

namespace pliant {

using elastic::InjectionPoint;

namespace {

std::string hex(const CommId& id) {
  std::string text;
  for (const uint8_t byte : id) text += fmt::format("{:02x}", byte);
  return text;
}

CommId from_hex(const std::string& text) {
  CommId id{};
  for (size_t i = 0; i < id.size() && 2 * i + 1 < text.size(); ++i) {
    std::from_chars(text.data() + 2 * i, text.data() + 2 * i + 2, id[i], 16);
  }
  return id;
}

// The communicator of the present generation, shared with the thread that hears of aborts.
class CommunicatorSlot {
 public:
  // Any thread. Ends every wait of generation `generation` and of older ones, also of those that begin later.
  void abort(int64_t generation) {
    const std::lock_guard lock(mutex_);
    aborted_ = std::max(aborted_, generation);
    if (communicator_ && generation_ <= aborted_) communicator_->abort();
  }
  Communicator& put(std::unique_ptr<Communicator> communicator, int64_t generation) {
    const std::lock_guard lock(mutex_);
    communicator_ = std::move(communicator);
    generation_ = generation;
    if (generation_ <= aborted_) communicator_->abort();
    return *communicator_;
  }
  void clear() {
    std::unique_ptr<Communicator> old;
    const std::lock_guard lock(mutex_);
    old = std::move(communicator_);
  }
  Communicator& get() { return *communicator_; }

 private:
  std::mutex mutex_;
  std::unique_ptr<Communicator> communicator_;
  int64_t generation_ = 0;
  int64_t aborted_ = 0;
};

bool group_changed(const Error& error) {
  return error.status() == Status::kAborted || error.status() == Status::kPeerLost;
}

/// An accelerator that lacks memory is the accelerator's fault, anything else the job's.
elastic::Broken broken(int64_t generation, const Error& error) {
  const ExitCode code = error.status() == Status::kResourceExhausted ? ExitCode::kPlugin : ExitCode::kFailed;
  return {generation, error.message(), static_cast<int>(code)};
}

}  // namespace

struct Session::State {
  State(elastic::RunDirectory where, Config read, elastic::JobFacts pinned, int agent_fd)
      : directory(std::move(where)),
        config(std::move(read)),
        facts(std::move(pinned)),
        channel(agent_fd, [this](int64_t generation) { communicator.abort(generation); }) {}

  elastic::RunDirectory directory;
  Config config;
  elastic::JobFacts facts;
  CommunicatorSlot communicator;  // before channel: its thread uses it
  elastic::Channel channel;
  std::optional<Accelerator> accelerator;
  std::optional<Stream> stream;
  TrainingState* program = nullptr;
  std::optional<Batches> batches;
  std::optional<LearningRate> learning_rate;
  std::optional<elastic::GradientReduction> reduction;

  bool over = false;
  bool in_generation = false;
  int64_t applied = 0;                        // steps that this worker's state holds
  elastic::Form form;                         // of the present generation
  std::optional<elastic::ToWorker> put_back;  // read too early
  std::optional<elastic::Commit> verdict;     // of a step that the program is applying

  Batch batch;
  std::vector<MicroBatch> micros;
  size_t added = 0;
  Scaling scaling;
  std::optional<GradientNorms> norms;  // of the step in hand, where a rule asks for them
  std::vector<float> mean_gradient;
  std::unique_ptr<Step> step;

  elastic::ToWorker receive() {
    if (put_back) return *std::exchange(put_back, std::nullopt);
    return channel.receive();
  }

  void strike(InjectionPoint at) {
    for (const elastic::Injection& injection : form.injections) {
      if (injection.step != applied || injection.at != at) continue;
      channel.send(elastic::Injected{injection.id});
      ::kill(::getpid(), SIGKILL);
    }
  }

  // Waits for the id that rank 0 made; nullopt when the generation ended first.
  std::optional<CommId> wait_for_id() {
    while (true) {
      elastic::ToWorker message = receive();
      if (const auto* shared = std::get_if<elastic::CommIdShared>(&message)) {
        if (shared->generation == form.generation) return from_hex(shared->id);
      } else if (const auto* abort = std::get_if<elastic::Abort>(&message)) {
        if (abort->generation >= form.generation) return std::nullopt;
      } else {
        put_back = std::move(message);
        return std::nullopt;
      }
    }
  }

  void load_snapshot() {
    const auto header = or_throw(
        elastic::read_snapshot(directory.path() / form.restore, [this](std::istream& in) { program->load(in); }));
    learning_rate->load(header.lr_state);
    applied = header.step;
  }

  // Joins the generation of `form`. False when it ended before it stood.
  bool enter_generation() {
    communicator.clear();
    if (form.rank == form.donor && !form.restore.empty()) load_snapshot();
    try {
      std::optional<CommId> id;
      if (form.rank == 0) {
        id = accelerator->make_comm_id(static_cast<int32_t>(form.world_size));
        channel.send(elastic::CommIdMade{form.generation, hex(*id)});
      } else {
        id = wait_for_id();
        if (!id) return false;
      }
      Communicator& group =
          communicator.put(std::make_unique<Communicator>(*accelerator, 0, *id, static_cast<int32_t>(form.rank),
                                                          static_cast<int32_t>(form.world_size)),
                           form.generation);
      group.wait_ready();
      if (form.copy_state) {
        elastic::SharedState shared{applied, learning_rate->save()};
        shared = elastic::share_state(group, *stream, *accelerator, static_cast<int32_t>(form.donor), form.wants_state,
                                      shared, *program);
        applied = shared.step;
        learning_rate->load(shared.lr_state);
      }
    } catch (const Error& error) {
      if (!group_changed(error)) channel.send(broken(form.generation, error));
      return false;
    }
    if (applied != form.next_step) {
      throw Error(Status::kInternal,
                  fmt::format("this worker holds {} steps, the generation begins at {}", applied, form.next_step));
    }
    channel.send(elastic::Formed{form.generation});
    return true;
  }

  // Blocks until this worker is a rank of a standing generation; false when the job is over.
  bool join() {
    while (true) {
      const elastic::ToWorker message = receive();
      if (std::holds_alternative<elastic::Stop>(message)) return false;
      if (std::holds_alternative<elastic::Tell>(message)) channel.send(elastic::Holds{applied});
      if (const auto* save = std::get_if<elastic::Save>(&message); save != nullptr && save->step == applied) {
        write_snapshot(save->file);
      }
      const auto* formed = std::get_if<elastic::Form>(&message);
      if (formed == nullptr) continue;  // of a generation that is over
      form = *formed;
      if (form.rank >= 0 && enter_generation()) return true;
    }
  }

  void prepare_step() {
    batch = batches->at_step(applied);
    const RowRange share = share_of(batch.size.rows, facts.granule, form.world_size, form.rank);
    micros.clear();
    const int64_t rows_at_once = config.run().deterministic ? facts.granule : form.micro_batch;
    for (const RowRange rows : pliant::micro_batches(share, rows_at_once)) micros.push_back({rows});
    added = 0;
    scaling = learning_rate->scaling(applied, batch.size);
    norms.reset();
    reduction->begin(batch.size.rows, facts.granule, form.world_size, form.rank);
  }

  // After the program applied a committed step.
  void settle() {
    if (!verdict) return;
    strike(InjectionPoint::kApply);
    const elastic::Commit commit = *std::exchange(verdict, std::nullopt);
    learning_rate->commit(applied, batch.size, norms);
    ++applied;
    if (!commit.snapshot.empty() && form.rank == 0) write_snapshot(commit.snapshot);
    if (commit.wait) in_generation = false;
  }

  void write_snapshot(const std::string& file) {
    const elastic::SnapshotHeader header{applied, fmt::format("{:016x}", batches->fingerprint()),
                                         learning_rate->save()};
    const auto written =
        elastic::write_snapshot(directory.path() / file, header, [this](std::ostream& out) { program->save(out); });
    channel.send(elastic::SnapshotWritten{applied, file, written ? std::string{} : written.error().message()});
  }

  // Waits for the agent's word on the step that this rank voted for.
  bool committed() {
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

  std::optional<elastic::ReductionResult> reduce() {
    channel.send(elastic::Reducing{form.generation, applied});
    try {
      return reduction->reduce(communicator.get(), *stream, [this] { strike(InjectionPoint::kReduce); });
    } catch (const Error& error) {
      if (!group_changed(error)) channel.send(broken(form.generation, error));
      return std::nullopt;
    }
  }
};

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
  if (s.added == 0) s.strike(InjectionPoint::kForward);
  const data::EntrySums sums = data::sum_entries(data::entries_of(s.batch, micro.rows), s.batches->dataset());
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
  if (s.added == 0) s.strike(InjectionPoint::kForward);
  s.in_generation = false;
  const auto reduced = s.reduce();
  if (!reduced) return std::nullopt;
  s.strike(InjectionPoint::kVote);
  s.channel.send(elastic::Vote{s.form.generation, s.applied, reduced->digest, reduced->loss_sum, reduced->loss_tokens,
                               s.scaling.learning_rate});
  if (!s.committed()) return std::nullopt;
  s.strike(InjectionPoint::kCommit);
  s.in_generation = true;
  const double tokens = reduced->loss_tokens > 0 ? static_cast<double>(reduced->loss_tokens) : 1.0;
  const float scale = static_cast<float>(1.0 / tokens);
  s.mean_gradient.resize(reduced->gradient.size());
  std::transform(reduced->gradient.begin(), reduced->gradient.end(), s.mean_gradient.begin(),
                 [scale](float g) { return g * scale; });
  if (s.learning_rate->wants_gradient_norms()) s.norms = elastic::norms_of(*reduced, s.mean_gradient);
  return Committed{s.mean_gradient, reduced->loss_sum / tokens};
}

Session::Session(std::unique_ptr<State> state) : state_(std::move(state)) {
  state_->step.reset(new Step(*this));
}
Session::~Session() = default;
Session::Session(Session&& other) noexcept : state_(std::move(other.state_)) {
  state_->step->session_ = this;
}

Session Session::attach() {
  const char* directory = std::getenv("PLIANT_RUN_DIR");
  const char* fd_text = std::getenv("PLIANT_AGENT_FD");
  if (directory == nullptr || fd_text == nullptr) {
    throw Error(Status::kFailedPrecondition,
                "this program is a worker of a job: start it with `pliant run CONFIG -- PROGRAM`", ExitCode::kUsage);
  }
  const int fd = std::atoi(fd_text);
  ::unsetenv("PLIANT_AGENT_FD");  // the socket is this process's; its children must not speak on it
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  // Said first: a worker that then finds its config wrong is one that uses the API, and ends the job.
  const std::string hello = to_line(elastic::FromWorker(elastic::Hello{::getpid()})) + "\n";
  if (::send(fd, hello.data(), hello.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(hello.size())) {
    throw Error(Status::kFailedPrecondition,
                "the agent of this job is gone; start it again with `pliant run --resume`");
  }
  elastic::RunDirectory where{std::filesystem::path(directory)};
  const char* digest = std::getenv(kDigestVariable);
  const ConfigNeeds needs{.elasticity = digest != nullptr, .sampler = true, .lr = true, .accelerator = true};
  ConfigOverrides as_resolved;
  as_resolved.read_environment = false;
  Config config = Config::open(where.config(), needs, as_resolved);
  if (digest != nullptr) or_throw(ensure_same_elasticity_as_agent(config, digest));
  elastic::JobFacts facts = or_throw(where.read_facts());
  auto state = std::make_unique<State>(std::move(where), std::move(config), std::move(facts), fd);
  return Session(std::move(state));
}

const Config& Session::config() const {
  return state_->config;
}
uint64_t Session::seed() const {
  return static_cast<uint64_t>(state_->config.run().seed);
}

void Session::start(Dataset dataset, TrainingState& program) {
  State& s = *state_;
  if (s.program != nullptr) throw Error(Status::kFailedPrecondition, "Session::start was called twice");
  s.program = &program;
  Plan plan;
  plan.global_batch = s.facts.global_batch;
  plan.granule = s.facts.granule;
  s.batches.emplace(s.config, plan, std::move(dataset));
  const EpochSummary& epoch = s.batches->epoch(0);
  const int64_t count = std::max<int64_t>(epoch.batches, 1);
  s.learning_rate.emplace(s.config, BatchSize{epoch.rows / count, epoch.sequences / count, epoch.tokens / count,
                                              epoch.loss_tokens / count});
  if (s.learning_rate->wants_job_length())
    s.learning_rate->set_job_length(elastic::length_of_job(*s.batches, s.config.run()));
  s.accelerator.emplace(s.config);
  if (s.accelerator->device_count() == 0) {
    throw Error(Status::kNotFound,
                fmt::format("accelerator '{}' finds no device on this machine", s.config.use("accelerator")));
  }
  s.stream.emplace(*s.accelerator, 0);
  s.reduction.emplace(program.gradient_size(), s.config.run().deterministic);
  s.reduction->measure_parts(s.learning_rate->wants_gradient_norms());
  or_throw(data::write_dataset_once(s.directory.dataset(), s.batches->dataset()));
  s.channel.send(elastic::Ready{fmt::format("{:016x}", s.batches->fingerprint())});
}

Step* Session::next() {
  State& s = *state_;
  if (s.program == nullptr) throw Error(Status::kFailedPrecondition, "call Session::start before Session::next");
  s.settle();
  while (!s.over && !s.in_generation) {
    if (s.join()) {
      s.in_generation = true;
    } else {
      s.channel.send(elastic::Finished{});
      s.over = true;
    }
  }
  if (s.over) return nullptr;
  s.prepare_step();
  return s.step.get();
}

}  // namespace pliant
