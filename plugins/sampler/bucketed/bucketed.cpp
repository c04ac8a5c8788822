// Sampler `bucketed`: packs of sequences of like length, so that little is padding.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "../common/buckets.hpp"
#include "../common/pack_sampler.hpp"

namespace {

namespace sampler = pliant::sampler;
namespace sdk = pliant::sdk;

class Bucketed : public sampler::PackSampler<Bucketed> {
 public:
  static constexpr const char* kName = "bucketed";
  int64_t buckets = 16;
  std::vector<int64_t> bucket_edges;

  Bucketed() { budget_unit = "padded_tokens"; }

  static void options(sdk::Options<Bucketed>& o) {
    sampler::add_pack_options(o, sampler::padded_budget());
    o.add("buckets", &Bucketed::buckets,
          "Number of length buckets; their edges give each about the same number of tokens.")
        .range(1, 4096);
    o.add("bucket_edges", &Bucketed::bucket_edges,
          "Longest length of each bucket, ascending, instead of `buckets`; one more bucket takes longer sequences. "
          "Empty = edges from the data.")
        .at_least(1)
        .unit("tokens");
  }

  void start(const sdk::Host& host) const {
    PackSampler::start(host);
    const auto falling = std::adjacent_find(bucket_edges.begin(), bucket_edges.end(), std::greater_equal<>());
    if (falling == bucket_edges.end()) return;
    throw sdk::Failure(PLIANT_OUT_OF_RANGE,
                       "bucket_edges: " + std::to_string(falling[0]) + " is followed by " + std::to_string(falling[1]) +
                           "; edges ascend",
                       "bucket_edges");
  }

  void pack(const sampler::Items& items, const sdk::EpochRequest&, sdk::EpochRows& rows) const {
    const std::vector<int64_t> edges =
        bucket_edges.empty() ? sampler::even_edges(items.lengths, static_cast<uint64_t>(buckets)) : bucket_edges;
    sampler::fill_buckets(items.lengths, edges, rule(), rows);
  }
  [[nodiscard]] sdk::PackingReport packing_report(const sdk::PackedEpoch& epoch) const {
    return sampler::report_padded(epoch, rule(), unit());
  }

  [[nodiscard]] std::string text() const {
    std::string all = PackSampler::text() + ", buckets = " + std::to_string(buckets) + ", bucket_edges =";
    for (const int64_t edge : bucket_edges) all += " " + std::to_string(edge);
    return all;
  }

 private:
  [[nodiscard]] sampler::PaddedRule rule() const {
    sampler::PaddedRule rule;
    rule.budget = max_tokens;
    rule.cost = cost();
    rule.most_in_pack = static_cast<uint64_t>(max_sequences);
    return rule;
  }
};

}  // namespace

PLIANT_BATCH_SAMPLER(Bucketed, "bucketed", "0.1.0", "Packs of sequences of similar length, with little padding")
