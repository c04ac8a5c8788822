// The options that all packing samplers share: what does not go together, and words.
#include "pack_options.hpp"

#include <limits>
#include <string>
#include <vector>

namespace pliant::sampler {

namespace {

void refuse(bool wrong, const std::string& why, const char* options) {
  if (wrong) throw sdk::Failure(PLIANT_OUT_OF_RANGE, why, options);
}

}  // namespace

void check_cost_window(int64_t window, int64_t length, int64_t given_length) {
  if (window != 0 && length == 0) {
    throw sdk::Failure(PLIANT_OUT_OF_RANGE,
                       "cost_window needs the cost of a row; set cost_window_length, the length at which attention "
                       "costs as much as everything else",
                       "cost_window cost_window_length");
  }
  if (window == 0 && given_length != 0) {
    throw sdk::Failure(
        PLIANT_OUT_OF_RANGE,
        "cost_window_length = " + std::to_string(given_length) + " has an effect only with cost_window; set it, too",
        "cost_window_length cost_window");
  }
}

void PackOptions::check() const {
  check_packs();
  check_unit();
  check_batches();
}
std::string PackOptions::text() const {
  return "max_tokens = " + std::to_string(max_tokens) + ", order = " + order +
         ", min_sequences = " + std::to_string(min_sequences) + ", max_sequences = " + std::to_string(max_sequences) +
         ", budget_unit = " + (unit() == PLIANT_UNIT_COST ? "cost" : budget_unit) +
         ", quadratic_length = " + std::to_string(quadratic_length) + ", over_long = " + over_long +
         ", tail = " + tail + ", same_sequences = " + (same_sequences ? "true" : "false") +
         ", cost_window = " + std::to_string(cost_window) +
         ", cost_window_length = " + std::to_string(cost_window == 0 ? 0 : window_length());
}

void PackOptions::check_unit() const {
  refuse(budget_unit == "cost" && quadratic_length == 0,
         "budget_unit = \"cost\" needs quadratic_length, the length at which attention costs as much as everything "
         "else",
         "budget_unit quadratic_length");
  refuse(counts_loss() && quadratic_length != 0,
         "budget_unit = \"loss_tokens\" has no cost; remove quadratic_length, or set budget_unit = \"cost\"",
         "budget_unit quadratic_length");
  refuse(counts_loss() && (over_long == "truncate" || over_long == "split"),
         "over_long = \"" + over_long +
             "\" cannot be used with budget_unit = \"loss_tokens\" because it is unknown which tokens of a sequence "
             "have a loss; use over_long = \"error\" or \"drop\"",
         "over_long budget_unit");
}
void PackOptions::check_batches() const {
  refuse(same_sequences && min_sequences > 1,
         "same_sequences splits packs, so min_sequences = " + std::to_string(min_sequences) +
             " cannot be kept; use one of them",
         "same_sequences min_sequences");
  refuse(same_sequences && cost_window != 0,
         "same_sequences and cost_window both decide which rows form a batch; use one of them",
         "same_sequences cost_window");
  check_cost_window(cost_window, window_length(), cost_window_length);
}
void PackOptions::check_packs() const {
  if (max_sequences != 0 && min_sequences > max_sequences) {
    throw sdk::Failure(PLIANT_OUT_OF_RANGE,
                       "min_sequences = " + std::to_string(min_sequences) + " is above max_sequences = " +
                           std::to_string(max_sequences) + "; no pack can have that many sequences",
                       "min_sequences max_sequences");
  }
  if (longest() < 1) {
    throw sdk::Failure(PLIANT_OUT_OF_RANGE,
                       "max_tokens = " + std::to_string(max_tokens) +
                           " has no room for one token at quadratic_length = " + std::to_string(quadratic_length),
                       "max_tokens quadratic_length");
  }
  if (quadratic_length != 0 && max_tokens > std::numeric_limits<int32_t>::max()) {
    throw sdk::Failure(
        PLIANT_OUT_OF_RANGE,
        "max_tokens = " + std::to_string(max_tokens) + " is above 2147483647, the most that goes with quadratic_length",
        "max_tokens quadratic_length");
  }
  if (over_long == "split" && (tail == "drop" || min_sequences > 1)) {
    throw sdk::Failure(PLIANT_OUT_OF_RANGE,
                       "over_long = \"split\" uses every piece of a sequence, so it cannot be used with tail = "
                       "\"drop\" or min_sequences above 1, which drop packs; use over_long = \"truncate\"",
                       "over_long tail min_sequences");
  }
}

BudgetWords summed_budget() {
  return {"Capacity of a pack: the sum over its sequences, each counted in budget_unit.",
          "Size of a sequence for max_tokens: tokens = its length; loss_tokens = its tokens that have a loss, at least "
          "1; cost = its length plus the term of quadratic_length, as tokens with quadratic_length.",
          {"tokens", "loss_tokens", "cost"}};
}

BudgetWords padded_budget() {
  return {"Most tokens in a pack with padding: the length of its longest sequence times the number of its sequences.",
          "Size of a sequence for max_tokens: padded_tokens = the length that it is padded to; cost = that length plus "
          "the term of quadratic_length, as padded_tokens with quadratic_length.",
          {"padded_tokens", "cost"}};
}

std::vector<const char*> pack_drop_reasons() {
  return {"too_long", "below_min_sequences", "incomplete_batch"};
}

}  // namespace pliant::sampler
