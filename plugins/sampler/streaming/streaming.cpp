// Sampler `streaming`: nearly full packs in one pass over the sequences, with bounded memory and a bounded wait.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "../common/listed_rows.hpp"
#include "../common/pack_sampler.hpp"
#include "../common/stream_engines.hpp"
#include "../common/streaming_base.hpp"
#include "../common/window_packs.hpp"

namespace {

namespace sampler = pliant::sampler;
namespace sdk = pliant::sdk;

class Streaming : public sampler::PackSampler<Streaming>,
                  public sampler::ThreadOption,
                  public sampler::Streams<Streaming, sampler::WindowEngine<sampler::MapIndex>> {
 public:
  using Engine = sampler::WindowEngine<sampler::MapIndex>;
  using Stream = sampler::Streams<Streaming, Engine>;
  using Stream::load;
  using Stream::save;
  static constexpr const char* kName = "streaming";
  int64_t window = 32768;
  int64_t open_packs = 256;
  int64_t max_wait = 131072;

  static void options(sdk::Options<Streaming>& o) {
    sampler::add_pack_options(o, sampler::summed_budget());
    o.add("window", &Streaming::window,
          "Number of sequences that are packed together; more fill packs better. At most half of max_wait minus "
          "open_packs. 1 = pack each on its own.")
        .range(1, 1 << 20)
        .unit("sequences");
    o.add("open_packs", &Streaming::open_packs,
          "Number of packs that stay open for the next window: those with the most room.")
        .range(1, 1 << 16)
        .unit("packs");
    o.add("max_wait", &Streaming::max_wait,
          "Most rows emitted while a sequence waits for its pack to fill; at least twice open_packs.")
        .at_least(2)
        .unit("rows");
    sampler::add_thread_option(o);
  }

  void start(const sdk::Host& host) const {
    PackSampler::start(host);
    if (max_wait >= 2 * open_packs) return;
    throw sdk::Failure(PLIANT_OUT_OF_RANGE,
                       "max_wait = " + std::to_string(max_wait) +
                           " is below twice open_packs = " + std::to_string(open_packs) + "; raise it to " +
                           std::to_string(2 * open_packs) + " or lower open_packs",
                       "max_wait open_packs");
  }

  void pack(const sampler::Items& items, const sdk::EpochRequest&, sdk::EpochRows& rows) {
    if (items.count() <= std::numeric_limits<uint32_t>::max()) {
      rows.source = packed<uint32_t>(items);
    } else {
      rows.source = packed<uint64_t>(items);
    }
  }

  const void* extension(const char* id) const {
    const void* table = Stream::extension(id);
    return table != nullptr ? table : PackSampler::extension(id);
  }
  [[nodiscard]] std::string why_no_stream() const { return sampler::why_no_stream(*this); }
  [[nodiscard]] sampler::FeedRule feed_rule() const { return sampler::feed_rule(*this); }
  [[nodiscard]] Engine make_engine() const { return Engine(rule()); }

  [[nodiscard]] std::string text() const {
    return PackSampler::text() + ", window = " + std::to_string(window) +
           ", open_packs = " + std::to_string(open_packs) + ", max_wait = " + std::to_string(max_wait);
  }

 private:
  [[nodiscard]] sampler::WindowRule rule() const {
    return {max_tokens, static_cast<uint64_t>(max_sequences), static_cast<uint64_t>(open_packs),
            static_cast<uint64_t>(max_wait), static_cast<uint64_t>(window)};
  }
  template <class Id>
  std::shared_ptr<sdk::RowSource> packed(const sampler::Items& items) {
    auto plan = std::dynamic_pointer_cast<sampler::ListedRows<Id>>(plan_);
    if (!plan) plan = std::make_shared<sampler::ListedRows<Id>>();
    plan_ = plan;
    plan->threads = thread_count();
    if (max_tokens <= sampler::BitmapIndex::kMostRoom) {
      sampler::pack_windows<sampler::BitmapIndex>(items.sizes, rule(), *plan);
    } else {
      sampler::pack_windows<sampler::MapIndex>(items.sizes, rule(), *plan);
    }
    return plan;
  }

  std::shared_ptr<sdk::RowSource> plan_;
};

}  // namespace

PLIANT_BATCH_SAMPLER(Streaming, "streaming", "0.1.0",
                     "Nearly full packs in one pass, with bounded memory and a bounded wait")
