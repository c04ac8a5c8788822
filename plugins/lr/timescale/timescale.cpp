// Link `timescale`: decay and averages of the weights keep their memory in samples when the batch changes.
#include "../common/ratio.hpp"

namespace {

using namespace pliant::sdk;  // NOLINT(google-build-using-namespace)

/// wd' = wd k lr / lr', so that B / (lr wd) stays: Wang and Aitchison 2024, arXiv 2405.13698. A model
/// average decays by rho' = rho^k: Busbridge et al. 2023, "How to Scale Your EMA", arXiv 2307.13813. lr' / lr is what
/// the links before made of the rate for this batch.
struct Timescale {
  bool weight_decay = true;
  bool ema = true;

  static void options(Options<Timescale>& o) {
    o.add("weight_decay", &Timescale::weight_decay, "Scale the weight decay by k * lr / lr'.");
    o.add("ema", &Timescale::ema, "Raise the decay of an average of the weights to the power k.");
  }

  [[nodiscard]] LrFacts facts() const {
    LrFacts facts;
    if (weight_decay) {
      facts.optimizers = kEveryOptimizer & ~optimizers(Optimizer::kAdam);
      facts.reason =
          "the weight decay of plain adam is part of the gradient that adam normalises, so its time scale is not 1 / "
          "(lr wd); use adamw, or set weight_decay = false";
    }
    return facts;
  }

  [[nodiscard]] LrScaling scale(const LrInput& in) const {
    const double ratio = pliant::lr::batch_ratio(in);
    LrScaling made = in.so_far;
    if (ema) made.ema_power *= ratio;
    if (weight_decay && made.lr_factor > 0) made.weight_decay *= ratio / made.lr_factor;
    return made;
  }
};

}  // namespace

PLIANT_LR_RULE(Timescale, "timescale", "0.1.0",
               "Link: keeps the time scales of weight decay and weight average constant in samples")
