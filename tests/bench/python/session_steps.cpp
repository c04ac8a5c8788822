// session_steps: the steps of a job with next to no work in them, as session_steps.py makes them in Python. Prints the
// microseconds of a step, without the first ones.
#include <chrono>
#include <cstdio>
#include <numeric>
#include <vector>

#include "pliant/session.hpp"

namespace {

constexpr size_t kElements = 1000;

struct Weights final : pliant::TrainingState {
  std::vector<float> values = std::vector<float>(kElements);
  [[nodiscard]] uint64_t gradient_size() const override { return kElements; }
  [[nodiscard]] std::vector<pliant::StateArray> arrays() override {
    return {{"weights", pliant::DType::kF32, {static_cast<int64_t>(kElements)}, values.data()}};
  }
};

void train(pliant::Session& session) {
  Weights weights;
  const std::vector<float> gradient(kElements, 1);
  const int64_t first = session.config().app_int("first").value_or(0);
  std::chrono::steady_clock::time_point began;
  int64_t steps = 0;
  int64_t sum = 0;
  session.start({std::vector<int32_t>(static_cast<size_t>(session.config().app_int("sequences").value_or(0)), 1), {}},
                weights);
  while (pliant::Step* const step = session.next()) {
    if (step->index() == first) began = std::chrono::steady_clock::now();
    for (const pliant::RowRange rows : step->micro_batches()) {
      const std::span<const int64_t> ids = step->batch().ids_of(rows);
      sum = std::accumulate(ids.begin(), ids.end(), sum);
      step->add(rows, 1, gradient);
    }
    if (const auto committed = step->commit()) {
      weights.values[0] -= static_cast<float>(step->learning_rate()) * committed->gradient()[0];
    }
    steps = step->index() + 1;
  }
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - began;
  std::printf("%.3f %lld\n", took.count() / static_cast<double>(steps - first), static_cast<long long>(sum));
}

}  // namespace

int main() {
  return pliant::run_worker("session_steps", train);
}
