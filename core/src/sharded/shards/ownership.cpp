// Ownership as runs in the order of chunks.
#include "sharded/shards/ownership.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <optional>

#include "base/printable.hpp"
#include "data/digest.hpp"

namespace pliant::sharded {

namespace {

Result<> check_sizes(int64_t chunks, int64_t world_size) {
  if (world_size < 1 || world_size > Ownership::kMostRanks) {
    return failed(Status::kInvalidArgument,
                  fmt::format("world size {} cannot own a model; allowed: 1 to {}", world_size, Ownership::kMostRanks));
  }
  if (chunks < 0 || chunks > FlatLayout::kMostChunks) {
    return failed(Status::kInvalidArgument, fmt::format("{} chunks cannot be owned; a model has 0 to {} chunks", chunks,
                                                        FlatLayout::kMostChunks));
  }
  return {};
}

/// Takes words off the front of a line in which one space stands between two.
class Words {
 public:
  explicit Words(std::string_view line) : rest_(line) {}

  [[nodiscard]] bool at_end() const { return at_end_; }
  std::string_view next() {
    const size_t space = rest_.find(' ');
    const std::string_view word = rest_.substr(0, space);
    at_end_ = space == std::string_view::npos;
    rest_.remove_prefix(at_end_ ? rest_.size() : space + 1);
    return word;
  }
  bool is(std::string_view word) { return !at_end_ && next() == word; }
  std::optional<int64_t> number() { return at_end_ ? std::nullopt : number_in(next()); }

  static std::optional<int64_t> number_in(std::string_view word) {
    int64_t value = 0;
    const auto [end, fault] = std::from_chars(word.data(), word.data() + word.size(), value);
    const bool is_canonical = word == "0" || (!word.empty() && word.front() >= '1' && word.front() <= '9');
    if (fault != std::errc() || end != word.data() + word.size() || !is_canonical) return std::nullopt;
    return value;
  }

