// A program with sharded state whose update breaks off, once, in its process of rank 1 at the step that [app] names.
#include <cstdio>
#include <cstdlib>
#include <iosfwd>
#include <pliant/exit_code.hpp>
#include <pliant/session.hpp>
#include <pliant/sharded.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace {

struct Rest final : pliant::TrainingState {
  uint64_t gradient_size() const override { return 0; }
  void save(std::ostream&) const override {}
  void load(std::istream&) override {}
};

constexpr int64_t kWeights = 6000;

bool is(const char* variable, const char* value) {
  const char* const text = std::getenv(variable);
  return text != nullptr && std::string(text) == value;
}

/// Forward and backward over one module; a pass without rows only keeps the workers together.
void pass(pliant::ShardedModel& model, pliant::ModuleId module, pliant::ParameterId weights, pliant::RowRange rows) {
  model.begin_pass(rows);
  model.enter(module, pliant::Direction::kForward);
  model.leave(module, pliant::Direction::kForward);
  model.enter(module, pliant::Direction::kBackward);
  for (int64_t i = 0; rows.count > 0 && i < kWeights; ++i) {
    model.gradient(weights)[i] += static_cast<float>(rows.first + i % 7) * model.value(weights)[i];
  }
  model.leave(module, pliant::Direction::kBackward);
  model.end_pass();
}

}  // namespace

int main() try {
  pliant::leave_stop_signals_to_agent();
  pliant::Session session = pliant::Session::attach();
  pliant::ShardedModel model(session, {});
  pliant::ParameterSpec spec;
  spec.name = "w";
  spec.shape = {kWeights};
  spec.initialise = [](std::span<float> values) {
    for (size_t i = 0; i < values.size(); ++i) values[i] = 1.0F + static_cast<float>(i % 10);
  };
  const pliant::ParameterId weights = model.add(std::move(spec));
  const pliant::ModuleId root = model.add({.name = "model", .parent = {}, .own = {weights}, .external = {}});
  Rest rest;
  session.start({std::vector<int32_t>(200, 3), {}, {}, 0}, model, rest);
  const int64_t breaks_at = session.config().app_int("breaks_at").value_or(-1);
  const bool breaks = is("RANK", "1") && is("TORCHELASTIC_RESTART_COUNT", "0");
  while (pliant::Step* const step = session.next()) {
    const bool computed = step->attempt([&] {
      for (const pliant::RowRange rows : step->micro_batches()) {
        pass(model, root, weights, rows);
        step->add(rows, 1.0);
      }
    });
    if (!computed || !step->commit()) continue;
    const auto rate = static_cast<float>(step->learning_rate());
    try {
      model.update([&](const pliant::ShardRange& range) {
        for (uint64_t i = 0; i < range.count; ++i) {
          if (breaks && step->index() == breaks_at && i == range.count / 2) throw std::string("an optimizer's fault");
          range.weights[i] -= rate * 0.01F * range.gradient[i];
        }
      });
    } catch (const std::string&) {  // and goes on as if nothing had been
    }
  }
} catch (const pliant::Error& error) {
  std::fprintf(stderr, "breaking_worker: %s\n", error.message().c_str());
  return static_cast<int>(pliant::exit_code_of(error));
}
