// Rows of an epoch that nobody holds: read in order, with saved positions to go back to.
#include <algorithm>
#include <utility>

#include "data/sampler_call.hpp"

namespace pliant::data {

namespace {

/// Positions of the stream, spread over what was read: at most kMost, so that going back costs a part of the way only.
class Marks {
 public:
  [[nodiscard]] bool wants(uint64_t row) const { return marks_.empty() || row >= marks_.back().first + distance_; }
  void add(uint64_t row, std::string state) {
    marks_.emplace_back(row, std::move(state));
    if (marks_.size() < kMost) return;
    distance_ *= 2;
    std::vector<std::pair<uint64_t, std::string>> kept;
    for (size_t i = 0; i < marks_.size(); i += 2) kept.push_back(std::move(marks_[i]));
    marks_ = std::move(kept);
  }
  /// The last one at or before `row`; there is one at 0.
  [[nodiscard]] const std::pair<uint64_t, std::string>& before(uint64_t row) const {
    const auto after = std::upper_bound(marks_.begin(), marks_.end(), row,
                                        [](uint64_t wanted, const auto& mark) { return wanted < mark.first; });
    return *std::prev(after);
  }

 private:
  static constexpr size_t kMost = 64;
  uint64_t distance_ = 4096;
  std::vector<std::pair<uint64_t, std::string>> marks_;
};

class StreamedRows : public RowSource {
 public:
  StreamedRows(const Sampler& sampler, const EpochInputs& inputs) : sampler_(sampler), inputs_(inputs) {}

  /// False when the options need the whole epoch at once.
  Result<bool> begin() {
    if (Result<> opened = open(); !opened) {
      if (opened.error().status() == Status::kUnimplemented) return false;
      return failed(std::move(opened));
    }
    if (Result<> marked = mark(); !marked) return failed(std::move(marked));
    return true;
  }

  Result<> read(uint64_t first, uint64_t count, RowBlock& block) override {
    if (first < at_) {
      if (Result<> back = go_back(first); !back) return back;
    }
    while (at_ < first) {
      const uint64_t before = at_;
      if (Result<> skipped = next(std::min(first - at_, kPortion), block); !skipped) return skipped;
      if (at_ == before) break;
    }
    RowBlock portion;
    block.offsets = {0};
    block.ids.clear();
    block.first_tokens.clear();
    block.token_counts.clear();
    while (at_ >= first && block.rows() < count) {
      if (Result<> got = next(std::min(count - block.rows(), kPortion), portion); !got) return got;
      if (portion.rows() == 0) break;
      append(portion, block);
    }
    return {};
  }
  [[nodiscard]] std::optional<sdk::EpochCounts> announced() const override { return std::nullopt; }
  Result<std::map<std::string, std::vector<int64_t>>> dropped() override {
    return std::map<std::string, std::vector<int64_t>>();
  }

 private:
  static constexpr uint64_t kPortion = 4096;

  [[nodiscard]] tl::unexpected<Error> broken(const std::string& how) const {
    return broke(sampler_, inputs_.epoch, how);
  }
  static void append(const RowBlock& portion, RowBlock& block) {
    const uint64_t base = block.ids.size();
    for (size_t row = 1; row < portion.offsets.size(); ++row) block.offsets.push_back(base + portion.offsets[row]);
    block.ids.insert(block.ids.end(), portion.ids.begin(), portion.ids.end());
    block.first_tokens.insert(block.first_tokens.end(), portion.first_tokens.begin(), portion.first_tokens.end());
    block.token_counts.insert(block.token_counts.end(), portion.token_counts.begin(), portion.token_counts.end());
  }
  Result<> open() {
    const pliant_epoch_request request = request_of(inputs_);
    return ask(sampler_, inputs_.epoch, "open",
               [&](pliant_error* e) { return sampler_.stream->open(sampler_.self, &request, e); });
  }
  Result<> mark() {
    if (!marks_.wants(at_)) return {};
    Result<std::string> saved = sampler_.save();
    if (!saved) return failed(std::move(saved));
    marks_.add(at_, std::move(*saved));
    return {};
  }
  Result<> go_back(uint64_t row) {
    const auto& [at, state] = marks_.before(row);
    if (Result<> loaded = sampler_.load(state); !loaded) return loaded;
    if (Result<> opened = open(); !opened) return opened;
    at_ = at;
    return {};
  }
  /// Of one row: more than each sequence once is not made room for, whatever the sampler says.
  [[nodiscard]] uint64_t most_entries() const { return inputs_.dataset.lengths.size(); }

  /// The next rows into `block`, which has none at the end of the epoch.
  Result<> next(uint64_t most, RowBlock& block) {
    uint64_t got = 0;
    while (true) {
      block.offsets.assign(most + 1, ~uint64_t{0});
      block.ids.assign(capacity_, -1);
      block.first_tokens.assign(capacity_, -1);
      block.token_counts.assign(capacity_, -1);
      Result<> asked = ask(sampler_, inputs_.epoch, "next", [&](pliant_error* e) {
        return sampler_.stream->next(sampler_.self, most, capacity_, &got, block.offsets.data(), block.ids.data(),
                                     block.first_tokens.data(), block.token_counts.data(), e);
      });
      if (asked) break;
      const bool too_narrow = asked.error().status() == Status::kOutOfRange && capacity_ < most_entries();
      if (!too_narrow) return asked;
      capacity_ *= 2;
    }
    if (got > most) return broken(fmt::format("next gave {} rows; {} were requested", got, most));
    block.offsets.resize(got + 1);
    if (Result<> sound = check_offsets(sampler_, inputs_.epoch, block.offsets, at_, capacity_); !sound) return sound;
    for (auto* values : {&block.ids, &block.first_tokens, &block.token_counts}) values->resize(block.offsets.back());
    if (Result<> sound = check_entries(sampler_, inputs_, block); !sound) return sound;
    at_ += got;
    return mark();
  }

  const Sampler& sampler_;
  const EpochInputs& inputs_;
  Marks marks_;
  uint64_t at_ = 0;  ///< the row that the stream gives next
  uint64_t capacity_ = uint64_t{1} << 16U;
};

}  // namespace

Result<std::unique_ptr<RowSource>> stream_rows(const Sampler& sampler, const EpochInputs& inputs) {
  auto rows = std::make_unique<StreamedRows>(sampler, inputs);
  const Result<bool> begun = rows->begin();
  if (!begun) return tl::unexpected<Error>(begun.error());
  if (!*begun) return std::unique_ptr<RowSource>();
  return rows;
}

}  // namespace pliant::data
