// The part that all samplers share: which sequences, in which order; their state.
#include "order.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "length_sort.hpp"
#include "python_shuffle.hpp"

namespace pliant::sampler {

std::vector<const char*> order_choices() {
  return {"dataloader", "random", "seqlen"};
}

std::vector<const char*> over_long_choices() {
  return {"error", "drop"};
}

void check_request(const sdk::EpochRequest& request) {
  sdk::require(request.rows_per_batch >= 1,
               "a batch of " + std::to_string(request.rows_per_batch) + " rows; at least 1 is needed");
  sdk::require(request.epoch >= 0, "epoch " + std::to_string(request.epoch) + "; epochs are counted from 0");
}

std::vector<int64_t> chosen_ids(const sdk::EpochRequest& request) {
  check_request(request);
  const auto total = static_cast<int64_t>(request.lengths.size());
  std::vector<int64_t> ids;
  if (request.has_ids) {
    ids.assign(request.ids.begin(), request.ids.end());
  } else {
    ids.resize(request.lengths.size());
    std::iota(ids.begin(), ids.end(), int64_t{0});
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= total) {
      throw sdk::Failure(PLIANT_OUT_OF_RANGE, "sequence id " + std::to_string(ids[i]) + " at position " +
                                                  std::to_string(i) + ": the data set has " + std::to_string(total) +
                                                  " sequences, ids from 0");
    }
    const int64_t length = request.lengths[static_cast<size_t>(ids[i])];
    if (length < 0) {
      throw sdk::Failure(PLIANT_INVALID_ARGUMENT, "sequence " + std::to_string(ids[i]) + " has a length of " +
                                                      std::to_string(length) + " tokens; lengths must not be negative");
    }
  }
  return ids;
}

void refuse_empty(std::span<const int64_t> ids, std::span<const int32_t> lengths) {
  for (const int64_t id : ids) {
    if (lengths[static_cast<size_t>(id)] >= 1) continue;  // a message for each would take longer than the packing
    throw sdk::Failure(PLIANT_INVALID_ARGUMENT,
                       "sequence " + std::to_string(id) + " has a length of 0 tokens; leave it out of the data set");
  }
}

void sort_by_length(std::vector<int64_t>& ids, std::span<const int32_t> lengths) {
  if (!std::is_sorted(ids.begin(), ids.end())) std::sort(ids.begin(), ids.end());
  std::vector<int32_t> own(ids.size());
  std::transform(ids.begin(), ids.end(), own.begin(), [&](int64_t id) { return lengths[static_cast<size_t>(id)]; });
  const ByValue sorted = group_by_value(own);
  const std::vector<int64_t> before = std::exchange(ids, std::vector<int64_t>(ids.size()));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = before[sorted.positions[i]];
}

std::vector<int64_t> ordered_ids(const sdk::EpochRequest& request, const std::string& order) {
  std::vector<int64_t> ids = chosen_ids(request);
  if (order == "random") {
    const std::vector<uint32_t> key = seed_words(request.seed, static_cast<uint64_t>(request.epoch));
    python_shuffle(std::span(ids), std::span<const uint32_t>(key));
  } else if (order == "seqlen") {
    sort_by_length(ids, request.lengths);
  } else {
    sdk::require(order == "dataloader", "unknown order '" + order + "'; allowed: dataloader, random, seqlen");
  }
  return ids;
}

std::string explain_over_long(std::span<const int64_t> too_long, size_t total, std::span<const int32_t> lengths,
                              int64_t max_tokens) {
  constexpr size_t kNamed = 5;
  int64_t longest = 0;
  std::string named;
  for (size_t i = 0; i < too_long.size(); ++i) {
    const int64_t length = lengths[static_cast<size_t>(too_long[i])];
    longest = std::max(longest, length);
    if (i < kNamed) {
      named += (i == 0 ? "" : ", ") + std::to_string(too_long[i]) + " (" + std::to_string(length) + ")";
    }
  }
  if (too_long.size() > kNamed) named += " and " + std::to_string(too_long.size() - kNamed) + " more";
  return std::to_string(too_long.size()) + " of " + std::to_string(total) +
         " sequences are longer than max_tokens = " + std::to_string(max_tokens) + "; ids (tokens): " + named +
         ". Split them, raise max_tokens to " + std::to_string(longest) +
         ", or set over_long = \"drop\" to leave them out";
}

void take_out_over_long(std::vector<int64_t>& ids, std::span<const int32_t> lengths, int64_t max_tokens,
                        const std::string& over_long, int32_t reason, sdk::EpochRows& rows) {
  std::vector<int64_t> too_long;
  size_t kept = 0;
  for (const int64_t id : ids) {
    if (lengths[static_cast<size_t>(id)] > max_tokens) {
      too_long.push_back(id);
    } else {
      ids[kept++] = id;
    }
  }
  if (too_long.empty()) return;
  if (over_long == "error") {
    std::sort(too_long.begin(), too_long.end());
    throw sdk::Failure(PLIANT_INVALID_ARGUMENT, explain_over_long(too_long, ids.size(), lengths, max_tokens));
  }
  ids.resize(kept);
  for (const int64_t id : too_long) rows.drop(id, reason);
}

void drop_incomplete_batch(sdk::EpochRows& rows, int64_t rows_per_batch, int32_t reason, const std::string& advice) {
  const uint64_t made = rows.offsets.size() - 1;
  const uint64_t kept = made - made % static_cast<uint64_t>(rows_per_batch);
  if (kept == 0) {
    throw sdk::Failure(PLIANT_FAILED_PRECONDITION, "not enough sequences for one batch: " + std::to_string(made) +
                                                       " rows, a batch has " + std::to_string(rows_per_batch) + " (" +
                                                       std::to_string(rows.dropped_ids.size()) +
                                                       " sequences were left out before). " + advice);
  }
  for (uint64_t i = rows.offsets[kept]; i < rows.ids.size(); ++i) rows.drop(rows.ids[i], reason);
  rows.ids.resize(rows.offsets[kept]);
  rows.offsets.resize(kept + 1);
}

void save_options(const sdk::Writer& out, const std::string& tag, const std::string& options) {
  out.text(tag);
  out.text(options);
}

void load_options(const sdk::Reader& in, const std::string& tag, const std::string& options) {
  const std::string found_tag = in.text();
  if (found_tag != tag) throw sdk::Failure(PLIANT_DATA_LOSS, "this is not a state of " + tag);
  const std::string saved = in.text();
  in.expect_end();
  if (saved != options) {
    throw sdk::Failure(PLIANT_FAILED_PRECONDITION, "the state was saved with other options (" + saved +
                                                       ") than those set now (" + options +
                                                       "); use the saved ones to resume");
  }
}

}  // namespace pliant::sampler
