// session_steps: the steps of a job with next to no work in them, as session_steps.py makes them in Python. Prints the
// microseconds of a step, their median, and those that this thread computed, their mean, without the first ones.
#include <time.h>

#include <algorithm>
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

double thread_microseconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

void train(pliant::Session& session) {
  Weights weights;
  const std::vector<float> gradient(kElements, 1);
  const int64_t first = session.config().app_int("first").value_or(0);
  std::vector<std::chrono::steady_clock::time_point> begun;
  double computed = 0;
  int64_t steps = 0;
  int64_t sum = 0;
  session.start({std::vector<int32_t>(static_cast<size_t>(session.config().app_int("sequences").value_or(0)), 1), {}},
                weights);
  while (pliant::Step* const step = session.next()) {
    begun.push_back(std::chrono::steady_clock::now());
    if (step->index() == first) computed = thread_microseconds();
    for (const pliant::RowRange rows : step->micro_batches()) {
      const std::span<const int64_t> ids = step->batch().ids_of(rows);
      sum = std::accumulate(ids.begin(), ids.end(), sum);
      step->add(rows, 1, gradient);
    }
    if (const auto committed = step->commit()) {
      weights.values[0] -= static_cast<float>(step->learning_rate()) * static_cast<float>(committed->gradient().size());
    }
    steps = step->index() + 1;
  }
  computed = (thread_microseconds() - computed) / static_cast<double>(steps - first);
  std::vector<std::chrono::duration<double, std::micro>> took;
  for (auto at = static_cast<size_t>(first); at + 1 < begun.size(); ++at) took.push_back(begun[at + 1] - begun[at]);
  std::sort(took.begin(), took.end());
  std::printf("%.3f %.3f %lld\n", took[took.size() / 2].count(), computed, static_cast<long long>(sum));
}

}  // namespace

int main() {
  return pliant::run_worker("session_steps", train);
}
