// Rule `legw`: the square root, and a warm-up that lasts as many steps as before.
#include <algorithm>
#include <cmath>
#include <string>

#include "../common/position.hpp"
#include "../common/ratio.hpp"

namespace {

using namespace pliant::sdk;  // NOLINT(google-build-using-namespace)

/// Linear-Epoch Gradual Warmup: lr' = sqrt(k) lr, and the warm-up takes k times the epochs, so that its number of steps
/// stays. You et al. 2019, "Large-Batch Training for LSTM and Beyond", arXiv 1901.08256. Progress counts the epochs:
/// the host keeps it.
struct Legw {
  double warmup = 0;

  static void options(Options<Legw>& o) {
    o.add("warmup", &Legw::warmup,
          "Number of warm-up steps at the base batch; at k times the batch the warm-up takes k times the data and the "
          "same number of steps.")
        .range(0.0, 1e12)
        .unit("steps");
  }

  [[nodiscard]] LrScaling scale(const LrInput& in) const {
    const double ratio = pliant::lr::batch_ratio(in);
    if (ratio == 0) return pliant::lr::empty_batch(in);
    LrScaling made = in.so_far;
    if (warmup > 0) {
      const double done = pliant::lr::position(in, "progress") / (warmup * ratio);
      made.replace_schedule(made.scheduled_lr * std::min(1.0, done));
    }
    made.multiply_lr(std::sqrt(ratio));
    return made;
  }
};

}  // namespace

PLIANT_LR_RULE(Legw, "legw", "0.1.0", "lr = base_lr * sqrt(k), with k times the warm-up epochs")
