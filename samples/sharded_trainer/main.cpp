// sharded_trainer: a trainer that needs no more than one layer of its model whole at a time. Start it with `pliant
// run`.
//
// It fits each weight w to sequences of l tokens with a label y: their loss is l/2 * (w - y)^2, their gradient l * w -
// l * y. Reductions do that on every accelerator; other trainers enqueue kernels of their own on Session::stream().
#include <array>
#include <cmath>
#include <cstdio>
#include <optional>
#include <pliant/session.hpp>
#include <pliant/sharded.hpp>
#include <string>
#include <vector>

using pliant::Direction, pliant::DType, pliant::ReduceOp;

int32_t length_of(int64_t id) {
  return static_cast<int32_t>(3 + id * 37 % 29);
}

struct Sums {  // over sequences: of l, of l * y, of l * y^2
  double tokens = 0, labels = 0, squares = 0;
  void add(int64_t id) {
    const double length = length_of(id), label = static_cast<double>(id % 7) / 7;
    *this = {tokens + length, labels + length * label, squares + length * label * label};
  }
};

class Model final : public pliant::TrainingState {
 public:
  Model(pliant::Session& session, int64_t layers, size_t width, bool averages)
      : stream_(session.stream()), shards_(session, {}), host_(width, 1.0F) {
    for (pliant::Buffer* const array : {&ones_, &part_, &whole_, &sum_})
      *array = pliant::Buffer(session.accelerator(), session.device(), width * sizeof(float));
    stream_.copy(ones_.pointer(), host_.data(), width * sizeof(float));
    stream_.synchronize();
    root_ = shards_.add({.name = "model", .parent = {}, .own = {}, .external = {}});
    for (int64_t i = 0; i < layers; ++i) {
      const auto first = static_cast<size_t>(session.seed()) + static_cast<size_t>(i) * 131;
      pliant::ParameterSpec weights;
      weights.name = "layer." + std::to_string(i) + ".weights";
      weights.shape = {static_cast<int64_t>(width)};
      weights.initialise = [first](std::span<float> values) {
        for (size_t k = 0; k < values.size(); ++k) values[k] = static_cast<float>((first + k * 17) % 1000) / 1000;
      };
      weights_.push_back(shards_.add(weights));
      // The last layer uses the weights of the first one, too.
      const bool shares = i + 1 == layers && i > 0;
      layers_.push_back(
          shards_.add({.name = "layer." + std::to_string(i),
                       .parent = root_,
                       .own = {weights_.back()},
                       .external = shares ? std::vector{weights_.front()} : std::vector<pliant::ParameterId>()}));
      used_.push_back({weights_.size() - 1});
      if (shares) used_.back().push_back(0);
      if (!averages) continue;
      weights.name += ".average";
      weights.frozen = true;
      averages_.push_back(shards_.add(weights));
    }
  }
  // Between two steps: the last layer has its own weights alone, or those of the first one, too.
  void tie(bool tied) {
    if (layers_.size() < 2 || tied == (used_.back().size() == 2)) return;
    used_.back().resize(tied ? 2 : 1);  // what is new is 0, the first one
    const std::vector<pliant::ParameterId> none, first{weights_.front()};
    shards_.set_parameters(layers_.back(), {weights_.back()}, tied ? first : none);
  }
  pliant::ShardedModel& shards() { return shards_; }
  uint64_t gradient_size() const override { return 0; }

