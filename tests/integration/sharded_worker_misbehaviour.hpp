// What the worker of sharded jobs does wrong when [app] says so.
#pragma once

#include <fmt/format.h>
#include <signal.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "integration/sharded_worker_memory.hpp"
#include "pliant/session.hpp"
#include "pliant/sharded.hpp"

namespace pliant::test {

/// What [app] asks one rank to do wrong in its first incarnation, or with misbehave_rank = -1 every rank in each:
/// `misbehave` at the place `misbehave_at` of a step.
class Misbehaviour {
 public:
  explicit Misbehaviour(Session& session)
      : session_(session),
        how_(session.config().app_string("misbehave").value_or("")),
        place_(session.config().app_string("misbehave_at").value_or("")),
        rank_(session.config().app_int("misbehave_rank").value_or(0)),
        step_(session.config().app_int("misbehave_step").value_or(0)) {
    const char* const restarts = std::getenv("TORCHELASTIC_RESTART_COUNT");
    if (rank_ != -1 && restarts != nullptr && std::string(restarts) != "0") how_.clear();
  }
  /// Whether this process, by the rank that it was started as, does so.
  [[nodiscard]] bool is(const char* how) const {
    const char* const own = std::getenv("RANK");
    return how_ == how && own != nullptr && (rank_ == -1 || std::to_string(rank_) == own);
  }
  [[nodiscard]] bool is_now(const char* how, const Step& step) const {
    const bool now = is_step(step) && is(how);
    if (now) note_time();
    return now;
  }
  [[nodiscard]] bool has_place(const char* place) const { return place_ == place; }
  void at(const char* place, const Step& step) const {
    if (step.index() != step_ || place_ != place) return;
    if (is("kill")) ::raise(SIGKILL);
    if (is("stop") && !std::exchange(has_stopped_, true)) ::raise(SIGSTOP);
    if (is("lose_device") && !std::exchange(has_lost_, true)) lose_device();
    if (is("throw") || (is("catch") && !std::exchange(has_thrown_, true))) {
      throw std::runtime_error("the program ran out of ideas");
    }
  }
  [[nodiscard]] bool is_step(const Step& step) const { return step.index() == step_; }
  /// Where one rank is to run short of memory by the options of all, the others have that behind them from here on.
  void spare_others() const {
    if (how_ != "run_short" || is("run_short")) return;
    try {
      for (int i = 0; i < 1000; ++i) const Buffer one(session_.accelerator(), session_.device(), 64);
    } catch (const Error&) {  // that was it
    }
  }
  [[nodiscard]] bool goes_on_after(const Error& error) const {
    return is("run_short") && error.status() == Status::kResourceExhausted;
  }
  /// Other first values, when all have theirs; says what came of it.
  void import_late(const Step& step, ShardedModel& model, const Config& config) const {
    if (!is_now("late_import", step)) return;
    try {
      model.import_safetensors(config.app_string("other_weights").value_or(""));
      fmt::print(stderr, "sharded_worker: imported\n");
    } catch (const Error& error) {
      const bool is_refused = error.status() == Status::kFailedPrecondition;
      fmt::print(stderr, "sharded_worker: {}: {}\n", is_refused ? "refused" : "failed", error.message());
    }
  }
  void spoil(const Step& step, std::span<float> gradient) const {
    if (!spoils(step) || (how_ != "nan" && how_ != "nan_gradient")) return;
    gradient[gradient.size() / 2] = std::numeric_limits<float>::quiet_NaN();
  }
  [[nodiscard]] double spoiled(const Step& step, double loss) const {
    const bool has_rows = loss != 0;
    if (!spoils(step) || !has_rows || (how_ != "nan" && how_ != "nan_loss")) return loss;
    return std::numeric_limits<double>::quiet_NaN();
  }
  /// The order of layers in the forward of this step: other than that of other ranks.
  [[nodiscard]] std::vector<size_t> order_of(const Step& step, size_t layers) const {
    std::vector<size_t> order(layers);
    std::iota(order.begin(), order.end(), size_t{0});
    if (is_now("other_order", step)) std::swap(order.front(), order.back());
    if (is_now("fewer_visits", step)) order.pop_back();
    return order;
  }
  [[nodiscard]] bool leaves_out_update(const Step& step) const { return is_now("skip_update", step); }
  /// For `held`, once: this rank runs ahead of the other in the pass that comes; or, false, lets it. nullopt: neither.
  [[nodiscard]] std::optional<bool> runs_ahead(const Step& step) const {
    if (!has_place("held") || !is_step(step) || how_.empty() || std::exchange(has_met_, true)) return std::nullopt;
    return is(how_.c_str());
  }
  [[nodiscard]] int signal() const { return how_ == "stop" ? SIGSTOP : SIGKILL; }
  /// Between what was read and what is to be written by it.
  void break_write(const Step& step) const {
    if (!is_step(step) || (!is("break_write") && !is("break_writes"))) return;
    if (is("break_writes") || !std::exchange(has_thrown_, true))
      throw std::runtime_error("the program ran out of ideas");
  }
  /// One bit of what this rank owns, which an update has shown; `how`: when.
  void flip(const char* how, const Step& step, Session& session, float* weights) const {
    if (!is_now(how, step) || weights == nullptr || std::exchange(has_flipped_, true)) return;
    const Seen first(session, weights, 1);
    auto* const bytes = reinterpret_cast<unsigned char*>(&first[0]);
    bytes[0] = static_cast<unsigned char>(bytes[0] ^ 1U);
    first.store(weights);
  }

 private:
  /// Leaves the time of the first misdeed, by the machine's steady clock, where the test asks for it.
  static void note_time() {
    const char* const file = std::getenv("TEST_MISDEED_AT");
    if (file == nullptr || std::ifstream(file).good()) return;
    std::ofstream(file) << std::chrono::steady_clock::now().time_since_epoch().count() << "\n";
  }
  /// Of `sim`, whose lose_device_at of all ranks is far behind what any of them comes to: this one does, so that what
  /// uses the device next finds it lost.
  void lose_device() const {
    const Buffer there(session_.accelerator(), session_.device(), sizeof(float));
    const float here = 0;
    try {
      for (int i = 0; i < 1000000; ++i) session_.stream().copy(there.pointer(), &here, sizeof(here));
    } catch (const Error&) {  // nothing before it is under way any more
    }
  }
  /// By its rank of now; -1: every rank.
  [[nodiscard]] bool spoils(const Step& step) const {
    return step.index() == step_ && (rank_ == -1 || step.rank() == rank_);
  }

  Session& session_;
  std::string how_;
  std::string place_;
  int64_t rank_;
  int64_t step_;
  mutable bool has_thrown_ = false;
  mutable bool has_stopped_ = false;
  mutable bool has_lost_ = false;
  mutable bool has_flipped_ = false;
  mutable bool has_met_ = false;
};

}  // namespace pliant::test
