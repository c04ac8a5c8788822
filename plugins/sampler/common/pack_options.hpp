// The options that all packing samplers share: one declaration, the same names and meanings everywhere.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "order.hpp"
#include "pliant/abi/packing.h"
#include "pliant/sdk/batch_sampler.hpp"

namespace pliant::sampler {

/// Why a packing sampler leaves sequences out; indices into pack_drop_reasons().
enum PackDrop : int32_t { kPackTooLong = 0, kPackBelowMin = 1, kPackIncompleteBatch = 2 };
std::vector<const char*> pack_drop_reasons();

/// Tokens that a sequence costs: itself, and a term for attention that grows with its square. Rounded up.
class Cost {
 public:
  Cost() = default;
  /// 0 = no quadratic term.
  explicit Cost(int64_t quadratic_length) : quadratic_length_(quadratic_length) {}

  /// Saturates at 2^63 - 1.
  [[nodiscard]] int64_t operator()(int64_t length) const {
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
    const Wide cost = exact(length);
    return cost > static_cast<uint64_t>(kMost) ? kMost : static_cast<int64_t>(static_cast<uint64_t>(cost));
  }
  /// The longest sequence that costs at most `budget` >= 1; 0 when a single token costs more.
  [[nodiscard]] int64_t longest_within(int64_t budget) const {
    if (quadratic_length_ == 0) return budget;
    int64_t low = 0;
    int64_t high = budget;
    while (low < high) {
      const int64_t middle = high - (high - low) / 2;
      if (exact(middle) <= static_cast<uint64_t>(budget)) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }

 private:
  __extension__ typedef unsigned __int128 Wide;
  [[nodiscard]] Wide exact(int64_t length) const {
    const auto l = static_cast<uint64_t>(length);
    const auto q = static_cast<uint64_t>(quadratic_length_);
    return q == 0 ? l : l + (static_cast<Wide>(l) * l + (q - 1)) / q;
  }
  int64_t quadratic_length_ = 0;
};

/// `length`: what cost_window_length comes down to.
void check_cost_window(int64_t window, int64_t length, int64_t given_length);

struct PackOptions {
  int64_t max_tokens = 0;
  std::string order = "dataloader";
  int64_t min_sequences = 0;
  int64_t max_sequences = 0;
  int64_t quadratic_length = 0;
  std::string budget_unit = "tokens";
  std::string over_long = "error";
  std::string tail = "keep";
  bool same_sequences = false;
  int64_t cost_window = 0;
  int64_t cost_window_length = 0;

  [[nodiscard]] Cost cost() const { return Cost{quadratic_length}; }
  [[nodiscard]] int64_t longest() const { return cost().longest_within(max_tokens); }
  [[nodiscard]] bool counts_loss() const { return budget_unit == "loss_tokens"; }
  /// PLIANT_UNIT_TOKENS ..: quadratic_length makes tokens cost.
  [[nodiscard]] int32_t unit() const {
    if (counts_loss()) return PLIANT_UNIT_LOSS_TOKENS;
    if (quadratic_length != 0) return PLIANT_UNIT_COST;
    return budget_unit == "padded_tokens" ? PLIANT_UNIT_PADDED_TOKENS : PLIANT_UNIT_TOKENS;
  }
  /// Length at which the quadratic part of a row's cost is as much as the rest, where cost_window is on.
  [[nodiscard]] int64_t window_length() const {
    return cost_window_length != 0 ? cost_window_length : quadratic_length;
  }

  /// Refuses values that do not go together.
  void check() const;
  /// Every option as text: two samplers with the same text plan alike.
  [[nodiscard]] std::string text() const;

 private:
  void check_unit() const;
  void check_batches() const;
  void check_packs() const;
};

inline constexpr const char* kTailDoc =
    "What to do with packs that do not fill the last batch: keep = a short batch; pad = fill it up with rows without "
    "sequences; fill = split its packs until it is full, as far as they have sequences; drop = drop them, counted as "
    "incomplete_batch.";

/// How a sampler counts sequences against max_tokens.
struct BudgetWords {
  const char* budget_doc;
  const char* unit_doc;
  std::vector<const char*> units;
};
/// For packs whose sequences add up.
BudgetWords summed_budget();
/// For packs that are padded to their longest sequence; PackOptions::budget_unit is to be "padded_tokens".
BudgetWords padded_budget();

template <class T>
void add_cost_window(sdk::Options<T>& o, int64_t T::*window, int64_t T::*length, const char* length_doc) {
  o.add("cost_window", window,
        "Form batches of rows of similar cost: within windows of this many batches rows are sorted by cost and cut "
        "into batches, which are shuffled by seed and epoch. 0 = keep the order of rows.")
      .at_least(0)
      .unit("batches");
  o.add("cost_window_length", length, length_doc).at_least(0).unit("tokens");
}
/// Adds the common options to the table of T, which derives from PackOptions.
template <class T>
void add_pack_options(sdk::Options<T>& o, const BudgetWords& words, const char* order_doc = kOrderDoc) {
  o.add("max_tokens", static_cast<int64_t T::*>(&PackOptions::max_tokens), words.budget_doc)
      .required()
      .at_least(1)
      .unit("tokens");
  o.add("order", static_cast<std::string T::*>(&PackOptions::order), order_doc).choices(order_choices());
  o.add("min_sequences", static_cast<int64_t T::*>(&PackOptions::min_sequences),
        "Fewest sequences in a pack; packs with fewer are dropped, counted as below_min_sequences. 0 = no minimum.")
      .at_least(0)
      .unit("sequences");
  o.add("max_sequences", static_cast<int64_t T::*>(&PackOptions::max_sequences),
        "Most sequences in a pack; 0 = no maximum.")
      .at_least(0)
      .unit("sequences");
  o.add("budget_unit", static_cast<std::string T::*>(&PackOptions::budget_unit), words.unit_doc).choices(words.units);
  o.add("quadratic_length", static_cast<int64_t T::*>(&PackOptions::quadratic_length),
        "Length at which attention costs as much as everything else: a sequence of l tokens counts l + l*l / this "
        "tokens, rounded up, against max_tokens. 0 = l tokens.")
      .at_least(0)
      .unit("tokens");
  o.add("over_long", static_cast<std::string T::*>(&PackOptions::over_long),
        "What to do with sequences that are too long for any pack: error = stop and name them; drop = drop them, "
        "counted as too_long; truncate = keep as many of their first tokens as fit; split = use them in pieces.")
      .choices({"error", "drop", "truncate", "split"});
  o.add("tail", static_cast<std::string T::*>(&PackOptions::tail), kTailDoc).choices({"keep", "pad", "fill", "drop"});
  o.add("same_sequences", static_cast<bool T::*>(&PackOptions::same_sequences),
        "All packs of a batch have the same number of sequences; packs left over at the end of the epoch are split.");
  add_cost_window(o, static_cast<int64_t T::*>(&PackOptions::cost_window),
                  static_cast<int64_t T::*>(&PackOptions::cost_window_length),
                  "For cost_window: length at which attention costs as much as everything else; a row costs the sum of "
                  "l + l*l / this over its sequences. 0 = quadratic_length.");
}

}  // namespace pliant::sampler