  // Forward and backward; a pass without rows only keeps the workers together. Returns the summed loss.
  double pass(const std::optional<Sums>& of) {
    double loss = 0;
    visit(Direction::kForward, [&](pliant::ParameterId weights) {
      if (of) loss += loss_of(whole(weights), *of);
    });
    visit(Direction::kBackward, [&](pliant::ParameterId weights) {
      if (!of) return;
      float* const sum = floats(shards_.gradient_data(weights), shards_.reduce_dtype(), sum_);
      add_scaled(sum, whole(weights), of->tokens);
      add_scaled(sum, static_cast<float*>(ones_.pointer()), -of->labels);
      if (shards_.reduce_dtype() == DType::kF32) return;
      stream_.cast(shards_.gradient_data(weights), shards_.reduce_dtype(), sum, DType::kF32, host_.size());
      stream_.synchronize();
    });
    return loss;
  }
  // The loss of a token of sequences that it is not trained with. Every worker computes all of it.
  double evaluate(const Sums& of) {
    double loss = 0;
    shards_.begin_evaluation();
    visit(Direction::kForward, [&](pliant::ParameterId weights) { loss += loss_of(whole(weights), of); });
    shards_.end_pass();
    return loss / of.tokens;
  }
  // Averages go a share of the way to the weights. They are parameters that no layer uses: cut over the workers and in
  // snapshots, too, whole here for one layer at a time.
  void average(double share) {
    std::vector<float> values(host_.size());
    for (size_t i = 0; i < averages_.size(); ++i) {
      shards_.read(weights_[i], host_);
      shards_.read(averages_[i], values);
      for (size_t k = 0; k < values.size(); ++k) values[k] += static_cast<float>(share) * (host_[k] - values[k]);
      shards_.write(averages_[i], values);
    }
  }
  // As evaluate, by hand: each is gathered while the one before is computed with.
  double evaluate_averages(const Sums& of) {
    std::vector<pliant::ParameterId> order;
    for (const std::vector<size_t>& layer : used_)
      for (const size_t i : layer) order.push_back(averages_[i]);
    double loss = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      shards_.fetch(order[i]);
      if (i + 1 < order.size()) shards_.prefetch(order[i + 1]);
      loss += loss_of(whole(order[i]), of);
      shards_.release(order[i]);
    }
    return loss / of.tokens;
  }
  const std::vector<float>& read(pliant::ParameterId parameter) {
    shards_.read(parameter, host_);
    return host_;
  }
  void apply(double rate) {  // to the weights that this worker owns
    shards_.update([&](const pliant::ShardRange& range) {
      scale(static_cast<float*>(part_.pointer()), range.gradient, range.count, -rate);
      const std::array<const void*, 2> both{range.weights, part_.pointer()};
      stream_.reduce(range.weights, both, range.count, DType::kF32, ReduceOp::kSum);
    });
    stream_.synchronize();
  }

 private:
  template <class Work>
  void visit(Direction direction, Work&& work) {
    shards_.enter(root_, direction);
    for (size_t i = 0; i < layers_.size(); ++i) {
      const size_t layer = direction == Direction::kForward ? i : layers_.size() - 1 - i;
      shards_.enter(layers_[layer], direction);
      for (const size_t k : used_[layer]) work(weights_[k]);
      shards_.leave(layers_[layer], direction);
    }
    shards_.leave(root_, direction);
  }
  // What is whole may be bf16, and is computed with in f32 here.
  float* floats(void* array, DType type, pliant::Buffer& room) {
    if (type == DType::kF32) return static_cast<float*>(array);
    stream_.cast(room.pointer(), DType::kF32, array, type, host_.size());
    return static_cast<float*>(room.pointer());
  }
  float* whole(pliant::ParameterId weights) { return floats(shards_.data(weights), shards_.compute_dtype(), whole_); }
  double loss_of(const float* weights, const Sums& of) {  // for want of a kernel, on the host
    stream_.copy(host_.data(), weights, host_.size() * sizeof(float));
    stream_.synchronize();
    double sum = 0;
    for (const double w : host_) sum += 0.5 * (of.tokens * w * w - 2 * of.labels * w + of.squares);
    return sum / static_cast<double>(host_.size() * layers_.size());
  }
  void scale(float* to, const float* from, uint64_t count, double by) {
    stream_.reduce(to, std::array<const void*, 1>{from}, count, DType::kF32, ReduceOp::kSum, by);
  }
  void add_scaled(float* to, const float* from, double by) {
    scale(static_cast<float*>(part_.pointer()), from, host_.size(), by);
    const std::array<const void*, 2> both{to, part_.pointer()};
    stream_.reduce(to, both, host_.size(), DType::kF32, ReduceOp::kSum);
    stream_.synchronize();
  }

  pliant::Stream& stream_;
  pliant::ShardedModel shards_;
  std::vector<float> host_;
  pliant::Buffer ones_, part_, whole_, sum_;
  pliant::ModuleId root_{};
  std::vector<pliant::ModuleId> layers_;
  std::vector<pliant::ParameterId> weights_, averages_;
  std::vector<std::vector<size_t>> used_;  // by layer, of the weights
};

void train(pliant::Session& session) {
  const pliant::Config& config = session.config();
  const std::optional<double> ema = config.lr().ema;
  Model model(session, config.app_int("layers").value_or(6),
              static_cast<size_t>(config.app_int("width").value_or(20000)), ema.has_value());
  const int64_t eval_every = config.app_int("eval_every").value_or(0);
  const int64_t untie_after = config.app_int("untie_after").value_or(0);
  const std::string show = config.app_string("show").value_or("");
  const std::optional<pliant::ParameterId> shown = model.shards().find(show);
  if (!show.empty() && !shown)
    config.refuse_app("show",
                      "names no parameter: they are layer.K.weights and, with [lr] ema, layer.K.weights.average");
  constexpr int64_t kSequences = 1000, kHeldOut = 100;
  std::vector<int32_t> lengths;
  for (int64_t id = 0; id < kSequences; ++id) lengths.push_back(length_of(id));
  Sums held_out;
  for (int64_t id = kSequences; id < kSequences + kHeldOut; ++id) held_out.add(id);
  session.start({lengths, {}, {}, 0}, model.shards(), model);
  while (pliant::Step* const step = session.next()) {
    const int64_t steps = step->index() + 1;
    model.tie(untie_after == 0 || steps <= untie_after);
    const bool computed = step->attempt([&] {
      for (const pliant::RowRange rows : step->micro_batches()) {
        std::optional<Sums> sums;
        if (rows.count > 0) sums.emplace();
        if (!sums && model.shards().can_repeat_pass()) {  // as a program does that cannot compute with nothing
          model.shards().repeat_pass(rows);
          step->add(rows, 0);
          continue;
        }
        for (const int64_t id : step->batch().ids_of(rows)) sums->add(id);
        model.shards().begin_pass(rows);
        const double loss = model.pass(sums);
        model.shards().end_pass();
        step->add(rows, loss);
      }
    });
    if (!computed || !step->commit()) continue;
    model.apply(step->learning_rate());
    const bool evaluates = eval_every > 0 && steps % eval_every == 0;
    if (!ema && !evaluates) continue;
    double loss = 0, loss_of_averages = 0;
    float first = 0;
    const bool done = step->attempt([&] {
      if (ema) model.average(1 - std::pow(*ema, step->scaling().ema_power));
      if (!evaluates) return;
      loss = model.evaluate(held_out);
      if (ema) loss_of_averages = model.evaluate_averages(held_out);
      if (shown) first = model.read(*shown).front();
    });
    if (!done || !evaluates || step->rank() != 0) continue;
    std::printf("step %lld: held-out loss %.9g", static_cast<long long>(steps), loss);
    if (ema) std::printf(", of the averages %.9g", loss_of_averages);
    std::printf("\n");
    if (shown) std::printf("step %lld: %s begins with %.9g\n", static_cast<long long>(steps), show.c_str(), first);
  }
}

int main() {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  return pliant::run_worker("sharded_trainer", train);
}
