// Sampler `streaming`: nearly full packs in one pass over the sequences, with bounded memory and a bounded wait.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "../kernel/listed_rows.hpp"
#include "../kernel/open_packs.hpp"
#include "../kernel/pack_sampler.hpp"
#include "../kernel/stream_engines.hpp"
#include "../kernel/streaming_base.hpp"

namespace {

namespace sampler = pliant::sampler;
namespace sdk = pliant::sdk;

/// Open packs, indexed as the budget needs it.
class Engine {
 public:
  explicit Engine(const sampler::OpenPacksRule& rule) {
    if (rule.budget <= sampler::SmallIndex::kMostRoom) {
      engine_.emplace<Small>(rule);
    } else {
      engine_.emplace<Large>(rule);
    }
  }
  template <class Emit>
  void push(const sdk::Entry& entry, int64_t size, Emit&& emit) {
    std::visit([&](auto& engine) { engine.push(entry, size, emit); }, engine_);
  }
  template <class Emit>
  void flush(Emit&& emit) {
    std::visit([&](auto& engine) { engine.flush(emit); }, engine_);
  }
  [[nodiscard]] bool is_empty() const {
    return std::visit([](const auto& engine) { return engine.is_empty(); }, engine_);
  }
  void save(sampler::ByteWriter& out) const {
    std::visit([&](const auto& engine) { engine.save(out); }, engine_);
  }
  void load(sampler::ByteReader& in, const sampler::Cost& cost) {
    std::visit([&](auto& engine) { engine.load(in, cost); }, engine_);
  }
  template <class See>
  void see_open(See&& see) const {
    std::visit([&](const auto& engine) { engine.see_open(see); }, engine_);
  }

 private:
  using Small = sampler::OpenPacksEngine<sampler::SmallIndex>;
  using Large = sampler::OpenPacksEngine<sampler::MapIndex>;
  std::variant<Small, Large> engine_{Small({0, 0, 1, 2})};
};

class Streaming : public sampler::PackSampler<Streaming>,
                  public sampler::ThreadOption,
                  public sampler::Streams<Streaming, Engine> {
 public:
  using Stream = sampler::Streams<Streaming, Engine>;
  using Stream::load;
  using Stream::save;
  static constexpr const char* kName = "streaming";
  int64_t open_packs = 256;
  int64_t max_wait = 4096;

  static void options(sdk::Options<Streaming>& o) {
    sampler::add_pack_options(o, sampler::summed_budget());
    o.add("open_packs", &Streaming::open_packs,
          "Packs that are filled side by side; each sequence goes to the fullest that has room for it.")
        .range(1, 1 << 16)
        .unit("packs");
    o.add("max_wait", &Streaming::max_wait,
          "Most rows that come out while a sequence waits for its pack to fill; at least twice open_packs.")
        .at_least(2)
        .unit("rows");
    sampler::add_thread_option(o);
  }

  void start(const sdk::Host& host) const {
    PackSampler::start(host);
    if (max_wait >= 2 * open_packs) return;
    throw sdk::Failure(PLIANT_OUT_OF_RANGE, "max_wait = " + std::to_string(max_wait) + " is below twice open_packs = " +
                                                std::to_string(open_packs) + "; raise it to " +
                                                std::to_string(2 * open_packs) + " or keep fewer packs open");
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
    return PackSampler::text() + ", open_packs = " + std::to_string(open_packs) +
           ", max_wait = " + std::to_string(max_wait);
  }

 private:
  [[nodiscard]] sampler::OpenPacksRule rule() const {
    return {max_tokens, static_cast<uint64_t>(max_sequences), static_cast<uint64_t>(open_packs),
            static_cast<uint64_t>(max_wait)};
  }
  template <class Id>
  std::shared_ptr<sdk::RowSource> packed(const sampler::Items& items) {
    auto plan = std::dynamic_pointer_cast<sampler::ListedRows<Id>>(plan_);
    if (!plan) plan = std::make_shared<sampler::ListedRows<Id>>();
    plan_ = plan;
    plan->threads = thread_count();
    if (max_tokens <= sampler::SmallIndex::kMostRoom) {
      sampler::pack_streaming<sampler::SmallIndex>(items.sizes, rule(), *plan);
    } else if (max_tokens <= sampler::BitmapIndex::kMostRoom) {
      sampler::pack_streaming<sampler::BitmapIndex>(items.sizes, rule(), *plan);
    } else {
      sampler::pack_streaming<sampler::MapIndex>(items.sizes, rule(), *plan);
    }
    return plan;
  }

  std::shared_ptr<sdk::RowSource> plan_;
};

}  // namespace

PLIANT_BATCH_SAMPLER(Streaming, "streaming", "0.1.0",
                     "Nearly full packs in one pass, with bounded memory and a bounded wait")
