// Asking a sampler for an epoch, and trusting nothing that it says.
#include "data/epoch_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <numeric>
#include <utility>

#include "data/pieces.hpp"
#include "plugin/plugin.hpp"

namespace pliant::data {

namespace {

Entries entries_of(const EpochPlan& plan, uint64_t first_row, uint64_t end_row) {
  const uint64_t begin = plan.offsets[first_row];
  const uint64_t count = plan.offsets[end_row] - begin;
  const std::span<const Piece> pieces(plan.pieces);
  return {plan.epoch, std::span(plan.ids).subspan(begin, count),
          pieces.empty() ? pieces : pieces.subspan(begin, count)};
}

/// One epoch being asked for.
class Inquiry {
 public:
  Inquiry(const Sampler& sampler, const Dataset& dataset, int64_t epoch, int64_t rows_per_batch)
      : sampler_(sampler), dataset_(dataset), epoch_(epoch), rows_per_batch_(rows_per_batch) {}

  Result<EpochPlan> run(uint64_t seed) {
    if (auto begun = begin(seed); !begun) return failed(std::move(begun));
    if (auto fetched = fetch_rows(); !fetched) return failed(std::move(fetched));
    if (auto fetched = fetch_pieces(); !fetched) return failed(std::move(fetched));
    if (auto checked = check_rows(); !checked) return failed(std::move(checked));
    if (auto fetched = fetch_dropped(); !fetched) return failed(std::move(fetched));
    summarise();
    if (plan_.summary.rows == 0) return nothing_left();
    return std::move(plan_);
  }

 private:
  [[nodiscard]] tl::unexpected<Error> broke(const std::string& how) const {
    return failed(Status::kInternal, fmt::format("{} broke its contract in epoch {}: {}", sampler_.name, epoch_, how),
                  ExitCode::kPlugin);
  }

  /// Calls a slot; a status or an exception of the plugin becomes an Error.
  template <class Call>
  Result<> ask(const char* slot, Call&& call) const {
    pliant_error error = plugin::fresh_error();
    int32_t status = PLIANT_OK;
    try {
      status = call(&error);
    } catch (const std::exception& thrown) {
      return broke(fmt::format("{} threw across the border: {}", slot, thrown.what()));
    } catch (...) {
      return broke(fmt::format("{} threw across the border", slot));
    }
    if (status != PLIANT_OK) return tl::unexpected<Error>(sampler_.refusal(status, error));
    return {};
  }

  Result<> begin(uint64_t seed) {
    const auto& slots = *sampler_.slots;
    if (slots.begin_epoch == nullptr || slots.rows == nullptr || slots.dropped == nullptr ||
        slots.drop_reason == nullptr || slots.pieces == nullptr) {
      return broke("one of the slots begin_epoch, rows, dropped, drop_reason and pieces is NULL");
    }
    total_ = dataset_.lengths.size();
    pliant_epoch_request request{};
    request.struct_size = sizeof(request);
    request.seed = seed;
    request.epoch = epoch_;
    request.rows_per_batch = rows_per_batch_;
    request.sequence_count = total_;
    request.lengths = dataset_.lengths.data();
    request.loss_tokens = dataset_.loss_tokens.empty() ? nullptr : dataset_.loss_tokens.data();
    answer_.struct_size = sizeof(answer_);
    if (auto asked = ask("begin_epoch",
                         [&](pliant_error* e) { return slots.begin_epoch(sampler_.self, &request, &answer_, e); });
        !asked) {
      return asked;
    }
    if (answer_.sequence_count > total_ || answer_.dropped_count != total_ - answer_.sequence_count) {
      return broke(fmt::format("{} sequences in rows and {} dropped; {} were asked for", answer_.sequence_count,
                               answer_.dropped_count, total_));
    }
    if (answer_.entry_count == 0) answer_.entry_count = answer_.sequence_count;
    const uint64_t most_entries = in_pieces() ? token_count() : answer_.sequence_count;
    if (answer_.entry_count < answer_.sequence_count || answer_.entry_count > most_entries) {
      return broke(fmt::format("{} entries for {} sequences; each has at least one, and no more than tokens",
                               answer_.entry_count, answer_.sequence_count));
    }
    if (answer_.row_count > answer_.entry_count) {
      return broke(
          fmt::format("{} rows of {} sequences: a row is never empty", answer_.row_count, answer_.entry_count));
    }
    return {};
  }

