// A worker with a model of a few floats: quick to start, exact to check, and able to misbehave when [app] says so.
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <istream>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <ostream>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "integration/backward_pieces.hpp"
#include "integration/bad_pieces.hpp"
#include "integration/half_pieces.hpp"
#include "pliant/exit_code.hpp"
#include "pliant/log.hpp"
#include "pliant/session.hpp"

#ifdef __SANITIZE_THREAD__
/// It ends in the middle of things on purpose, with threads running.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options() {
  return "report_thread_leaks=0";
}
#endif

namespace {

constexpr int64_t kSequences = 203;
constexpr size_t kParameters = 1003;
constexpr auto kBytes = static_cast<std::streamsize>(kParameters * sizeof(float));
constexpr int kMostOpenFiles = 1024;

int64_t length_of(int64_t id) {
  return 3 + (id * 37) % 29;
}

struct Toy final : pliant::TrainingState {
  std::vector<float> weights;
  std::vector<float> momentum;
  bool reads_less = false;
  bool is_twin = false;       ///< names one array twice
  bool has_arrays = true;     ///< else all of it is in what it saves
  bool halved = false;        ///< its weights are two arrays
  bool turned = false;        ///< of which it names the second one first
  bool trains_other = false;  ///< elements of its gradient are of other parameters
  bool rounded = false;       ///< gradients are multiples of 1/1024: sums of them have the same bits in every order
  size_t shown = kParameters;
  void* foreign = nullptr;  ///< where its weights are said to lie

  explicit Toy(uint64_t seed) : weights(kParameters), momentum(kParameters, 0.0F) {
    for (size_t i = 0; i < kParameters; ++i) weights[i] = static_cast<float>((seed * 131 + i * 17) % 1000) / 1000.0F;
  }
  [[nodiscard]] uint64_t gradient_size() const override { return kParameters; }
  [[nodiscard]] std::string gradient_layout() const override { return trains_other ? "other weights" : "weights"; }
  // One half of the state is an array, the other is not.
  [[nodiscard]] std::vector<pliant::StateArray> arrays() override {
    if (!has_arrays) return {};
    if (halved) return halves();
    const pliant::StateArray own{
        "weights", pliant::DType::kF32, {static_cast<int64_t>(shown)}, foreign != nullptr ? foreign : weights.data()};
    return is_twin ? std::vector{own, own} : std::vector{own};
  }
  [[nodiscard]] std::vector<pliant::StateArray> halves() {
    constexpr int64_t kHalf = kParameters / 2;
    const pliant::StateArray low{"low", pliant::DType::kF32, {kHalf}, weights.data()};
    const pliant::StateArray high{
        "high", pliant::DType::kF32, {static_cast<int64_t>(kParameters) - kHalf}, weights.data() + kHalf};
    return turned ? std::vector{high, low} : std::vector{low, high};
  }
  void save(std::ostream& out) const override {
    out.write(reinterpret_cast<const char*>(momentum.data()), kBytes);
    if (!has_arrays) out.write(reinterpret_cast<const char*>(weights.data()), kBytes);
  }
  // What comes from a program without arrays is whole.
  void load(std::istream& in) override {
    in.read(reinterpret_cast<char*>(momentum.data()), reads_less ? kBytes - 4 : kBytes);
    if (!in) throw std::runtime_error("the toy's state is too short");
    if (reads_less || in.peek() == std::istream::traits_type::eof()) return;
    in.read(reinterpret_cast<char*>(weights.data()), kBytes);
    if (!in) throw std::runtime_error("the toy's whole state is too short");
  }
  // Each sequence pulls every weight towards a value of its own, as strongly as it is long.
  double add_gradient(int64_t id, std::vector<float>& gradient) const {
    double loss = 0;
    const auto strength = static_cast<float>(length_of(id));
    for (size_t i = 0; i < kParameters; ++i) {
      const float target = static_cast<float>((static_cast<uint64_t>(id) * 7919 + i * 104729) % 2003) / 2003.0F;
      const float exact = weights[i] - target;
      const float error = rounded ? std::round(exact * 1024.0F) / 1024.0F : exact;
      gradient[i] += strength * error;
      loss += 0.5 * static_cast<double>(strength) * static_cast<double>(error) * static_cast<double>(error);
    }
    return loss / static_cast<double>(kParameters);
  }
  void apply(std::span<const float> gradient, double rate) {
    for (size_t i = 0; i < kParameters; ++i) {
      momentum[i] = 0.9F * momentum[i] + gradient[i];
      weights[i] -= static_cast<float>(rate) * momentum[i];
    }
  }
};

// Hands Step::add what fits no step; each must be refused, and leave the step as it was.
void check_add_refuses(pliant::Step& step) {
  const std::vector<float> gradient(kParameters);
  const pliant::RowRange own = step.micro_batches().front();
  const auto expect_refusal = [&step](pliant::RowRange rows, std::span<const float> sum) {
    try {
      step.add(rows, 0, sum);
    } catch (const pliant::Error& error) {
      if (error.status() == pliant::Status::kInvalidArgument) return;
    }
    throw std::logic_error(fmt::format("{} rows at {} were added", rows.count, rows.first));
  };
  constexpr int64_t kMost = INT64_MAX;
  for (const pliant::RowRange rows : std::initializer_list<pliant::RowRange>{
           {-5, 5}, {0, -1}, {kMost, 1}, {kMost, kMost}, {0, kMost}, {1000000, 5}, {own.first, own.count + 1}}) {
    expect_refusal(rows, gradient);
  }
  expect_refusal(own, {});
  expect_refusal(own, {static_cast<const float*>(nullptr), kParameters});
}

// A worker attaches once, and what it starts is no worker.
void check_attach_refuses() {
  try {
    pliant::Session::attach();
    throw std::logic_error("a process attached twice");
  } catch (const pliant::Error& error) {
    if (error.status() != pliant::Status::kFailedPrecondition) throw;
  }
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl("/proc/self/exe", "toy_worker", nullptr);
    ::_exit(127);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 2) throw std::logic_error("a child of a worker attached");
}

