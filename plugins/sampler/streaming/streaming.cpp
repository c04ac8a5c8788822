// Sampler `streaming`: nearly full packs in one pass over the sequences, with bounded memory and a bounded wait.
#include <cstdint>
#include <string>

#include "../kernel/open_packs.hpp"
#include "../kernel/pack_sampler.hpp"

namespace {

namespace sampler = pliant::sampler;
namespace sdk = pliant::sdk;

class Streaming : public sampler::PackSampler<Streaming> {
 public:
  static constexpr const char* kName = "streaming";
  int64_t open_packs = 256;
  int64_t max_wait = 2048;

  static void options(sdk::Options<Streaming>& o) {
    sampler::add_pack_options(o, "Most tokens in one pack: the sum of its sequences' lengths.");
    o.add("open_packs", &Streaming::open_packs,
          "Packs that are filled side by side; each sequence goes to the fullest that has room for it.")
        .range(1, 1 << 16)
        .unit("packs");
    o.add("max_wait", &Streaming::max_wait,
          "Most rows that come out while a sequence waits for its pack to fill; at least twice open_packs.")
        .at_least(2)
        .unit("rows");
  }

  void start(const sdk::Host& host) const {
    PackSampler::start(host);
    if (max_wait >= 2 * open_packs) return;
    throw sdk::Failure(PLIANT_OUT_OF_RANGE, "max_wait = " + std::to_string(max_wait) + " is below twice open_packs = " +
                                                std::to_string(open_packs) + "; raise it to " +
                                                std::to_string(2 * open_packs) + " or keep fewer packs open");
  }

  void pack(const sampler::Items& items, const sdk::EpochRequest&, sdk::EpochRows& rows) const {
    if (max_tokens <= sampler::BitmapIndex::kMostRoom) {
      stream<sampler::BitmapIndex>(items, rows);
    } else {
      stream<sampler::MapIndex>(items, rows);
    }
  }

  [[nodiscard]] std::string text() const {
    return PackSampler::text() + ", open_packs = " + std::to_string(open_packs) +
           ", max_wait = " + std::to_string(max_wait);
  }

 private:
  template <class Index>
  void stream(const sampler::Items& items, sdk::EpochRows& rows) const {
    sampler::OpenPacks<Index> packs({max_tokens, static_cast<uint64_t>(max_sequences),
                                     static_cast<uint64_t>(open_packs), static_cast<uint64_t>(max_wait)});
    rows.ids.resize(items.count());
    int64_t* id = rows.ids.data();
    const auto emit = [&](const std::vector<int64_t>& pack) {
      id = std::copy(pack.begin(), pack.end(), id);
      rows.offsets.push_back(static_cast<uint64_t>(id - rows.ids.data()));
    };
    for (size_t i = 0; i < items.count(); ++i) packs.push(static_cast<int64_t>(i), items.sizes[i], emit);
    packs.flush(emit);
  }
};

}  // namespace

PLIANT_BATCH_SAMPLER(Streaming, "streaming", "0.1.0",
                     "Nearly full packs in one pass, with bounded memory and a bounded wait")
