// A policy with an option of every type. Its plan reports what it was given, so that tests see what crossed the border.
#include <optional>

#include "pliant/sdk/elasticity_policy.hpp"

namespace {

using namespace pliant::sdk;

struct Every {
  bool flag = true;
  int64_t rows = 8;
  double rate = 0.5;
  std::string mode = "fast";
  std::vector<bool> flags{true, false};
  std::vector<int64_t> sizes{2, 4};
  std::vector<double> rates{0.25};
  std::vector<std::string> words{"a", "b"};
  std::optional<int64_t> cap;
  int64_t must = 0;

  static void options(Options<Every>& o) {
    o.add("flag", &Every::flag, "A flag.");
    o.add("rows", &Every::rows, "Rows.").range(1, 100).unit("rows");
    o.add("rate", &Every::rate, "A rate.").range(0.0, 1.0);
    o.add("mode", &Every::mode, "A mode.").choices({"fast", "slow"});
    o.add("flags", &Every::flags, "Flags.");
    o.add("sizes", &Every::sizes, "Sizes.").at_least(1).elements(1, 3);
    o.add("rates", &Every::rates, "Rates.");
    o.add("words", &Every::words, "Words.");
    o.add("cap", &Every::cap, "A cap.").at_least(1);
    o.add("must", &Every::must, "What cannot be guessed.").required();
  }

  [[nodiscard]] Plan plan(const PlanRequest&) const {
    std::string seen =
        std::string(flag ? "flag " : "no-flag ") + std::to_string(rows) + " " + std::to_string(rate) + " " + mode;
    for (const bool one : flags) seen += one ? " t" : " f";
    for (const int64_t size : sizes) seen += " " + std::to_string(size);
    for (const double one : rates) seen += " " + std::to_string(one);
    for (const std::string& word : words) seen += " " + word;
    seen += cap ? " cap " + std::to_string(*cap) : " no-cap";
    throw Failure(PLIANT_FAILED_PRECONDITION, seen + " must " + std::to_string(must));
  }
};

}  // namespace

PLIANT_ELASTICITY_POLICY(Every, "every", "1.2.3", "Has every type of option.")