  [[nodiscard]] bool in_pieces() const {
    return answer_.entry_count != answer_.sequence_count || answer_.truncated_count != 0;
  }
  [[nodiscard]] uint64_t token_count() const {
    return std::accumulate(dataset_.lengths.begin(), dataset_.lengths.end(), uint64_t{0},
                           [](uint64_t sum, int64_t length) { return sum + static_cast<uint64_t>(length); });
  }

  Result<> fetch_rows() {
    constexpr uint64_t kUnwritten = ~uint64_t{0};
    plan_.epoch = epoch_;
    plan_.offsets.assign(answer_.row_count + 1, kUnwritten);
    plan_.ids.assign(answer_.entry_count, -1);
    return ask("rows", [&](pliant_error* e) {
      return sampler_.slots->rows(sampler_.self, 0, answer_.row_count, plan_.offsets.data(), plan_.ids.data(),
                                  plan_.ids.size(), e);
    });
  }

  Result<> check_rows() {
    const auto& offsets = plan_.offsets;
    if (offsets.front() != 0) return broke(fmt::format("the first offset is {}, not 0", offsets.front()));
    for (size_t row = 0; row + 1 < offsets.size(); ++row) {
      if (offsets[row + 1] == offsets[row]) return broke(fmt::format("row {} is empty", row));
      if (offsets[row + 1] < offsets[row] || offsets[row + 1] > plan_.ids.size()) {
        return broke(fmt::format("row {} ends at {} after a start at {}; there are {} sequences", row, offsets[row + 1],
                                 offsets[row], plan_.ids.size()));
      }
    }
    if (offsets.back() != plan_.ids.size()) {
      return broke(fmt::format("the rows hold {} sequences, {} were announced", offsets.back(), plan_.ids.size()));
    }
    seen_.assign(total_, false);
    for (size_t i = 0; i < plan_.ids.size(); ++i) {
      if (!plan_.pieces.empty() && !plan_.pieces[i].last && is_known(plan_.ids[i])) continue;
      if (auto marked = mark(plan_.ids[i], "a row"); !marked) return marked;
    }
    return {};
  }

  /// Before check_rows: which of the entries are pieces, when the sampler said that there are any.
  Result<> fetch_pieces() {
    if (!in_pieces()) return {};
    for (const int64_t id : plan_.ids) {
      if (!is_known(id)) return mark(id, "a row");
    }
    const size_t count = plan_.ids.size();
    std::vector<int64_t> numbers(2 * count, -1);  // first tokens, then token counts
    auto asked = ask("pieces", [&](pliant_error* e) {
      return sampler_.slots->pieces(sampler_.self, 0, answer_.row_count, numbers.data(), numbers.data() + count, count,
                                    e);
    });
    if (!asked) return asked;
    plan_.pieces.resize(count);
    for (size_t i = 0; i < count; ++i) plan_.pieces[i] = {numbers[i], numbers[count + i], true};
    return accept_pieces();
  }
  Result<> accept_pieces() {
    auto checked = check_pieces(plan_.ids, dataset_.lengths, plan_.pieces);
    if (!checked) return broke(checked.error().message());
    if (checked->sequences != answer_.sequence_count || checked->truncated.size() != answer_.truncated_count) {
      return broke(fmt::format("the rows hold {} sequences, {} of them truncated; {} and {} were announced",
                               checked->sequences, checked->truncated.size(), answer_.sequence_count,
                               answer_.truncated_count));
    }
    plan_.summary.truncated = static_cast<int64_t>(checked->truncated.size());
    plan_.summary.tokens_cut = checked->tokens_cut;
    plan_.truncated = std::move(checked->truncated);
    return {};
  }
  [[nodiscard]] bool is_known(int64_t id) const { return id >= 0 && static_cast<uint64_t>(id) < total_; }

  Result<> mark(int64_t id, const char* where) {
    if (!is_known(id)) {
      return broke(fmt::format("sequence id {} in {}; ids are 0 to {}", id, where, total_ - 1));
    }
    if (seen_[static_cast<size_t>(id)]) return broke(fmt::format("sequence {} is used or dropped twice", id));
    seen_[static_cast<size_t>(id)] = true;
    return {};
  }

