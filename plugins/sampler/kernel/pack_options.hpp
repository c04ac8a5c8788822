// The options that all packing samplers share: one declaration, the same names and meanings everywhere.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "order.hpp"
#include "pliant/sdk/batch_sampler.hpp"

namespace pliant::sampler {

/// Why a packing sampler leaves sequences out; indices into pack_drop_reasons().
enum PackDrop : int32_t { kPackTooLong = 0, kPackBelowMin = 1, kPackIncompleteBatch = 2 };
inline std::vector<const char*> pack_drop_reasons() {
  return {"too_long", "below_min_sequences", "incomplete_batch"};
}

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

struct PackOptions {
  int64_t max_tokens = 0;
  std::string order = "dataloader";
  int64_t min_sequences = 0;
  int64_t max_sequences = 0;
  int64_t quadratic_length = 0;
  std::string over_long = "error";
  std::string tail = "keep";

  [[nodiscard]] Cost cost() const { return Cost{quadratic_length}; }
  [[nodiscard]] int64_t longest() const { return cost().longest_within(max_tokens); }

  /// Refuses values that do not go together.
  void check() const {
    if (max_sequences != 0 && min_sequences > max_sequences) {
      throw sdk::Failure(PLIANT_OUT_OF_RANGE, "min_sequences = " + std::to_string(min_sequences) +
                                                  " is above max_sequences = " + std::to_string(max_sequences) +
                                                  "; no pack can have that many sequences");
    }
    if (longest() < 1) {
      throw sdk::Failure(PLIANT_OUT_OF_RANGE,
                         "max_tokens = " + std::to_string(max_tokens) +
                             " has no room for one token at quadratic_length = " + std::to_string(quadratic_length));
    }
    if (quadratic_length != 0 && max_tokens > std::numeric_limits<int32_t>::max()) {
      throw sdk::Failure(PLIANT_OUT_OF_RANGE, "max_tokens = " + std::to_string(max_tokens) +
                                                  " is above 2147483647, the most that goes with quadratic_length");
    }
    if (over_long == "split" && (tail == "drop" || min_sequences > 1)) {
      throw sdk::Failure(PLIANT_OUT_OF_RANGE,
                         "over_long = \"split\" uses every piece of a sequence, so tail = \"drop\" and min_sequences "
                         "above 1, which leave packs out, do not go with it; use over_long = \"truncate\"");
    }
  }
  /// Every option as text: two samplers with the same text plan alike.
  [[nodiscard]] std::string text() const {
    return "max_tokens = " + std::to_string(max_tokens) + ", order = " + order +
           ", min_sequences = " + std::to_string(min_sequences) + ", max_sequences = " + std::to_string(max_sequences) +
           ", quadratic_length = " + std::to_string(quadratic_length) + ", over_long = " + over_long +
           ", tail = " + tail;
  }
};

inline constexpr const char* kTailDoc =
    "What becomes of the packs that do not fill the last batch: keep = a short batch; fill = packs of the last batch "
    "are "
    "parted until it is full, as far as they have sequences; drop = left out, counted as incomplete_batch.";

/// Adds the common options to the table of T, which derives from PackOptions.
template <class T>
void add_pack_options(sdk::Options<T>& o, const char* budget_doc, const char* order_doc = kOrderDoc) {
  o.add("max_tokens", static_cast<int64_t T::*>(&PackOptions::max_tokens), budget_doc)
      .required()
      .at_least(1)
      .unit("tokens");
  o.add("order", static_cast<std::string T::*>(&PackOptions::order), order_doc).choices(order_choices());
  o.add("min_sequences", static_cast<int64_t T::*>(&PackOptions::min_sequences),
        "Fewest sequences in one pack; packs with fewer are left out, counted as below_min_sequences. 0 = no minimum.")
      .at_least(0)
      .unit("sequences");
  o.add("max_sequences", static_cast<int64_t T::*>(&PackOptions::max_sequences),
        "Most sequences in one pack; 0 = no maximum.")
      .at_least(0)
      .unit("sequences");
  o.add("quadratic_length", static_cast<int64_t T::*>(&PackOptions::quadratic_length),
        "Length at which attention costs as much as everything else: a sequence of l tokens counts l + l*l / this "
        "tokens, rounded up, against max_tokens. 0 = l tokens.")
      .at_least(0)
      .unit("tokens");
  o.add("over_long", static_cast<std::string T::*>(&PackOptions::over_long),
        "What becomes of sequences that are too long for any pack: error = stop and name them; drop = leave them out, "
        "counted as too_long; truncate = use as many of their first tokens as fit; split = use them in pieces.")
      .choices({"error", "drop", "truncate", "split"});
  o.add("tail", static_cast<std::string T::*>(&PackOptions::tail), kTailDoc).choices({"keep", "fill", "drop"});
}

}  // namespace pliant::sampler