 private:
  std::string_view rest_;
  bool at_end_ = false;
};

tl::unexpected<Error> no_map(std::string_view text, std::string_view reason) {
  constexpr size_t kShown = 60;
  return failed(Status::kDataLoss, fmt::format("a map of owners is damaged: {}; it begins '{}'", reason,
                                               printable(text.substr(0, kShown))));
}

}  // namespace

Result<Ownership> Ownership::deal(int32_t chunks, int32_t world_size, int64_t epoch, std::span<const int32_t> ends) {
  if (Result<> right = check_sizes(chunks, world_size); !right) return failed(std::move(right));
  const std::array<int32_t, 1> all{chunks};
  if (ends.empty()) ends = all;
  std::vector<Run> runs;
  int32_t begin = 0;
  int32_t turn = 0;  // who gets a chunk that is over: the last ranks first
  for (const int32_t end : ends) {
    if (end < begin || end > chunks) break;
    const int32_t each = (end - begin) / world_size;
    const int32_t over = (end - begin) % world_size;
    for (int32_t rank = 0; rank < world_size; ++rank) {
      const int32_t place = world_size - 1 - rank - turn;
      const int32_t count = each + ((place < 0 ? place + world_size : place) < over ? 1 : 0);
      if (count > 0) runs.push_back({count, rank});
    }
    turn = static_cast<int32_t>((int64_t{turn} + over) % world_size);
    begin = end;
  }
  if (begin != chunks) {
    return failed(Status::kInvalidArgument,
                  fmt::format("segments that end at {} do not match {} chunks", begin, chunks));
  }
  return of_runs(runs, world_size, epoch);
}

Result<Ownership> Ownership::of_runs(std::span<const Run> runs, int32_t world_size, int64_t epoch) {
  if (Result<> right = check_sizes(0, world_size); !right) return failed(std::move(right));
  if (epoch < 0) return failed(Status::kInvalidArgument, fmt::format("{} is not an epoch; the first is 0", epoch));
  Ownership map;
  map.epoch_ = epoch;
  map.held_.assign(static_cast<size_t>(world_size), 0);
  for (const Run& run : runs) {
    if (run.count < 1 || run.count > FlatLayout::kMostChunks - map.chunks_) {
      return failed(Status::kInvalidArgument,
                    fmt::format("a run of {} chunks after {} is not valid; a model has up to {} chunks", run.count,
                                map.chunks_, FlatLayout::kMostChunks));
    }
    if (run.owner < 0 || run.owner >= world_size) {
      return failed(Status::kInvalidArgument,
                    fmt::format("rank {} cannot own chunks in a world of {}", run.owner, world_size));
    }
    int32_t& held = map.held_[static_cast<size_t>(run.owner)];
    if (!map.runs_.empty() && map.runs_.back().owner == run.owner) {
      map.runs_.back().chunks.count += run.count;
    } else {
      map.runs_.push_back({{static_cast<ChunkId>(map.chunks_), run.count}, run.owner, held});
    }
    held += run.count;
    map.chunks_ += run.count;
  }
  return map;
}

size_t Ownership::run_at(ChunkId chunk) const {
  const auto after = std::upper_bound(runs_.begin(), runs_.end(), chunk,
                                      [](ChunkId left, const OwnedRun& right) { return left < right.chunks.first; });
  return static_cast<size_t>(after - runs_.begin()) - 1;
}

int32_t Ownership::slot_of(ChunkId chunk) const {
  const OwnedRun& run = runs_[run_at(chunk)];
  return run.slot + static_cast<int32_t>(chunk) - static_cast<int32_t>(run.chunks.first);
}

std::vector<OwnedRun> Ownership::runs_of(int32_t rank) const {
  std::vector<OwnedRun> runs;
  std::copy_if(runs_.begin(), runs_.end(), std::back_inserter(runs),
               [rank](const OwnedRun& run) { return run.owner == rank; });
  return runs;
}

std::vector<OwnedRun> Ownership::runs_in(ChunkRange chunks) const {
  std::vector<OwnedRun> found;
  if (chunks.count <= 0) return found;
  const auto begin = static_cast<int32_t>(chunks.first);
  const int32_t end = begin + chunks.count;
  for (size_t i = run_at(chunks.first); i < runs_.size(); ++i) {
    const OwnedRun& run = runs_[i];
    const auto first = static_cast<int32_t>(run.chunks.first);
    if (first >= end) break;
    const int32_t from = std::max(first, begin);
    const int32_t to = std::min(first + run.chunks.count, end);
    found.push_back({{static_cast<ChunkId>(from), to - from}, run.owner, run.slot + from - first});
  }
  return found;
}

std::vector<ShardPiece> Ownership::pieces_of(const FlatLayout& layout, FlatRange range) const {
  std::vector<ShardPiece> pieces;
  for (const OwnedRun& run : runs_in(layout.chunks_of(range))) {
    const FlatRange whole = layout.range_of(run.chunks);
    const int64_t first = std::max(whole.first, range.first);
    const int64_t end = std::min(whole.end(), range.end());
    const int64_t shard = int64_t{run.slot} * layout.chunk_elements();
    pieces.push_back({{first, end - first}, run.owner, shard + first - whole.first});
  }
  return pieces;
}

std::string Ownership::save() const {
  std::string text = fmt::format("pliant-ownership 1 epoch {} ranks {} chunks {} runs", epoch_, world_size(), chunks_);
  for (const OwnedRun& run : runs_) text += fmt::format(" {}:{}", run.chunks.count, run.owner);
  return text;
}

Result<Ownership> Ownership::load(std::string_view text) {
  Words words(text);
  if (!words.is("pliant-ownership")) return no_map(text, "it does not begin with a map's header");
  if (!words.is("1")) return no_map(text, "its format is not 1");
  const bool has_epoch = words.is("epoch");
  const std::optional<int64_t> epoch = words.number();
  const bool has_ranks = words.is("ranks");
  const std::optional<int64_t> ranks = words.number();
  const bool has_chunks = words.is("chunks");
  const std::optional<int64_t> chunks = words.number();
  if (!has_epoch || !epoch || !has_ranks || !ranks || !has_chunks || !chunks || !words.is("runs")) {
    return no_map(text, "its epoch, ranks or chunks are missing");
  }
  if (Result<> right = check_sizes(*chunks, *ranks); !right) return no_map(text, right.error().message());
  std::vector<Run> runs;
  while (!words.at_end()) {
    const std::string_view word = words.next();
    const size_t colon = word.find(':');
    const std::optional<int64_t> count = Words::number_in(word.substr(0, colon));
    const std::optional<int64_t> owner =
        colon == std::string_view::npos ? std::nullopt : Words::number_in(word.substr(colon + 1));
    if (!count || !owner || *count > *chunks || *owner >= *ranks) {
      return no_map(text, fmt::format("'{}' is not a run of chunks", printable(word)));
    }
    runs.push_back({static_cast<int32_t>(*count), static_cast<int32_t>(*owner)});
  }
  Result<Ownership> map = of_runs(runs, static_cast<int32_t>(*ranks), *epoch);
  if (!map) return no_map(text, map.error().message());
  if (map->chunks_ != *chunks) {
    return no_map(text, fmt::format("its runs hold {} of {} chunks", map->chunks_, *chunks));
  }
  if (map->runs_.size() != runs.size()) return no_map(text, "two adjacent runs have the same owner");
  return map;
}

uint64_t Ownership::digest() const {
  data::Digest digest;
  digest.add(save());
  return digest.value();
}

}  // namespace pliant::sharded