// What [app] asks this incarnation to do wrong.
struct Misbehaviour {
  int agent_socket;
  std::string how;
  int64_t rank = 0;  ///< -1: every rank, at its start
  int64_t step = 0;
  int64_t flips_on = -1;  ///< beside that: a bit of this rank's state flips, at the step `flips_at`
  int64_t flips_at = 0;
  std::string turn;
  int64_t workers;
  Misbehaviour(const pliant::Config& config, int socket)
      : agent_socket(socket),
        how(config.app_string("misbehave").value_or("")),
        rank(config.app_int("misbehave_rank").value_or(0)),
        step(config.app_int("misbehave_step").value_or(0)),
        flips_on(config.app_int("flip_on").value_or(-1)),
        flips_at(config.app_int("flip_at").value_or(0)),
        turn(config.app_string("turn").value_or("")),
        workers(config.run().workers) {
    const char* restarts = std::getenv("TORCHELASTIC_RESTART_COUNT");
    const bool always = config.app_bool("misbehave_always").value_or(false);
    const int64_t restart = config.app_int("misbehave_restart").value_or(0);
    if (restarts != nullptr && std::to_string(restart) != restarts && !always) how.clear();
  }
  void at_start() const {
    const char* own = std::getenv("RANK");
    if (own == nullptr || (rank >= 0 && std::to_string(rank) != own)) return;
    if (how == "hang_at_start") ::pause();
    if (how == "attach_again") check_attach_refuses();
    if (how == "stop_at_start") ::raise(SIGSTOP);
    if (how == "exit_at_start") std::exit(1);
    if (how == "usage_at_start") std::exit(2);
    if (how == "environment_at_start") std::exit(3);
  }
  [[nodiscard]] bool is_it() const {
    const char* own = std::getenv("RANK");
    return own != nullptr && std::to_string(rank) == own;
  }
  /// It reads other data than the others.
  [[nodiscard]] uint64_t other_content() const { return how == "other_data" && is_it() ? 1 : 0; }
  /// Whoever loads other data is ready before all others, or after them, where [app] turn is "first" or "last".
  void await_turn() const {
    const auto await = [](int64_t of) {
      while (!std::filesystem::exists(ready_file(of))) std::this_thread::yield();
    };
    if (how != "other_data") return;
    if (turn == "first" && !is_it()) await(rank);
    for (int64_t other = 0; turn == "last" && is_it() && other < workers; ++other) {
      if (other != rank) await(other);
    }
  }
  void end_turn() const {
    const char* own = std::getenv("RANK");
    if (how == "other_data" && own != nullptr) std::ofstream(ready_file(std::stoll(own))).put('\n');
  }
  static std::filesystem::path ready_file(int64_t of) {
    return std::filesystem::path(std::getenv("PLIANT_RUN_DIR")) / fmt::format("ready-{}", of);
  }
  /// What it computes is no number: on one rank, or on all.
  void at_add(const pliant::Step& now, std::vector<float>& gradient, double& loss) const {
    if ((rank >= 0 && now.rank() != rank) || now.index() != step) return;
    if (how == "nan_gradient") gradient[kParameters / 2] = std::numeric_limits<float>::quiet_NaN();
    if (how == "nan_in_front") gradient.front() = std::numeric_limits<float>::quiet_NaN();
    if (how == "inf_gradient") gradient.back() = -std::numeric_limits<float>::infinity();
    if (how == "nan_loss") loss = std::numeric_limits<double>::quiet_NaN();
    if (how == "overflow") std::fill(gradient.begin(), gradient.end(), std::numeric_limits<float>::max());
  }
  /// Its arrays become others than they were at first.
  [[nodiscard]] bool resizes(const pliant::Step& now) const {
    return how == "resize_array" && (rank < 0 || now.rank() == rank) && now.index() == step;
  }
  /// Its weights become others than those of the other ranks.
  [[nodiscard]] bool leaves_out(const pliant::Step& now) const {
    return how == "skip_apply" && now.rank() == rank && now.index() == step;
  }
  void after_apply(const pliant::Step& now, std::vector<float>& weights) const {
    const bool flips = how == "flip_bit" && now.rank() == rank && now.index() == step;
    if (!flips && (now.rank() != flips_on || now.index() != flips_at)) return;
    auto* const bytes = reinterpret_cast<unsigned char*>(&weights[kParameters / 3]);
    *bytes = static_cast<unsigned char>(*bytes ^ 1U);
  }
  /// It does what is no step, for longer than the group waits for a rank, and says so.
  void be_busy(pliant::Session& session, const pliant::Step& now) const {
    if ((rank >= 0 && now.rank() != rank) || now.index() != step) return;
    if (how == "busy") {
      const pliant::Busy busy = session.busy("evaluation", std::chrono::minutes(10));
      std::this_thread::sleep_for(std::chrono::milliseconds(2500));  // work of a known size
    }
    if (how == "busy_too_long") {
      const pliant::Busy busy = session.busy("evaluation", std::chrono::milliseconds(1500));
      while (true) ::pause();
    }
  }
  /// Likewise before it has started.
  void be_busy_at_start(pliant::Session& session) const {
    if (how != "busy_at_start" || !is_it()) return;
    const pliant::Busy busy = session.busy("compilation", std::chrono::minutes(10));
    std::this_thread::sleep_for(std::chrono::milliseconds(2500));  // work of a known size
  }
  void at_step(pliant::Step& now) const {
    if (how == "talk") {
      for (int line = 0; line < 2000; ++line)
        fmt::print("rank {} has much to say of step {}\n", now.rank(), now.index());
      std::fflush(stdout);
    }
    if (now.rank() != rank || now.index() != step) return;
    if (how == "exit0") ::_exit(0);
    if (how == "exit1") std::exit(1);
    if (how == "refuse") {  // in words that no other process has
      throw pliant::Error(pliant::Status::kFailedPrecondition,
                          fmt::format("process {} has a config that does not do", ::getpid()), pliant::Origin::kInput);
    }
    if (how == "hang_and_say") fmt::print(stderr, "toy_worker: hangs\n");
    if (how == "hang" || how == "hang_and_say") ::pause();
    if (how == "stop") ::raise(SIGSTOP);
    if (how == "bad_add") check_add_refuses(now);
    if (how == "orphan") {  // leaves a grandchild behind
      if (::fork() == 0) ::pause();
      ::_exit(1);
    }
    if (how == "daemon" && ::fork() == 0) {  // leaves one that no process group leads to
      ::setsid();
      for (int fd = 0; fd < kMostOpenFiles; ++fd) ::close(fd);
      while (true) ::pause();
    }
    if (how == "babble") {  // a message without an end, to the agent
      const std::string babble(size_t{1} << 20, 'x');
      for (int i = 0; i < 64 && ::write(agent_socket, babble.data(), babble.size()) > 0; ++i) {
      }
    }
  }
};