  Result<> fetch_dropped() {
    std::vector<int64_t> ids(answer_.dropped_count, -1);
    std::vector<int32_t> reasons(answer_.dropped_count, -1);
    if (ids.empty()) return {};
    if (auto asked = ask("dropped",
                         [&](pliant_error* e) {
                           return sampler_.slots->dropped(sampler_.self, 0, ids.size(), ids.data(), reasons.data(), e);
                         });
        !asked) {
      return asked;
    }
    std::map<int32_t, std::vector<int64_t>> by_reason;
    for (size_t i = 0; i < ids.size(); ++i) {
      if (auto marked = mark(ids[i], "the list of dropped ones"); !marked) return marked;
      by_reason[reasons[i]].push_back(ids[i]);
    }
    for (auto& [reason, members] : by_reason) {
      const char* word = reason < 0 ? nullptr : sampler_.slots->drop_reason(sampler_.self, reason);
      if (word == nullptr || *word == '\0') {
        return broke(fmt::format("sequence {} is dropped for reason {}, which has no name", members.front(), reason));
      }
      auto& named = plan_.dropped[word];
      named.insert(named.end(), members.begin(), members.end());
    }
    for (auto& [word, members] : plan_.dropped) std::sort(members.begin(), members.end());
    return {};
  }

  void summarise() {
    EpochSummary& summary = plan_.summary;
    summary.rows = static_cast<int64_t>(plan_.offsets.size()) - 1;
    summary.batches = summary.rows / rows_per_batch_ + (summary.rows % rows_per_batch_ == 0 ? 0 : 1);
    summary.sequences = static_cast<int64_t>(answer_.sequence_count);
    for (size_t row = 0; row + 1 < plan_.offsets.size(); ++row) {
      const EntrySums sums = sum_entries(entries_of(plan_, row, row + 1), dataset_);
      summary.tokens += sums.tokens;
      summary.loss_tokens += sums.loss_tokens;
      summary.longest_row = std::max(summary.longest_row, sums.tokens);
    }
    for (const auto& [word, members] : plan_.dropped) summary.dropped[word] = static_cast<int64_t>(members.size());
  }

  [[nodiscard]] tl::unexpected<Error> nothing_left() const {
    std::string counts;
    for (const auto& [word, count] : plan_.summary.dropped) {
      counts += fmt::format("{}{}: {}", counts.empty() ? "" : ", ", word, count);
    }
    return failed(Status::kFailedPrecondition,
                  fmt::format("{} leaves nothing to train on in epoch {}: all {} sequences are dropped ({})",
                              sampler_.name, epoch_, total_, counts),
                  ExitCode::kUsage);
  }

  const Sampler& sampler_;
  const Dataset& dataset_;
  int64_t epoch_;
  int64_t rows_per_batch_;
  uint64_t total_ = 0;
  pliant_epoch answer_{};
  std::vector<bool> seen_;
  EpochPlan plan_;
};

}  // namespace

Result<EpochPlan> plan_epoch(const Sampler& sampler, const Dataset& dataset, uint64_t seed, int64_t epoch,
                             int64_t rows_per_batch) {
  return Inquiry(sampler, dataset, epoch, rows_per_batch).run(seed);
}

Batch cut_batch(const EpochPlan& plan, const Dataset& dataset, int64_t index, uint64_t first, uint64_t count) {
  Batch batch;
  batch.epoch = plan.epoch;
  batch.index = index;
  const Entries entries = entries_of(plan, first, first + count);
  const uint64_t begin = plan.offsets[first];
  batch.offsets.reserve(count + 1);
  for (uint64_t row = first; row <= first + count; ++row) batch.offsets.push_back(plan.offsets[row] - begin);
  batch.ids.assign(entries.ids.begin(), entries.ids.end());
  batch.pieces.assign(entries.pieces.begin(), entries.pieces.end());
  const EntrySums sums = sum_entries(entries, dataset);
  batch.size = {static_cast<int64_t>(count), sums.sequences, sums.tokens, sums.loss_tokens};
  batch.longest_entry = sums.longest;
  batch.digest = sums.digest;
  return batch;
}

}  // namespace pliant::data
