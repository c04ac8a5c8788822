// Sampler `next_fit`: fills one pack after the other and keeps the order of the sequences.
#include "../common/next_fit.hpp"

#include <cstdint>
#include <memory>
#include <string>

#include "../common/counted_rows.hpp"
#include "../common/pack_sampler.hpp"
#include "../common/stream_engines.hpp"
#include "../common/streaming_base.hpp"

namespace {

namespace sampler = pliant::sampler;
namespace sdk = pliant::sdk;

class NextFit : public sampler::PackSampler<NextFit>,
                public sampler::ThreadOption,
                public sampler::Streams<NextFit, sampler::NextFitEngine> {
 public:
  using Stream = sampler::Streams<NextFit, sampler::NextFitEngine>;
  using Stream::load;
  using Stream::save;
  static constexpr const char* kName = "next_fit";

  static void options(sdk::Options<NextFit>& o) {
    sampler::add_pack_options(o, sampler::summed_budget());
    sampler::add_thread_option(o);
  }
  void pack(const sampler::Items& items, const sdk::EpochRequest&, sdk::EpochRows& rows) {
    plan_->threads = thread_count();
    sampler::next_fit(items.sizes, max_tokens, static_cast<uint64_t>(max_sequences), plan_->threads, plan_->bits);
    rows.source = plan_;
  }

  const void* extension(const char* id) const {
    const void* table = Stream::extension(id);
    return table != nullptr ? table : PackSampler::extension(id);
  }
  [[nodiscard]] std::string why_no_stream() const { return sampler::why_no_stream(*this); }
  [[nodiscard]] sampler::FeedRule feed_rule() const { return sampler::feed_rule(*this); }
  [[nodiscard]] sampler::NextFitEngine make_engine() const {
    return {max_tokens, static_cast<uint64_t>(max_sequences)};
  }

 private:
  std::shared_ptr<sampler::CountedRows> plan_ = std::make_shared<sampler::CountedRows>();
};

}  // namespace

PLIANT_BATCH_SAMPLER(NextFit, "next_fit", "0.1.0", "Fills one pack after another and keeps the order of the sequences")
