// Rows of an epoch that the sampler planned and holds.
#include <algorithm>
#include <numeric>

#include "data/sampler_call.hpp"

namespace pliant::data {

namespace {

class PlannedRows : public RowSource {
 public:
  PlannedRows(const Sampler& sampler, const EpochInputs& inputs) : sampler_(sampler), inputs_(inputs) {}

  Result<> begin() {
    const auto& slots = *sampler_.slots;
    const pliant_epoch_request request = request_of(inputs_);
    pliant_epoch answer{};
    answer.struct_size = sizeof(answer);
    Result<> begun = ask(sampler_, inputs_.epoch, "begin_epoch",
                         [&](pliant_error* e) { return slots.begin_epoch(sampler_.self, &request, &answer, e); });
    if (!begun) return begun;
    return accept(answer);
  }

  Result<> read(uint64_t first, uint64_t count, RowBlock& block) override {
    constexpr uint64_t kUnwritten = ~uint64_t{0};
    count = std::min(count, announced_.rows - std::min(first, announced_.rows));
    block.offsets.assign(count + 1, kUnwritten);
    block.first_tokens.clear();
    block.token_counts.clear();
    block.ids.clear();
    if (count == 0) {
      block.offsets = {0};
      return {};
    }
    Result<> done = ask_for_rows(first, count, block, nullptr, 0);
    if (done) done = check_offsets(sampler_, inputs_.epoch, block.offsets, first, announced_.entries);
    if (!done) return done;
    const uint64_t entries = block.offsets.back();
    block.ids.assign(entries, -1);
    const std::vector<uint64_t> offsets = block.offsets;
    done = ask_for_rows(first, count, block, block.ids.data(), entries);
    if (!done) return done;
    if (block.offsets != offsets) return broken("the offsets of the same rows differ between calls");
    if (announced_.in_pieces()) done = ask_for_pieces(first, count, block);
    if (!done) return done;
    return check_entries(sampler_, inputs_, block);
  }
  [[nodiscard]] std::optional<sdk::EpochCounts> announced() const override { return announced_; }

  Result<std::map<std::string, std::vector<int64_t>>> dropped() override {
    std::map<std::string, std::vector<int64_t>> by_word;
    if (announced_.dropped == 0) return by_word;
    std::vector<int64_t> ids(announced_.dropped, -1);
    std::vector<int32_t> reasons(announced_.dropped, -1);
    Result<> asked = ask(sampler_, inputs_.epoch, "dropped", [&](pliant_error* e) {
      return sampler_.slots->dropped(sampler_.self, 0, ids.size(), ids.data(), reasons.data(), e);
    });
    if (!asked) return failed(std::move(asked));
    std::map<int32_t, std::vector<int64_t>> by_reason;
    for (size_t i = 0; i < ids.size(); ++i) by_reason[reasons[i]].push_back(ids[i]);
    for (auto& [reason, members] : by_reason) {
      const char* word = nullptr;
      asked = ask(sampler_, inputs_.epoch, "drop_reason", [&, number = reason](pliant_error*) {
        if (number >= 0) word = sampler_.slots->drop_reason(sampler_.self, number);
        return int32_t{PLIANT_OK};
      });
      if (!asked) return failed(std::move(asked));
      if (const std::string fault = sdk::drop_reason_fault(members.front(), reason, word); !fault.empty()) {
        return broken(fault);
      }
      auto& named = by_word[word];
      named.insert(named.end(), members.begin(), members.end());
    }
    for (auto& [word, members] : by_word) std::sort(members.begin(), members.end());
    return by_word;
  }

 private:
  [[nodiscard]] tl::unexpected<Error> broken(const std::string& how) const {
    return broke(sampler_, inputs_.epoch, how);
  }
  Result<> accept(const pliant_epoch& answer) {
    const Lengths& lengths = inputs_.dataset.lengths;
    const auto tokens = [&lengths] {
      return std::accumulate(lengths.begin(), lengths.end(), uint64_t{0},
                             [](uint64_t sum, int32_t length) { return sum + static_cast<uint64_t>(length); });
    };
    announced_ = sdk::counts_of(answer);
    const std::string fault = sdk::counts_fault(announced_, lengths.size(), inputs_.rows_per_batch, tokens);
    if (!fault.empty()) return broken(fault);
    return {};
  }

  Result<> ask_for_rows(uint64_t first, uint64_t count, RowBlock& block, int64_t* ids, uint64_t capacity) {
    return ask(sampler_, inputs_.epoch, "rows", [&](pliant_error* e) {
      return sampler_.slots->rows(sampler_.self, first, count, block.offsets.data(), ids, capacity, e);
    });
  }
  Result<> ask_for_pieces(uint64_t first, uint64_t count, RowBlock& block) {
    block.first_tokens.assign(block.ids.size(), -1);
    block.token_counts.assign(block.ids.size(), -1);
    return ask(sampler_, inputs_.epoch, "pieces", [&](pliant_error* e) {
      return sampler_.slots->pieces(sampler_.self, first, count, block.first_tokens.data(), block.token_counts.data(),
                                    block.ids.size(), e);
    });
  }

  const Sampler& sampler_;
  const EpochInputs& inputs_;
  sdk::EpochCounts announced_;
};

}  // namespace

Result<std::unique_ptr<RowSource>> plan_rows(const Sampler& sampler, const EpochInputs& inputs) {
  auto rows = std::make_unique<PlannedRows>(sampler, inputs);
  if (Result<> begun = rows->begin(); !begun) return failed(std::move(begun));
  return rows;
}

}  // namespace pliant::data