/// What it says of a micro-batch, where [app] metrics is set.
void give_metrics(pliant::Step& step, pliant::RowRange rows, double loss) {
  const auto count = static_cast<double>(rows.count);
  step.metric("loss_of_row", loss / count, count);
  step.metric("rows", count, pliant::MetricRule::kSum);
  step.metric("last_row", static_cast<double>(rows.first + rows.count - 1), pliant::MetricRule::kMax);
  if (step.rank() == 0) step.metric("of_rank_0", static_cast<double>(step.index()));
}

/// Each rank looks at its part of the sequences.
void evaluate(pliant::Session& session, const pliant::Step& step, const Toy& toy) {
  const pliant::Busy busy = session.busy("evaluation", std::chrono::seconds(30));
  std::vector<float> unused(kParameters);
  for (int64_t id = step.rank(); id < kSequences; id += step.world_size())
    session.evaluated("loss_of_sequence", toy.add_gradient(id, unused));
}

/// What was foretold of steps, which must come so: the batch in any case, the rows where nothing was shared out anew.
class LookAhead {
 public:
  explicit LookAhead(int64_t steps) : steps_(steps) {}
  void check(const pliant::Step& step) {
    last_ = step.index();
    if (last_batch_ && last_batch_->ids != last_ids_)
      throw std::logic_error("a batch that was kept is not what it was");
    last_batch_ = step.shared_batch();
    last_ids_ = step.batch().ids;
    const auto found = foretold_.find(step.index());
    if (found == foretold_.end()) return;
    const pliant::ComingStep& said = found->second;
    if (said.batch->digest != step.batch().digest || said.batch->ids != step.batch().ids)
      throw std::logic_error("a step has another batch than was foretold");
    if (said.shares == step.shares() && said.micro_batches != step.micro_batches())
      throw std::logic_error("a step has other rows than were foretold, and nobody said so");
    ++(said.shares == step.shares() ? kept_ : moved_);
  }
  void look(pliant::Session& session, const pliant::Step& step) {
    for (int64_t ahead = 1; ahead <= steps_; ++ahead) {
      const pliant::ComingStep* const coming = session.coming(ahead);
      if (coming == nullptr) break;
      if (coming->index != step.index() + ahead) throw std::logic_error("another step was foretold");
      foretold_[coming->index] = *coming;
    }
  }
  void say() const {
    if (steps_ == 0) return;
    const auto never = std::distance(foretold_.upper_bound(last_), foretold_.end());
    fmt::print("foretold: {} as they came, {} shared out anew, {} never came\n", kept_, moved_, never);
  }

