// Sampler `padded_budget`: packs in order whose longest sequence times their number keeps to a budget, in fixed shapes.
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>
#include <vector>

#include "../common/pack_sampler.hpp"
#include "../common/padded.hpp"

namespace {

namespace sampler = pliant::sampler;
namespace sdk = pliant::sdk;

/// Reads "512x8".
sampler::PackShape shape_of(const std::string& text) {
  sampler::PackShape shape;
  const char* end = text.data() + text.size();
  const auto length = std::from_chars(text.data(), end, shape.length);
  if (length.ec == std::errc() && length.ptr != end && *length.ptr == 'x') {
    const auto sequences = std::from_chars(length.ptr + 1, end, shape.sequences);
    if (sequences.ec == std::errc() && sequences.ptr == end && shape.length >= 1 && shape.sequences >= 1) return shape;
  }
  throw sdk::Failure(PLIANT_INVALID_ARGUMENT,
                     "shapes: '" + text +
                         "' does not have the form LENGTHxSEQUENCES with two numbers of at least 1, such as \"512x8\"",
                     "shapes");
}

class PaddedBudget : public sampler::PackSampler<PaddedBudget> {
 public:
  static constexpr const char* kName = "padded_budget";
  int64_t length_multiple = 1;
  int64_t sequences_multiple = 1;
  std::vector<std::string> shapes;

  PaddedBudget() { budget_unit = "padded_tokens"; }

  static void options(sdk::Options<PaddedBudget>& o) {
    sampler::add_pack_options(o, sampler::padded_budget());
    o.add("length_multiple", &PaddedBudget::length_multiple, "Pad sequences to a multiple of this length.")
        .at_least(1)
        .unit("tokens");
    o.add("sequences_multiple", &PaddedBudget::sequences_multiple,
          "Make the number of sequences of a pack a multiple of this, unless fewer fit.")
        .at_least(1)
        .unit("sequences");
    o.add("shapes", &PaddedBudget::shapes,
          "The only shapes that a pack may be padded to, as LENGTHxSEQUENCES, for example [\"256x16\", \"512x8\"]; "
          "each keeps to max_tokens. Empty = any shape.");
  }

  void start(const sdk::Host& host) {
    PackSampler::start(host);
    if (same_sequences && sequences_multiple > 1) {
      throw sdk::Failure(PLIANT_OUT_OF_RANGE,
                         "same_sequences splits packs, so sequences_multiple = " + std::to_string(sequences_multiple) +
                             " cannot be kept; use one of them",
                         "same_sequences sequences_multiple");
    }
    rule_.budget = max_tokens;
    rule_.cost = cost();
    rule_.length_multiple = length_multiple;
    rule_.sequences_multiple = static_cast<uint64_t>(sequences_multiple);
    rule_.most_in_pack = static_cast<uint64_t>(max_sequences);
    for (const std::string& text : shapes) add_shape(text);
    std::sort(rule_.shapes.begin(), rule_.shapes.end(),
              [](const sampler::PackShape& a, const sampler::PackShape& b) { return a.length < b.length; });
    if (longest_item() < 1) {
      throw sdk::Failure(
          PLIANT_OUT_OF_RANGE,
          "no sequence fits: padded to a multiple of length_multiple = " + std::to_string(length_multiple) +
              " it has more than max_tokens = " + std::to_string(max_tokens),
          "length_multiple max_tokens");
    }
  }

  [[nodiscard]] int64_t longest_item() const { return rule_.longest(); }
  void pack(const sampler::Items& items, const sdk::EpochRequest&, sdk::EpochRows& rows) const {
    sampler::fill_padded(items.lengths, rule_, rows.offsets);
    rows.ids_count_up = true;
  }
  [[nodiscard]] sdk::PackingReport packing_report(const sdk::PackedEpoch& epoch) const {
    return sampler::report_padded(epoch, rule_, unit());
  }

  [[nodiscard]] std::string text() const {
    std::string all = PackSampler::text() + ", length_multiple = " + std::to_string(length_multiple) +
                      ", sequences_multiple = " + std::to_string(sequences_multiple) + ", shapes =";
    for (const std::string& shape : shapes) all += " " + shape;
    return all;
  }

 private:
  void add_shape(const std::string& text) {
    const sampler::PackShape shape = shape_of(text);
    const int64_t each = cost()(shape.length);
    if (each > max_tokens || static_cast<uint64_t>(max_tokens / each) < shape.sequences) {
      throw sdk::Failure(PLIANT_OUT_OF_RANGE,
                         "shapes: '" + text + "' has more than max_tokens = " + std::to_string(max_tokens),
                         "shapes max_tokens");
    }
    rule_.shapes.push_back(shape);
  }

  sampler::PaddedRule rule_;
};

}  // namespace

PLIANT_BATCH_SAMPLER(PaddedBudget, "padded_budget", "0.1.0",
                     "Packs in order whose padded size stays within a budget, optionally in fixed shapes")
