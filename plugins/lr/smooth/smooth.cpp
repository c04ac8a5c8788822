// Link `smooth`: after a jump of the batch the factors move from their old to their new values, not at once.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "../common/position.hpp"
#include "../common/ratio.hpp"
#include "../common/saved.hpp"

namespace {

using namespace pliant::sdk;  // NOLINT(google-build-using-namespace)

/// factor(t) = old + (new - old) min(1, (t - t0) / T) from the step t0 of the jump on: after Lin et al.
/// 2019, "Dynamic Mini-batch SGD for Elastic Distributed Training", arXiv 1904.12043, who adjust the rate smoothly over
/// time; the straight line is ours, and here every factor of the links before takes part. A jump during a ramp begins
/// a new one at the values reached.
struct Smooth {
  static constexpr char kMagic[9] = "lrsmooth";
  static constexpr uint32_t kVersion = 1;
  using Factors = std::array<double, 6>;

  double over = 100;
  std::string by = "steps";
  double tolerance = 0.1;

  bool started = false;
  double batch = 0;   // of the last jump
  double begun = 0;   // position at it
  Factors from{};     // what held before it
  Factors reached{};  // at the last committed step

  static void options(Options<Smooth>& o) {
    o.add("over", &Smooth::over, "Length of a ramp; 0 = none.").range(0.0, 1e12).unit("steps");
    o.add("by", &Smooth::by, pliant::lr::kByDoc).choices({"steps", "progress"});
    o.add("tolerance", &Smooth::tolerance,
          "A batch counts as a jump if it differs from that of the last jump by more than this fraction.")
        .range(0.0, 1e6);
  }

  static Factors factors_of(const LrScaling& s) {
    return {s.lr_factor, s.one_minus_beta1, s.one_minus_beta2, s.epsilon, s.weight_decay, s.ema_power};
  }
  [[nodiscard]] bool jumps(const LrInput& in) const {
    return started && std::abs(in.batch - batch) > tolerance * batch;
  }

  [[nodiscard]] LrScaling scale(const LrInput& in) const {
    pliant::lr::batch_ratio(in);
    LrScaling made = in.so_far;
    const bool jump = jumps(in);
    const double at = pliant::lr::position(in, by);
    const double share = over > 0 ? std::clamp((at - (jump ? at : begun)) / over, 0.0, 1.0) : 1;
    if (!started || share >= 1) return made;
    const Factors& old = jump ? reached : from;
    const Factors target = factors_of(made);
    Factors now{};
    for (size_t i = 0; i < now.size(); ++i) now[i] = old[i] + (target[i] - old[i]) * share;
    made.replace_factor(now[0]);
    made.one_minus_beta1 = now[1];
    made.one_minus_beta2 = now[2];
    made.epsilon = now[3];
    made.weight_decay = now[4];
    made.ema_power = now[5];
    return made;
  }

  void commit(const LrInput& in, const LrScaling& answer, const LrCommitted&) {
    const double at = pliant::lr::position(in, by);
    if (!started) {  // the first batch is no jump: its ramp is over
      begun = at - over;
      batch = in.batch;
      started = true;
    } else if (jumps(in)) {
      begun = at;
      batch = in.batch;
      from = reached;
    }
    reached = factors_of(answer);
  }

  void save(const Writer& out) const {
    pliant::lr::write_frame(out, kMagic, kVersion);
    out.value(static_cast<uint32_t>(started ? 1 : 0));
    for (const double number : {batch, begun}) out.value(number);
    for (const Factors& factors : {from, reached}) out.value(factors);
  }
  void load(const Reader& in) {
    pliant::lr::read_frame(in, kMagic, kVersion);
    Smooth read = *this;
    read.started = in.value<uint32_t>() != 0;
    read.batch = pliant::lr::read_number(in);
    read.begun = pliant::lr::read_number(in, -1e300);
    for (Factors* factors : {&read.from, &read.reached}) {
      for (double& factor : *factors) factor = pliant::lr::read_number(in);
    }
    in.expect_end();
    *this = read;
  }
};

}  // namespace

PLIANT_LR_RULE(Smooth, "smooth", "0.1.0", "Link: ramps all factors after a jump of the batch")
