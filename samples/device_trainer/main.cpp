// device_trainer: a trainer whose weights and gradients stay on the accelerator's device. Start it with `pliant run`.
// It fits each weight w to sequences of l tokens with a label y: their loss is l/2 * (w - y)^2, their gradient l * w -
// l * y. Reductions do that on every accelerator; other trainers enqueue kernels of their own on Session::stream().
#include <array>
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

  pliant::GradientPiece gradient(const Sums& of) {  // enqueues its computation
    combine(gradient_, of.tokens, weights_.pointer(), -of.labels, ones_.pointer());
    return {.offset = 0, .count = host_.size(), .data = gradient_.pointer()};
  }
  double loss(const Sums& of) {  // for want of a kernel, on the host
    copy(host_.data(), weights_.pointer());
    double sum = 0;
    for (const double w : host_) sum += 0.5 * (of.tokens * w * w - 2 * of.labels * w + of.squares);
    return sum / static_cast<double>(host_.size());
  }
  void apply(std::span<const float> mean_gradient, double rate) {
    combine(weights_, 1, weights_.pointer(), -rate, mean_gradient.data());
  }

 private:
  void copy(void* to, const void* from) {
    stream_.copy(to, from, host_.size() * sizeof(float));
    stream_.synchronize();
  }
  void combine(pliant::Buffer& to, double x, const void* a, double y, const void* b) {  // to = x * a + y * b
    const std::array<const void*, 2> parts{to.pointer(), part_.pointer()};
    stream_.reduce(to.pointer(), std::array{a}, host_.size(), DType::kF32, ReduceOp::kSum, x);
    stream_.reduce(part_.pointer(), std::array{b}, host_.size(), DType::kF32, ReduceOp::kSum, y);
    stream_.reduce(to.pointer(), parts, host_.size(), DType::kF32, ReduceOp::kSum);
  }

  pliant::Stream& stream_;
  std::vector<float> host_;
  pliant::Buffer ones_, weights_, gradient_, part_;
};

void train(pliant::Session& session) {
  Model model(session, static_cast<size_t>(session.config().app_int("weights").value_or(65536)));
  std::vector<int32_t> lengths(1000);
  uint64_t content = 1;  // of the labels: a worker that has others is named
  for (size_t id = 0; id < 1000; content = content * 31 + id++ % 7)
    lengths[id] = static_cast<int32_t>(3 + id * 37 % 29);
  session.start({lengths, {}, {}, content}, model);
  while (pliant::Step* const step = session.next()) {
    for (const pliant::RowRange rows : step->micro_batches()) {
      Sums sums;
      for (const int64_t id : step->batch().ids_of(rows)) {
        const double tokens = lengths[static_cast<size_t>(id)], label = static_cast<double>(id % 7) / 7;
        sums = {sums.tokens + tokens, sums.labels + tokens * label, sums.squares + tokens * label * label};
      }
      step->add(rows, model.loss(sums), model.gradient(sums));
    }
    if (const auto committed = step->commit()) model.apply(committed->device_gradient(), step->learning_rate());
  }
}

int main() {
  return pliant::run_worker("device_trainer", train);
}