 private:
  int64_t steps_;
  int64_t kept_ = 0;
  int64_t moved_ = 0;
  int64_t last_ = -1;
  std::shared_ptr<const pliant::Batch> last_batch_;
  std::vector<int64_t> last_ids_;
  std::map<int64_t, pliant::ComingStep> foretold_;
};

/// Says what happens to snapshots; where [app] refuse_snapshot is a step, that one is not written by the rank that is
/// to.
pliant::Session::SnapshotHooks say_snapshots(int64_t refused) {
  return {[refused](int64_t step) {
            fmt::print("before the snapshot of step {}\n", step);
            if (step == refused) throw std::runtime_error("the store is full");
          },
          [](int64_t step, const std::string& file, const std::string& error) {
            const bool is_there = std::filesystem::exists(file);
            fmt::print("after the snapshot of step {}: {}, {}\n", step, is_there ? "there" : "not there", error);
            throw std::runtime_error("this hook fails");
          }};
}

/// A group of parameters with another base rate has what the rule makes of that, and the base's own group its own.
void check_groups(const pliant::Step& step, double base_lr) {
  if (step.scaling(base_lr).learning_rate != step.learning_rate())
    throw std::logic_error("the base rate has two rates");
  const double four = step.scaling(4 * base_lr).learning_rate;
  if (four < 3.999999 * step.learning_rate() || four > 4.000001 * step.learning_rate())
    throw std::logic_error("four times the base rate is not four times the rate");
  for (const double wrong : {0.0, -1.0, std::numeric_limits<double>::infinity()}) {
    try {
      static_cast<void>(step.scaling(wrong));
    } catch (const pliant::Error& error) {
      if (error.status() == pliant::Status::kInvalidArgument) continue;
    }
    throw std::logic_error("a base rate that is none was taken");
  }
}

