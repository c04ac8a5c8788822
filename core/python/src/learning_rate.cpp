// Learning rates for Python.
#include "pliant/learning_rate.hpp"

#include <map>
#include <string>
#include <tuple>

#include "bindings.hpp"
#include "failure.hpp"

namespace pliant::python {

namespace {

struct PyLearningRate : Serial {
  static constexpr const char* kName = "LearningRate";
  PyLearningRate(const Config& config, const BatchSize& mean)
      : groups(config.lr().groups), rate(std::make_shared<LearningRate>(config, mean)) {}
  const std::map<std::string, double> groups;
  FreedWithoutGil<LearningRate> rate;
};

using GivenNorms = std::optional<std::tuple<int64_t, double, double>>;

std::optional<GradientNorms> norms_of(const GivenNorms& given) {
  if (!given) return std::nullopt;
  const auto& [parts, small_norm, big_norm] = *given;
  return GradientNorms{parts, small_norm, big_norm};
}

void bind_scaling(nb::module_& module) {
  nb::class_<Scaling>(module, "Scaling")
      .def_ro("learning_rate", &Scaling::learning_rate)
      .def_ro("scheduled_learning_rate", &Scaling::scheduled_learning_rate)
      .def_ro("learning_rate_factor", &Scaling::learning_rate_factor)
      .def_ro("one_minus_beta1", &Scaling::one_minus_beta1)
      .def_ro("one_minus_beta2", &Scaling::one_minus_beta2)
      .def_ro("epsilon", &Scaling::epsilon)
      .def_ro("weight_decay", &Scaling::weight_decay)
      .def_ro("ema_power", &Scaling::ema_power)
      .def_ro("momentum_buffer", &Scaling::momentum_buffer)
      .def_ro("second_moment", &Scaling::second_moment)
      .def_ro("progress", &Scaling::progress);
}

}  // namespace

void bind_learning_rate(nb::module_& module) {
  using namespace nb::literals;
  bind_scaling(module);
  nb::class_<PyLearningRate>(module, "LearningRate")
      .def(
          "__init__",
          [](PyLearningRate* self, const PyConfig& config, const BatchSize& mean_batch) {
            without_gil([&] { new (self) PyLearningRate(*config.config, mean_batch); });
          },
          "config"_a, "mean_batch"_a = BatchSize{})
      .def(
          "scaling",
          [](PyLearningRate& self, int64_t step, const BatchSize& size, double base_lr) {
            const Turn turn(self, PyLearningRate::kName);
            return self.rate->scaling(step, size, base_lr);
          },
          "step"_a, "size"_a, "base_lr"_a = 0.0)
      .def(
          "at",
          [](PyLearningRate& self, int64_t step, const BatchSize& size, double base_lr) {
            const Turn turn(self, PyLearningRate::kName);
            return self.rate->at(step, size, base_lr);
          },
          "step"_a, "size"_a, "base_lr"_a = 0.0)
      .def(
          "commit",
          [](PyLearningRate& self, int64_t step, const BatchSize& size, const GivenNorms& norms, double base_lr) {
            const Turn turn(self, PyLearningRate::kName);
            self.rate->commit(step, size, norms_of(norms), base_lr);
          },
          "step"_a, "size"_a, "norms"_a = nb::none(), "base_lr"_a = 0.0)
      .def_ro("groups", &PyLearningRate::groups)
      .def_prop_ro("wants_gradient_norms",
                   [](PyLearningRate& self) {
                     const Turn turn(self, PyLearningRate::kName);
                     return self.rate->wants_gradient_norms();
                   })
      .def_prop_ro("wants_job_length",
                   [](PyLearningRate& self) {
                     const Turn turn(self, PyLearningRate::kName);
                     return self.rate->wants_job_length();
                   })
      .def(
          "set_job_length",
          [](PyLearningRate& self, const JobLength& length) {
            const Turn turn(self, PyLearningRate::kName);
            self.rate->set_job_length(length);
          },
          "length"_a)
      .def("save",
           [](PyLearningRate& self) {
             const Turn turn(self, PyLearningRate::kName);
             const std::string saved = self.rate->save();
             return nb::bytes(saved.data(), saved.size());
           })
      .def(
          "load",
          [](PyLearningRate& self, const nb::bytes& state) {
            const Turn turn(self, PyLearningRate::kName);
            self.rate->load(std::string(state.c_str(), state.size()));
          },
          "state"_a);
}

}  // namespace pliant::python
