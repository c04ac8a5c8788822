// Link `clamp`: bounds on what the batch makes of the rate, and on the rate.
#include <algorithm>
#include <optional>

#include "pliant/sdk/lr_rule.hpp"

namespace {

using namespace pliant::sdk;  // NOLINT(google-build-using-namespace)

/// Factor first, then rate. A bound that is not set does nothing.
struct Clamp {
  std::optional<double> lowest_factor;
  std::optional<double> highest_factor;
  std::optional<double> lowest_lr;
  std::optional<double> highest_lr;

  static void options(Options<Clamp>& o) {
    o.add("lowest_factor", &Clamp::lowest_factor, "Lower bound of the batch's factor on the scheduled rate.")
        .range(0.0, 1e12);
    o.add("highest_factor", &Clamp::highest_factor, "Upper bound of the batch's factor on the scheduled rate.")
        .range(0.0, 1e12);
    o.add("lowest_lr", &Clamp::lowest_lr, "The lowest rate.").range(0.0, 1e12);
    o.add("highest_lr", &Clamp::highest_lr, "The highest rate.").range(0.0, 1e12);
  }

  void start(const Host&) const {
    require(!(lowest_factor && highest_factor && *lowest_factor > *highest_factor),
            "lowest_factor is above highest_factor", "lowest_factor highest_factor");
    require(!(lowest_lr && highest_lr && *lowest_lr > *highest_lr), "lowest_lr is above highest_lr",
            "lowest_lr highest_lr");
  }

  static double within(double value, const std::optional<double>& low, const std::optional<double>& high) {
    if (low) value = std::max(value, *low);
    return high ? std::min(value, *high) : value;
  }

  [[nodiscard]] LrScaling scale(const LrInput& in) const {
    LrScaling made = in.so_far;
    made.replace_factor(within(made.lr_factor, lowest_factor, highest_factor));
    made.lr = within(made.lr, lowest_lr, highest_lr);
    return made;
  }
};

}  // namespace

PLIANT_LR_RULE(Clamp, "clamp", "0.1.0", "Link: bounds on the factor and on the rate")
