// device_trainer: a trainer whose weights and gradients stay on the accelerator's device. Start it with `pliant run`.
//
// It fits each weight w to sequences of l tokens with a label y: their loss is l/2 * (w - y)^2, their gradient l * w -
// l * y. Reductions do that on every accelerator; other trainers enqueue kernels of their own on Session::stream().
#include <array>
#include <cstdio>
#include <pliant/log.hpp>
#include <pliant/session.hpp>
#include <vector>

using pliant::DType, pliant::ReduceOp;

struct Sums {  // over sequences: of l, of l * y, of l * y^2
  double tokens = 0, labels = 0, squares = 0;
};

class Model final : public pliant::TrainingState {
 public:
  Model(pliant::Session& session, size_t size) : stream_(session.stream()), host_(size, 1.0F) {
    for (pliant::Buffer* const array : {&ones_, &weights_, &gradient_, &part_})
      *array = pliant::Buffer(session.accelerator(), session.device(), size * sizeof(float));
    copy(ones_.pointer(), host_.data());
    for (size_t i = 0; i < size; ++i) host_[i] = static_cast<float>((session.seed() + i * 17) % 1000) / 1000;
    copy(weights_.pointer(), host_.data());
  }
  uint64_t gradient_size() const override { return host_.size(); }
  std::vector<pliant::StateArray> arrays() override {  // for joins and snapshots, from where it lies to where it lies
    return {{"weights", DType::kF32, {static_cast<int64_t>(host_.size())}, weights_.pointer()}};
  }
  void save(std::ostream&) const override {}  // there is no other state
  void load(std::istream&) override {}

  pliant::GradientPiece gradient(const Sums& of) {  // enqueues its computation
    scale(gradient_, weights_.pointer(), of.tokens);
    add_scaled(gradient_, ones_.pointer(), -of.labels);
    return {.offset = 0, .count = host_.size(), .data = gradient_.pointer()};
  }
  double loss(const Sums& of) {  // for want of a kernel, on the host
    copy(host_.data(), weights_.pointer());
    double sum = 0;
    for (const double w : host_) sum += 0.5 * (of.tokens * w * w - 2 * of.labels * w + of.squares);
    return sum / static_cast<double>(host_.size());
  }
  void apply(std::span<const float> mean_gradient, double rate) { add_scaled(weights_, mean_gradient.data(), -rate); }

 private:
  void copy(void* to, const void* from) {
    stream_.copy(to, from, host_.size() * sizeof(float));
    stream_.synchronize();
  }
  void scale(pliant::Buffer& to, const void* from, double by) {
    stream_.reduce(to.pointer(), std::array{from}, host_.size(), DType::kF32, ReduceOp::kSum, by);
  }
  void add_scaled(pliant::Buffer& to, const void* from, double by) {
    scale(part_, from, by);
    const std::array<const void*, 2> both{to.pointer(), part_.pointer()};
    stream_.reduce(to.pointer(), both, host_.size(), DType::kF32, ReduceOp::kSum);
  }

  pliant::Stream& stream_;
  std::vector<float> host_;
  pliant::Buffer ones_, weights_, gradient_, part_;
};

int main() try {
  pliant::log_to_stderr();
  pliant::leave_stop_signals_to_agent();
  pliant::Session session = pliant::Session::attach();
  Model model(session, static_cast<size_t>(session.config().app_int("weights").value_or(65536)));
  std::vector<int32_t> lengths(1000);
  for (size_t id = 0; id < lengths.size(); ++id) lengths[id] = static_cast<int32_t>(3 + id * 37 % 29);
  session.start({lengths, {}, {}, 0}, model);
  while (pliant::Step* const step = session.next()) {
    for (const pliant::MicroBatch& micro : step->micro_batches()) {
      Sums sums;
      for (int64_t row = micro.rows.first; row < micro.rows.first + micro.rows.count; ++row) {
        for (const int64_t id : step->batch().row(row)) {
          const double tokens = lengths[static_cast<size_t>(id)], label = static_cast<double>(id % 7) / 7;
          sums = {sums.tokens + tokens, sums.labels + tokens * label, sums.squares + tokens * label * label};
        }
      }
      step->add_piece(micro, model.gradient(sums));
      step->add(micro, model.loss(sums));
    }
    if (const auto committed = step->commit()) model.apply(committed->device_gradient(), step->learning_rate());
  }
} catch (const pliant::Error& error) {
  std::fprintf(stderr, "device_trainer: %s\n", error.message().c_str());
  return static_cast<int>(error.exit_code());
}
