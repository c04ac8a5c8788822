// device_trainer: a trainer whose weights and gradients stay on the accelerator's device. Start it with `pliant run`.
//
// Each sequence of l tokens pulls the weights w towards one of a few targets t: its loss is l/2 * |w - t|^2, its
// gradient l * (w - t). Copies and reductions are all that this needs, so it trains on any accelerator; other trainers
// launch kernels of their own; those have run when add_piece is called, and wait for Session::stream() before they
// write the gradient again.
#include <array>
#include <cstdio>
#include <pliant/session.hpp>
#include <vector>

namespace {

constexpr int64_t kSequences = 1000;
constexpr size_t kTargets = 7;

int32_t length_of(int64_t id) {
  return static_cast<int32_t>(3 + id * 37 % 29);
}

float target(size_t k, size_t i) {
  return static_cast<float>((k * 7919 + i * 104729) % 2003) / 2003;
}

class Model final : public pliant::TrainingState {
 public:
  Model(pliant::Session& session, size_t weights)
      : stream_(session.stream()),
        values_(weights),
        weights_(array(session)),
        gradient_(array(session)),
        scratch_(array(session)) {
    for (size_t i = 0; i < weights; ++i) values_[i] = static_cast<float>((session.seed() + i * 17) % 1000) / 1000;
    to_device(weights_);
    for (size_t k = 0; k < kTargets; ++k) {
      for (size_t i = 0; i < weights; ++i) values_[i] = target(k, i);
      to_device(targets_.emplace_back(array(session)));
    }
  }

  [[nodiscard]] uint64_t gradient_size() const override { return values_.size(); }
  /// What joins and snapshots hold, where it lies. There is nothing else.
  [[nodiscard]] std::vector<pliant::StateArray> arrays() override {
    return {{"weights", pliant::DType::kF32, {static_cast<int64_t>(values_.size())}, weights_.pointer()}};
  }
  void save(std::ostream&) const override {}
  void load(std::istream&) override {}

  /// Once a step, for loss_of: the distance to each target, on the host for want of a kernel.
  void measure() {
    stream_.copy(values_.data(), weights_.pointer(), weights_.bytes());
    stream_.synchronize();
    for (size_t k = 0; k < kTargets; ++k) {
      distances_[k] = 0;
      for (size_t i = 0; i < values_.size(); ++i) {
        const double error = static_cast<double>(values_[i]) - static_cast<double>(target(k, i));
        distances_[k] += error * error;
      }
    }
  }
  [[nodiscard]] double loss_of(std::span<const int64_t> sequences) const {
    double loss = 0;
    for (const int64_t id : sequences) loss += length_of(id) / 2.0 * distances_[static_cast<size_t>(id) % kTargets];
    return loss / static_cast<double>(values_.size());
  }
  /// Enqueues the gradient of these sequences.
  pliant::GradientPiece gradient_of(std::span<const int64_t> sequences) {
    stream_.fill(gradient_.pointer(), 0, gradient_.bytes());
    for (const int64_t id : sequences) {
      const double length = length_of(id);
      add_scaled(gradient_, weights_.pointer(), length);
      add_scaled(gradient_, targets_[static_cast<size_t>(id) % kTargets].pointer(), -length);
    }
    return {.offset = 0, .count = values_.size(), .data = gradient_.pointer()};
  }
  void apply(std::span<const float> mean_gradient, double rate) {
    add_scaled(weights_, mean_gradient.data(), -rate);
    stream_.synchronize();
  }

 private:
  pliant::Buffer array(pliant::Session& session) const {
    return {session.accelerator(), session.device(), values_.size() * sizeof(float)};
  }
  void to_device(const pliant::Buffer& to) {
    stream_.copy(to.pointer(), values_.data(), to.bytes());
    stream_.synchronize();
  }
  void add_scaled(const pliant::Buffer& to, const void* from, double by) {
    using pliant::DType, pliant::ReduceOp;
    stream_.reduce(scratch_.pointer(), std::array{from}, values_.size(), DType::kF32, ReduceOp::kSum, by);
    const std::array<const void*, 2> both{to.pointer(), scratch_.pointer()};
    stream_.reduce(to.pointer(), both, values_.size(), DType::kF32, ReduceOp::kSum);
  }

  pliant::Stream& stream_;
  std::vector<float> values_;  // on the host, for copies
  pliant::Buffer weights_, gradient_, scratch_;
  std::vector<pliant::Buffer> targets_;
  std::array<double, kTargets> distances_{};
};

int train() {
  pliant::leave_stop_signals_to_agent();
  pliant::Session session = pliant::Session::attach();
  Model model(session, static_cast<size_t>(session.config().app_int("weights").value_or(65536)));
  const std::string device = session.accelerator().properties(session.device()).name;
  std::printf("device_trainer: device %d, %s\n", session.device(), device.c_str());
  std::fflush(stdout);
  std::vector<int32_t> lengths;
  for (int64_t id = 0; id < kSequences; ++id) lengths.push_back(length_of(id));
  session.start({std::move(lengths), {}, {}, 0}, model);
  while (pliant::Step* const step = session.next()) {
    model.measure();
    for (const pliant::MicroBatch& micro : step->micro_batches()) {
      const auto [first, count] = micro.rows;
      const std::vector<uint64_t>& offsets = step->batch().offsets;
      const uint64_t begin = offsets[static_cast<size_t>(first)];
      const auto sequences =
          std::span(step->batch().ids).subspan(begin, offsets[static_cast<size_t>(first + count)] - begin);
      step->add_piece(micro, model.gradient_of(sequences));
      step->add(micro, model.loss_of(sequences));
    }
    if (const auto committed = step->commit()) model.apply(committed->device_gradient(), step->learning_rate());
  }
  return 0;
}

}  // namespace

int main() {
  try {
    return train();
  } catch (const pliant::Error& error) {
    std::fprintf(stderr, "device_trainer: %s\n", error.message().c_str());
    return static_cast<int>(error.exit_code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "device_trainer: %s\n", error.what());
    return 1;
  }
}
