// A worker whose whole state lies in device memory, and which goes wrong there when [app] says so.
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pliant/session.hpp"

namespace {

/// What [app] asks the first incarnation of a rank to do wrong, after the step that it names is committed.
class Misbehaviour {
 public:
  explicit Misbehaviour(const pliant::Config& config)
      : how_(config.app_string("misbehave").value_or("")),
        rank_(config.app_int("misbehave_rank").value_or(0)),
        step_(config.app_int("misbehave_step").value_or(0)) {
    const char* const restarts = std::getenv("TORCHELASTIC_RESTART_COUNT");
    if (restarts != nullptr && restarts != std::string_view("0")) how_.clear();
  }
  [[nodiscard]] bool does(std::string_view what, const pliant::Step& now) const {
    return how_ == what && now.rank() == rank_ && now.index() == step_;
  }

 private:
  std::string how_;
  int64_t rank_;
  int64_t step_;
};

/// Says on stdout the most that this process has had in memory, in kB.
void say_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) std::printf("%s\n", line.c_str());
  }
}

/// Each weight w is pulled to a label y of each sequence of l tokens: the gradient is l * w - l * y.
class Model final : public pliant::TrainingState {
 public:
  Model(pliant::Session& session, size_t size) : stream_(session.stream()), size_(size) {
    for (pliant::Buffer* const array : {&ones_, &weights_, &momentum_, &gradient_, &part_})
      *array = pliant::Buffer(session.accelerator(), session.device(), size * sizeof(float));
    std::vector<float> first(size, 1.0F);
    copy(ones_, first);
    for (size_t i = 0; i < size; ++i) first[i] = static_cast<float>((session.seed() + i * 17) % 1000) / 1000;
    copy(weights_, first);
    copy(momentum_, std::vector<float>(size, 0.0F));
  }
  [[nodiscard]] uint64_t gradient_size() const override { return size_; }
  [[nodiscard]] std::vector<pliant::StateArray> arrays() override {
    const auto count = static_cast<int64_t>(size_);
    return {{"weights", pliant::DType::kF32, {count}, weights_.pointer()},
            {"momentum", pliant::DType::kF32, {count}, momentum_.pointer()}};
  }
  [[nodiscard]] pliant::GradientPiece gradient(double tokens, double labels) {
    combine(gradient_, tokens, weights_.pointer(), -labels, ones_.pointer());
    return {.offset = 0, .count = size_, .data = gradient_.pointer()};
  }
  void apply(std::span<const float> gradient, double rate) {
    combine(momentum_, 0.5, momentum_.pointer(), 1, gradient.data());
    combine(weights_, 1, weights_.pointer(), -rate, momentum_.pointer());
  }
  /// The lowest bit of a weight in the middle becomes another, where it lies.
  void flip_bit() {
    auto* const there = static_cast<unsigned char*>(weights_.pointer()) + size_ / 3 * sizeof(float);
    std::array<unsigned char, sizeof(float)> weight{};
    stream_.copy(weight.data(), there, weight.size());
    stream_.synchronize();
    weight.front() = static_cast<unsigned char>(weight.front() ^ 1U);
    stream_.copy(there, weight.data(), weight.size());
    stream_.synchronize();
  }

 private:
  void copy(const pliant::Buffer& to, const std::vector<float>& from) {
    stream_.copy(to.pointer(), from.data(), to.bytes());
    stream_.synchronize();
  }
  /// to = x * a + y * b; `to` may be either.
  void combine(pliant::Buffer& to, double x, const void* a, double y, const void* b) {
    const std::array<const void*, 2> parts{to.pointer(), part_.pointer()};
    stream_.reduce(part_.pointer(), std::array{b}, size_, pliant::DType::kF32, pliant::ReduceOp::kSum, y);
    stream_.reduce(to.pointer(), std::array{a}, size_, pliant::DType::kF32, pliant::ReduceOp::kSum, x);
    stream_.reduce(to.pointer(), parts, size_, pliant::DType::kF32, pliant::ReduceOp::kSum);
  }

  pliant::Stream& stream_;
  size_t size_;
  pliant::Buffer ones_, weights_, momentum_, gradient_, part_;
};

void train(pliant::Session& session) {
  Model model(session, static_cast<size_t>(session.config().app_int("weights").value_or(1003)));
  const Misbehaviour wrong(session.config());
  std::vector<int32_t> lengths(1000);
  for (size_t id = 0; id < lengths.size(); ++id) lengths[id] = static_cast<int32_t>(3 + id * 37 % 29);
  session.start({lengths, {}, {}, 0}, model);
  while (pliant::Step* const step = session.next()) {
    for (const pliant::RowRange rows : step->micro_batches()) {
      double tokens = 0;
      double labels = 0;
      for (const int64_t id : step->batch().ids_of(rows)) {
        tokens += lengths[static_cast<size_t>(id)];
        labels += lengths[static_cast<size_t>(id)] * static_cast<double>(id % 7) / 7;
      }
      step->add(rows, tokens, model.gradient(tokens, labels));
    }
    const auto committed = step->commit();
    if (!committed) continue;
    if (!wrong.does("skip_apply", *step)) model.apply(committed->device_gradient(), step->learning_rate());
    if (wrong.does("flip_bit", *step)) model.flip_bit();
  }
  if (session.config().app_bool("says_memory").value_or(false)) say_memory();
}

}  // namespace

int main() {
  return pliant::run_worker("device_worker", train);
}
