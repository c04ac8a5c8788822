// A worker with a model of a few floats: quick to start, exact to check, and able to misbehave when [app] says so.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <istream>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

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

int64_t length_of(int64_t id) {
  return 3 + (id * 37) % 29;
}

struct Toy final : pliant::TrainingState {
  std::vector<float> weights;
  std::vector<float> momentum;

  explicit Toy(uint64_t seed) : weights(kParameters), momentum(kParameters, 0.0F) {
    for (size_t i = 0; i < kParameters; ++i) weights[i] = static_cast<float>((seed * 131 + i * 17) % 1000) / 1000.0F;
  }
  [[nodiscard]] uint64_t gradient_size() const override { return kParameters; }
  void save(std::ostream& out) const override {
    out.write(reinterpret_cast<const char*>(weights.data()), static_cast<std::streamsize>(kParameters * sizeof(float)));
    out.write(reinterpret_cast<const char*>(momentum.data()),
              static_cast<std::streamsize>(kParameters * sizeof(float)));
  }
  void load(std::istream& in) override {
    std::vector<float> both(2 * kParameters);
    in.read(reinterpret_cast<char*>(both.data()), static_cast<std::streamsize>(both.size() * sizeof(float)));
    if (!in) throw std::runtime_error("the toy's state is too short");
    weights.assign(both.begin(), both.begin() + kParameters);
    momentum.assign(both.begin() + kParameters, both.end());
  }
  // Each sequence pulls every weight towards a value of its own, as strongly as it is long.
  double add_gradient(int64_t id, std::vector<float>& gradient) const {
    double loss = 0;
    const auto strength = static_cast<float>(length_of(id));
    for (size_t i = 0; i < kParameters; ++i) {
      const float target = static_cast<float>((static_cast<uint64_t>(id) * 7919 + i * 104729) % 2003) / 2003.0F;
      const float error = weights[i] - target;
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

// What [app] asks this incarnation to do wrong.
struct Misbehaviour {
  std::string how;
  int64_t rank = 0;
  int64_t step = 0;
  explicit Misbehaviour(const pliant::Config& config)
      : how(config.app_string("misbehave").value_or("")),
        rank(config.app_int("misbehave_rank").value_or(0)),
        step(config.app_int("misbehave_step").value_or(0)) {
    const char* restarts = std::getenv("TORCHELASTIC_RESTART_COUNT");
    const bool always = config.app_bool("misbehave_always").value_or(false);
    if (restarts != nullptr && std::string(restarts) != "0" && !always) how.clear();
  }
  void at_start() const {
    const char* own = std::getenv("RANK");
    if (own == nullptr || std::to_string(rank) != own) return;
    if (how == "hang_at_start") ::pause();
    if (how == "exit_at_start") std::exit(1);
    if (how == "usage_at_start") std::exit(2);
  }
  void at_step(const pliant::Step& now) const {
    if (now.rank() != rank || now.index() != step) return;
    if (how == "exit0") ::_exit(0);
    if (how == "exit1") std::exit(1);
    if (how == "hang") ::pause();
    if (how == "stop") ::raise(SIGSTOP);
    if (how == "orphan") {  // leaves a grandchild behind
      if (::fork() == 0) ::pause();
      ::_exit(1);
    }
  }
};

int train() {
  pliant::Session session = pliant::Session::attach();
  const Misbehaviour wrong(session.config());
  const std::chrono::milliseconds pace(session.config().app_int("step_ms").value_or(0));
  const int64_t square_ns = session.config().app_int("square_ns").value_or(0);
  wrong.at_start();
  std::vector<int32_t> lengths;
  const int64_t sequences = session.config().app_int("sequences").value_or(kSequences);
  for (int64_t id = 0; id < sequences; ++id) lengths.push_back(static_cast<int32_t>(length_of(id)));
  Toy toy(session.seed());
  const auto content = static_cast<uint64_t>(session.config().app_int("content").value_or(0));
  session.start({std::move(lengths), {}, {}, content}, toy);
  std::vector<float> gradient(kParameters);
  while (pliant::Step* step = session.next()) {
    wrong.at_step(*step);
    if (pace.count() > 0) std::this_thread::sleep_for(pace);  // work of a known size
    for (const pliant::MicroBatch& micro : step->micro_batches()) {
      std::fill(gradient.begin(), gradient.end(), 0.0F);
      double loss = 0;
      for (int64_t row = micro.rows.first; row < micro.rows.first + micro.rows.count; ++row) {
        for (const int64_t id : step->batch().row(row)) {
          loss += toy.add_gradient(id, gradient);
          const auto attention = std::chrono::nanoseconds(square_ns * length_of(id) * length_of(id));
          if (square_ns > 0) std::this_thread::sleep_for(attention);  // work of a known size
        }
      }
      step->add(micro, loss, gradient);
    }
    if (const auto committed = step->commit()) toy.apply(committed->gradient, step->learning_rate());
  }
  return 0;
}

}  // namespace

int main() {
  try {
    return train();
  } catch (const pliant::Error& error) {
    fmt::print(stderr, "toy_worker: {}\n", error.message());
    return static_cast<int>(error.exit_code());
  } catch (const std::exception& error) {
    fmt::print(stderr, "toy_worker: {}\n", error.what());
    return 1;
  }
}