/// Those of the config are there by name, and no others.
void check_named_groups(const pliant::Step& step, const std::map<std::string, double>& groups) {
  for (const auto& [name, base_lr] : groups) {
    if (step.scaling(name).learning_rate != step.scaling(base_lr).learning_rate)
      throw std::logic_error("a group does not have the rate of its base");
  }
  try {
    static_cast<void>(step.scaling("nobody's"));
  } catch (const pliant::Error& error) {
    if (error.status() == pliant::Status::kNotFound) return fmt::print("{}\n", error.message());
  }
  throw std::logic_error("a group that is none has a rate");
}

/// Metrics that fit no step, or come too late; each must be refused.
void check_metrics_are_refused(pliant::Session& session, pliant::Step& step) {
  const auto expect = [](pliant::Status status, const auto& give) {
    try {
      give();
    } catch (const pliant::Error& error) {
      if (error.status() == status) return;
    }
    throw std::logic_error("a metric that fits nothing was taken");
  };
  const auto late = pliant::Status::kFailedPrecondition;
  const auto wrong = pliant::Status::kInvalidArgument;
  expect(late, [&] { step.metric("late", 1); });
  expect(wrong, [&] { session.evaluated("", 1); });
  expect(wrong, [&] { session.evaluated("a b", 1); });
  expect(wrong, [&] { session.evaluated("weight", 1, -1); });
  expect(wrong, [&] { static_cast<void>(session.busy("", std::chrono::seconds(1))); });
  expect(wrong, [&] { static_cast<void>(session.busy("x", std::chrono::seconds(0))); });
}

void expect_refused(const std::function<void()>& call) {
  try {
    call();
  } catch (const pliant::Error& error) {
    if (error.status() == pliant::Status::kFailedPrecondition) return;
  }
  throw std::logic_error("a call at a wrong moment was taken");
}

/// Hooks that may not ask for a step, and set themselves again while they run.
void set_hooks(pliant::Session& session, int64_t refused) {
  pliant::Session::SnapshotHooks hooks = say_snapshots(refused);
  hooks.before = [&session, refused, before = hooks.before](int64_t step) {
    expect_refused([&] { static_cast<void>(session.next()); });
    set_hooks(session, refused);
    before(step);
  };
  session.on_snapshot(std::move(hooks));
}

