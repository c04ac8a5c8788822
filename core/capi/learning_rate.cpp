// Learning rates for C.
#include "pliant/learning_rate.hpp"

#include "handles.hpp"
#include "structs.hpp"

struct pliant_learning_rate_t : pliant::capi::SerialHandle<pliant::capi::Tag::kLearningRate> {
  static constexpr const char* kName = "learning rate";
  pliant_learning_rate_t(const pliant::Config& config, const pliant::BatchSize& mean) : rate(config, mean) {}

  pliant::LearningRate rate;
};

namespace {

using RateTurn = pliant::capi::Turn<pliant_learning_rate_t>;

std::optional<pliant::GradientNorms> norms_of(const pliant_gradient_norms_t* norms) {
  if (norms == nullptr) return std::nullopt;
  const pliant_gradient_norms_t known = pliant::capi::read(norms, "norms");
  return pliant::GradientNorms{known.parts, known.small_norm, known.big_norm};
}

}  // namespace

namespace pliant::capi {

pliant_scaling_t from_scaling(const Scaling& scaling) {
  pliant_scaling_t made{};
  made.learning_rate = scaling.learning_rate;
  made.scheduled_learning_rate = scaling.scheduled_learning_rate;
  made.learning_rate_factor = scaling.learning_rate_factor;
  made.one_minus_beta1 = scaling.one_minus_beta1;
  made.one_minus_beta2 = scaling.one_minus_beta2;
  made.epsilon = scaling.epsilon;
  made.weight_decay = scaling.weight_decay;
  made.ema_power = scaling.ema_power;
  made.momentum_buffer = scaling.momentum_buffer;
  made.second_moment = scaling.second_moment;
  made.progress = scaling.progress;
  return made;
}

}  // namespace pliant::capi

int32_t pliant_learning_rate_make(const pliant_config_t* config, const pliant_batch_size_t* mean_batch,
                                  pliant_learning_rate_t** rate, pliant_error_t* error) {
  return pliant::capi::hand_out(rate, error, [&] {
    const pliant::Config& known = pliant::capi::given(config).config;
    const pliant::BatchSize mean =
        mean_batch == nullptr ? pliant::BatchSize{} : pliant::capi::size_of(mean_batch, "mean_batch");
    return std::make_unique<pliant_learning_rate_t>(known, mean);
  });
}

int32_t pliant_learning_rate_free(pliant_learning_rate_t* rate) {
  return pliant::capi::free_serial(rate);
}

int32_t pliant_learning_rate_needs(pliant_learning_rate_t* rate, uint32_t* needs, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const RateTurn known(rate);
    pliant::capi::require(needs, "needs");
    *needs = 0;
    if (known->rate.wants_gradient_norms()) *needs |= PLIANT_LR_NEEDS_GRADIENT_NORMS;
    if (known->rate.wants_job_length()) *needs |= PLIANT_LR_NEEDS_JOB_LENGTH;
  });
}

int32_t pliant_learning_rate_set_job_length(pliant_learning_rate_t* rate, int64_t steps, const pliant_batch_size_t* all,
                                            pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const RateTurn known(rate);
    known->rate.set_job_length({steps, pliant::capi::size_of(all, "all")});
  });
}

int32_t pliant_learning_rate_scaling(pliant_learning_rate_t* rate, int64_t step, const pliant_batch_size_t* size,
                                     double base_lr, pliant_scaling_t* scaling, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const RateTurn known(rate);
    pliant::capi::check_size(scaling, "scaling");
    const pliant::Scaling made = known->rate.scaling(step, pliant::capi::size_of(size, "size"), base_lr);
    pliant::capi::write(scaling, pliant::capi::from_scaling(made), "scaling");
  });
}

int32_t pliant_learning_rate_commit(pliant_learning_rate_t* rate, int64_t step, const pliant_batch_size_t* size,
                                    const pliant_gradient_norms_t* norms, double base_lr, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const RateTurn known(rate);
    known->rate.commit(step, pliant::capi::size_of(size, "size"), norms_of(norms), base_lr);
  });
}

int32_t pliant_learning_rate_save(pliant_learning_rate_t* rate, char* to, uint64_t room, uint64_t* bytes,
                                  pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const RateTurn known(rate);
    const std::string saved = known->rate.save();
    pliant::capi::fill_room(std::span<const char>(saved), to, room, bytes, "bytes");
  });
}

int32_t pliant_learning_rate_load(pliant_learning_rate_t* rate, const char* saved, uint64_t bytes,
                                  pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const RateTurn known(rate);
    const auto text = pliant::capi::given_array(saved, bytes, "saved");
    known->rate.load(std::string(text.data(), text.size()));
  });
}
