// Items: sequences in their order, whole or in pieces that fit a pack.
#include "items.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "threads.hpp"

namespace pliant::sampler {

namespace {

/// `counts`: what of each sequence is limited to `longest`, its tokens or loss tokens.
std::string explain_pack_over_long(std::span<const int64_t> too_long, size_t total, std::span<const int32_t> counts,
                                   const PackOptions& options, int64_t longest) {
  const std::string unit = options.counts_loss() ? "loss tokens" : "tokens";
  constexpr size_t kNamed = 5;
  std::string named;
  for (size_t i = 0; i < std::min(kNamed, too_long.size()); ++i) {
    named += (i == 0 ? "" : ", ") + std::to_string(too_long[i]) + " (" +
             std::to_string(counts[static_cast<size_t>(too_long[i])]) + ")";
  }
  if (too_long.size() > kNamed) named += " and " + std::to_string(too_long.size() - kNamed) + " more";
  return std::to_string(too_long.size()) + " of " + std::to_string(total) + " sequences have more than " +
         std::to_string(longest) + " " + unit +
         ", the most that fit max_tokens = " + std::to_string(options.max_tokens) + "; ids (" + unit + "): " + named +
         ". Raise max_tokens, or set over_long = " +
         (options.counts_loss() ? "\"drop\"" : "\"split\", \"truncate\" or \"drop\"");
}

/// Puts every sequence of `ids` into items as `options.over_long` says.
void fill(Items& items, const std::vector<int64_t>& ids, std::span<const int32_t> lengths, const PackOptions& options,
          int64_t longest, sdk::EpochRows& rows) {
  const auto add = [&](int64_t id, int64_t first, int64_t count) {
    items.ids.push_back(id);
    items.own_lengths.push_back(static_cast<int32_t>(count));
    items.pieces.push_back({first, count});
  };
  for (const int64_t id : ids) {
    const int64_t length = lengths[static_cast<size_t>(id)];
    if (length > longest && options.over_long == "drop") {
      rows.drop(id, kPackTooLong);
      continue;
    }
    ++items.sequence_count;
    if (length > longest && options.over_long == "truncate") {
      ++items.truncated_count;
      add(id, 0, longest);
      continue;
    }
    for (int64_t first = 0; first < length; first += std::min(longest, length - first)) {
      add(id, first, std::min(longest, length - first));
    }
  }
  if (items.truncated_count == 0 && items.sequence_count == items.ids.size()) items.pieces.clear();
}

/// make_items where sequences count their loss tokens; each stays whole.
Items make_loss_items(const sdk::EpochRequest& request, const PackOptions& options, const std::string& order,
                      sdk::EpochRows& rows) {
  Items items;
  items.ids = ordered_ids(request, order);
  refuse_empty(items.ids, request.lengths);
  std::vector<int64_t> too_long;
  for (const int64_t id : items.ids) {
    const auto at = static_cast<size_t>(id);
    check_loss_tokens(id, request.loss_tokens[at], request.lengths[at]);
    if (request.loss_tokens[at] > options.max_tokens) too_long.push_back(id);
  }
  if (!too_long.empty()) {
    if (options.over_long == "error") {
      std::sort(too_long.begin(), too_long.end());
      throw sdk::Failure(
          PLIANT_INVALID_ARGUMENT,
          explain_pack_over_long(too_long, items.ids.size(), request.loss_tokens, options, options.max_tokens));
    }
    for (const int64_t id : too_long) rows.drop(id, kPackTooLong);
    items.ids.erase(
        std::remove_if(items.ids.begin(), items.ids.end(),
                       [&](int64_t id) { return request.loss_tokens[static_cast<size_t>(id)] > options.max_tokens; }),
        items.ids.end());
  }
  for (const int64_t id : items.ids) {
    items.own_lengths.push_back(request.lengths[static_cast<size_t>(id)]);
    items.own_sizes.push_back(static_cast<int32_t>(loss_size(request.loss_tokens, id)));
  }
  items.lengths = items.own_lengths;
  items.sizes = items.own_sizes;
  if (!request.has_ids && order == "dataloader" && too_long.empty()) items.ids.clear();
  return items;
}

}  // namespace

void check_loss_tokens(int64_t id, int64_t loss_tokens, int64_t length) {
  if (loss_tokens >= 0 && loss_tokens <= length) return;
  throw sdk::Failure(PLIANT_INVALID_ARGUMENT, "sequence " + std::to_string(id) + " has " + std::to_string(loss_tokens) +
                                                  " loss tokens; with a length of " + std::to_string(length) +
                                                  " it can have 0 to " + std::to_string(length));
}

bool detail::all_within(std::span<const int32_t> lengths, int64_t longest, size_t threads) {
  const auto most = static_cast<uint32_t>(std::min<int64_t>(longest, std::numeric_limits<int32_t>::max()));
  const size_t parts = useful_threads(threads, lengths.size());
  std::vector<uint32_t> found(parts);
  in_parallel(parts, [&](size_t part) {
    const size_t begin = slice(lengths.size(), part, parts);
    uint32_t bad = 0;
    for (const int32_t length : lengths.subspan(begin, slice(lengths.size(), part + 1, parts) - begin)) {
      bad |= (static_cast<uint32_t>(length) - 1U) | (most - static_cast<uint32_t>(length));
    }
    found[part] = bad;
  });
  return std::all_of(found.begin(), found.end(), [](uint32_t bad) { return (bad >> 31U) == 0; });
}

Items make_items(const sdk::EpochRequest& request, const PackOptions& options, const std::string& order,
                 int64_t longest, size_t threads, sdk::EpochRows& rows) {
  if (options.counts_loss() && !request.loss_tokens.empty()) {
    return make_loss_items(request, options, order, rows);
  }
  Items items;
  const bool as_given = !request.has_ids && order == "dataloader";
  if (as_given && detail::all_within(request.lengths, longest, threads)) {
    check_request(request);
    items.lengths = request.lengths;
  } else {
    std::vector<int64_t> ids = ordered_ids(request, order);
    refuse_empty(ids, request.lengths);
    std::vector<int64_t> too_long;
    for (const int64_t id : ids) {
      if (request.lengths[static_cast<size_t>(id)] > longest) too_long.push_back(id);
    }
    if (!too_long.empty() && options.over_long == "error") {
      std::sort(too_long.begin(), too_long.end());
      throw sdk::Failure(PLIANT_INVALID_ARGUMENT,
                         explain_pack_over_long(too_long, ids.size(), request.lengths, options, longest));
    }
    if (too_long.empty()) {
      items.own_lengths.resize(ids.size());
      std::transform(ids.begin(), ids.end(), items.own_lengths.begin(),
                     [&](int64_t id) { return request.lengths[static_cast<size_t>(id)]; });
      items.ids = std::move(ids);
    } else {
      fill(items, ids, request.lengths, options, longest, rows);
    }
    items.lengths = items.own_lengths;
  }
  items.sizes = items.lengths;
  if (options.quadratic_length == 0) return items;
  items.own_sizes.resize(items.count());
  std::transform(items.lengths.begin(), items.lengths.end(), items.own_sizes.begin(),
                 [cost = options.cost()](int32_t length) { return static_cast<int32_t>(cost(length)); });
  items.sizes = items.own_sizes;
  return items;
}

}  // namespace pliant::sampler