int train() {
  pliant::log_to_stderr();
  const char* agent_socket = std::getenv("PLIANT_AGENT_FD");  // "7:4026531"
  const int socket = agent_socket == nullptr ? -1 : std::stoi(agent_socket);
  pliant::Session session = pliant::Session::attach();
  if (!session.config().app_bool("keep_signals").value_or(false)) pliant::leave_stop_signals_to_agent();
  const Misbehaviour wrong(session.config(), socket);
  const std::chrono::milliseconds pace(session.config().app_int("step_ms").value_or(0));
  const int64_t square_ns = session.config().app_int("square_ns").value_or(0);
  wrong.at_start();
  wrong.be_busy_at_start(session);
  std::vector<int32_t> lengths;
  const int64_t sequences = session.config().app_int("sequences").value_or(kSequences);
  for (int64_t id = 0; id < sequences; ++id) lengths.push_back(static_cast<int32_t>(length_of(id)));
  Toy toy(session.seed());
  toy.reads_less = wrong.how == "read_less";
  toy.is_twin = wrong.how == "twin_arrays";
  toy.has_arrays = session.config().app_bool("arrays").value_or(true);
  toy.halved = session.config().app_bool("halved").value_or(false);
  toy.rounded = session.config().app_bool("rounded").value_or(false);
  toy.turned = wrong.how == "other_arrays" && wrong.is_it();
  toy.trains_other = wrong.how == "other_gradient" && wrong.is_it();
  const auto content = static_cast<uint64_t>(session.config().app_int("content").value_or(0)) + wrong.other_content();
  if (wrong.how == "read_only_array") {
    toy.foreign = ::mmap(nullptr, kParameters * sizeof(float), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  if (wrong.how == "foreign_array") toy.foreign = BadPieces::nowhere();
  const bool has_hooks = session.config().app_bool("hooks").value_or(false);
  if (has_hooks) set_hooks(session, session.config().app_int("refuse_snapshot").value_or(-1));
  wrong.await_turn();
  expect_refused([&] { session.evaluated("early", 1); });
  session.start({std::move(lengths), {}, {}, content}, toy);
  wrong.end_turn();
  const double ends_below = session.config().app_float("ends_below").value_or(0);
  const bool has_metrics = session.config().app_bool("metrics").value_or(false);
  const bool evaluates_first = session.config().app_bool("evaluates_first").value_or(false);
  std::vector<float> gradient(kParameters);
  BadPieces bad(session);
  const std::string pieces = session.config().app_string("pieces").value_or("");
  HalfPieces in_16_bits(session, pieces, session.config().app_bool("widened").value_or(false));
  BackwardPieces backward(session.config());
  LookAhead ahead(session.config().app_int("look_ahead").value_or(0));
  while (pliant::Step* step = session.next()) {
    ahead.check(*step);
    ahead.look(session, *step);
    wrong.at_step(*step);
    if (evaluates_first && step->index() % 5 == 0) evaluate(session, *step, toy);
    const bool is_bad = wrong.how == "bad_pieces" && (wrong.rank < 0 || step->rank() == wrong.rank);
    if (pace.count() > 0) std::this_thread::sleep_for(pace);  // work of a known size
    bool breaks_off = false;
    for (const pliant::RowRange rows : step->micro_batches()) {
      std::fill(gradient.begin(), gradient.end(), 0.0F);
      double loss = 0;
      for (int64_t row = rows.first; row < rows.first + rows.count; ++row) {
        for (const int64_t id : step->batch().row(row)) {
          loss += toy.add_gradient(id, gradient);
          const auto attention = std::chrono::nanoseconds(square_ns * length_of(id) * length_of(id));
          if (square_ns > 0) std::this_thread::sleep_for(attention);  // work of a known size
        }
      }
      if (has_metrics) give_metrics(*step, rows, loss);
      wrong.at_add(*step, gradient, loss);
      if (is_bad) {
        bad.add(*step, rows, loss, gradient);
      } else if (backward.are_wanted(*step)) {
        breaks_off = !backward.add(*step, rows, loss, gradient);
      } else if (!pieces.empty()) {
        in_16_bits.add(*step, rows, loss, gradient);
      } else {
        step->add(rows, loss, gradient);
      }
    }
    if (breaks_off) continue;
    wrong.be_busy(session, *step);
    const bool leaves_out = wrong.leaves_out(*step);
    const bool resizes = wrong.resizes(*step);
    if (const auto committed = step->commit(); committed && !leaves_out) {
      toy.apply(committed->gradient(), step->learning_rate());
      wrong.after_apply(*step, toy.weights);
      if (resizes) --toy.shown;
      if (has_metrics && !evaluates_first && step->index() % 5 == 4) evaluate(session, *step, toy);
      const auto& found = session.last_evaluation();
      if (ends_below > 0 && found && found->values.at("loss_of_sequence") < ends_below)
        session.end_after_step("the loss is small enough");
      if (has_metrics) check_groups(*step, session.config().lr().base_lr);
      if (has_metrics) check_named_groups(*step, session.config().lr().groups);
      if (has_metrics) check_metrics_are_refused(session, *step);
    }
    if (is_bad && !step->micro_batches().empty()) BadPieces::add_late(*step, step->micro_batches().front(), gradient);
  }
  ahead.say();
  return 0;
}

}  // namespace

int main() {
  try {
    return train();
  } catch (const pliant::Error& error) {
    fmt::print(stderr, "toy_worker: {}\n", error.message());
    return static_cast<int>(pliant::exit_code_of(error));
  } catch (const std::exception& error) {
    fmt::print(stderr, "toy_worker: {}\n", error.what());
    return 1;
  }
}
