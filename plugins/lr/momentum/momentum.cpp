// Link `momentum`: corrects a momentum buffer that holds rate times gradient when the rate changes.
#include "../common/saved.hpp"

namespace {

using namespace pliant::sdk;  // NOLINT(google-build-using-namespace)

/// u' = u lr_new / lr_old before the step: Goyal et al. 2017, arXiv 1706.02677, section 3, eq. 10 and remark 2. For
/// optimizers whose buffer holds lr * g; where the rate is multiplied outside the buffer nothing is to be corrected.
/// Last in the chain, since it needs the rate that is used.
struct Momentum {
  static constexpr char kMagic[9] = "momentum";
  static constexpr uint32_t kVersion = 1;

  double last_lr = 0;  // 0: no step yet

  [[nodiscard]] LrFacts facts() const {
    return {optimizers(Optimizer::kSgdMomentum, Optimizer::kNesterov),
            "only a momentum buffer that holds rate times gradient needs the correction; remove the link"};
  }

  [[nodiscard]] LrScaling scale(const LrInput& in) const {
    LrScaling made = in.so_far;
    if (last_lr > 0) made.momentum_buffer *= made.lr / last_lr;
    return made;
  }
  void commit(const LrInput&, const LrScaling& answer, const LrCommitted&) { last_lr = answer.lr; }

  void save(const Writer& out) const {
    pliant::lr::write_frame(out, kMagic, kVersion);
    out.value(last_lr);
  }
  void load(const Reader& in) {
    pliant::lr::read_frame(in, kMagic, kVersion);
    const double read = pliant::lr::read_number(in);
    in.expect_end();
    last_lr = read;
  }
};

}  // namespace

PLIANT_LR_RULE(Momentum, "momentum", "0.1.0", "Link: SGD whose momentum buffer holds lr * g, corrected for a new rate")
