// RowStream: reads sequences in order, hands them to an engine that forms rows, and can be saved between any two rows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "items.hpp"
#include "order.hpp"
#include "pack_options.hpp"
#include "pliant/sdk/row_stream.hpp"
#include "stream_state.hpp"

namespace pliant::sampler {

using Row = std::vector<sdk::Entry>;

/// How sequences reach the engine.
struct FeedRule {
  int64_t longest = 0;  ///< tokens of a piece
  Cost cost;
  std::string over_long;     ///< error, truncate or split
  bool loss_tokens = false;  ///< sequences count their loss tokens; over_long is error, and cost that of tokens
};

inline void save_row(ByteWriter& out, const Row& row) {
  out.number(uint64_t{row.size()});
  for (const sdk::Entry& entry : row) {
    out.number(entry.id);
    out.number(entry.piece.first);
    out.number(entry.piece.count);
  }
}
inline Row load_row(ByteReader& in) {
  Row row(in.count(3 * sizeof(uint64_t)));
  for (sdk::Entry& entry : row) {
    entry.id = in.integer();
    entry.piece.first = in.integer();
    entry.piece.count = in.integer();
    if (entry.id < 0 || entry.piece.first < 0 || entry.piece.count < 1) damaged("an entry that is none");
  }
  return row;
}

/// Engine has
///   template <class Emit> void push(const sdk::Entry&, int64_t size, Emit&&);  // emit(Row) for each finished row
///   template <class Emit> void flush(Emit&&);
///   void save(ByteWriter&) const; void load(ByteReader&, const Cost&);         // load checks all it can
///   template <class See> void see_open(See&&) const;                           // every entry that is not in a row yet
template <class Engine>
class RowStream {
 public:
  RowStream(const FeedRule& rule, Engine engine) : rule_(rule), engine_(std::move(engine)) {}

  /// What save wrote, not yet open.
  static RowStream load(const FeedRule& rule, Engine engine, const std::string& bytes) {
    RowStream stream(rule, std::move(engine));
    ByteReader in(bytes);
    for (uint64_t* field : {&stream.seed_, &stream.epoch_, &stream.total_, &stream.asked_, &stream.cursor_}) {
      *field = in.number();
    }
    if (stream.cursor_ > stream.asked_) damaged("it has read more sequences than there are");
    stream.resumes_ = true;
    for (uint64_t rows = in.count(sizeof(uint64_t)); rows > 0; --rows) {
      stream.ready_.push_back(load_row(in));
      if (stream.ready_.back().empty()) damaged("a row without sequences");
    }
    stream.engine_.load(in, rule.cost);
    in.expect_end();
    return stream;
  }
  [[nodiscard]] std::string save() const {
    ByteWriter out;
    for (const uint64_t field : {seed_, epoch_, total_, asked_, cursor_}) out.number(field);
    out.number(uint64_t{ready_.size()});
    for (const Row& row : ready_) save_row(out, row);
    engine_.save(out);
    return out.bytes();
  }

  /// A failure leaves it as it was.
  void open(const sdk::EpochRequest& request) {
    check_request(request);
    const uint64_t asked = request.has_ids ? request.ids.size() : request.lengths.size();
    if (resumes_) {
      if (seed_ != request.seed || epoch_ != static_cast<uint64_t>(request.epoch) || total_ != request.lengths.size() ||
          asked_ != asked) {
        throw sdk::Failure(PLIANT_FAILED_PRECONDITION,
                           "the loaded state is a position in epoch " + std::to_string(epoch_) + " of " +
                               std::to_string(asked_) + " sequences with seed " + std::to_string(seed_) +
                               "; this is epoch " + std::to_string(request.epoch) + " of " + std::to_string(asked) +
                               " with seed " + std::to_string(request.seed));
      }
      for (const Row& row : ready_) {
        for (const sdk::Entry& entry : row) check_entry(entry, request.lengths);
      }
      engine_.see_open([&](const sdk::Entry& entry) {
        check_entry(entry, request.lengths);
        if (rule_.loss_tokens && entry.piece != sdk::Piece{0, size_of(entry.id, request)}) refuse_entry(entry);
      });
    }
    seed_ = request.seed;
    epoch_ = static_cast<uint64_t>(request.epoch);
    total_ = request.lengths.size();
    asked_ = asked;
    request_ = request;
  }
  const Row* peek() {
    while (ready_.empty() && cursor_ < asked_) read_one();
    if (ready_.empty() && !engine_.is_empty()) engine_.flush(emitter());
    return ready_.empty() ? nullptr : &ready_.front();
  }
  void take() { ready_.pop_front(); }

 private:
  static void check_entry(const sdk::Entry& entry, std::span<const int32_t> lengths) {
    if (static_cast<uint64_t>(entry.id) < lengths.size() &&
        entry.piece.count <= lengths[static_cast<size_t>(entry.id)] - entry.piece.first) {
      return;
    }
    refuse_entry(entry);
  }
  [[noreturn]] static void refuse_entry(const sdk::Entry& entry) {
    throw sdk::Failure(PLIANT_FAILED_PRECONDITION,
                       "the loaded state has a piece of sequence " + std::to_string(entry.id) +
                           " that the data set does not have; resume with the lengths that it was saved with");
  }
  auto emitter() {
    return [this](Row row) {
      if (rule_.loss_tokens) {
        for (sdk::Entry& entry : row) entry.piece.count = request_.lengths[static_cast<size_t>(entry.id)];
      }
      ready_.push_back(std::move(row));
    };
  }
  /// What a sequence that stays whole counts where loss tokens do.
  static int64_t size_of(int64_t id, const sdk::EpochRequest& request) {
    return request.loss_tokens.empty() ? request.lengths[static_cast<size_t>(id)] : loss_size(request.loss_tokens, id);
  }
  [[noreturn]] static void refuse(int64_t id, const std::string& has) {
    throw sdk::Failure(PLIANT_INVALID_ARGUMENT, "sequence " + std::to_string(id) + " has " + has);
  }
  void read_one() {
    const int64_t id = request_.has_ids ? request_.ids[cursor_] : static_cast<int64_t>(cursor_);
    if (id < 0 || static_cast<uint64_t>(id) >= total_) {
      throw sdk::Failure(PLIANT_OUT_OF_RANGE, "sequence id " + std::to_string(id) + ": the data set has " +
                                                  std::to_string(total_) + " sequences, ids from 0");
    }
    const int64_t length = request_.lengths[static_cast<size_t>(id)];
    if (length < 1) refuse(id, "a length of " + std::to_string(length) + " tokens");
    if (rule_.loss_tokens) return take_whole(id, length);
    int64_t used = length;
    if (length > rule_.longest) {
      if (rule_.over_long == "error") {
        refuse(id, std::to_string(length) + " tokens, " + std::to_string(rule_.longest) +
                       " fit a pack. Raise max_tokens, or set over_long = \"split\" or \"truncate\"");
      }
      if (rule_.over_long == "truncate") used = rule_.longest;
    }
    ++cursor_;
    for (int64_t first = 0; first < used;) {
      const int64_t count = std::min(rule_.longest, used - first);
      engine_.push(sdk::Entry{id, {first, count}}, rule_.cost(count), emitter());
      first += count;
    }
  }

  /// The engine sees a piece of as many tokens as the sequence counts; the row gets the sequence.
  void take_whole(int64_t id, int64_t length) {
    if (!request_.loss_tokens.empty()) {
      check_loss_tokens(id, request_.loss_tokens[static_cast<size_t>(id)], length);
    }
    const int64_t size = size_of(id, request_);
    if (size > rule_.longest) {
      refuse(id,
             std::to_string(size) + " loss tokens, " + std::to_string(rule_.longest) + " fit a pack. Raise max_tokens");
    }
    ++cursor_;
    engine_.push(sdk::Entry{id, {0, size}}, size, emitter());
  }

  FeedRule rule_;
  Engine engine_;
  sdk::EpochRequest request_;
  uint64_t seed_ = 0;
  uint64_t epoch_ = 0;
  uint64_t total_ = 0;
  uint64_t asked_ = 0;
  uint64_t cursor_ = 0;  ///< sequences that were read
  bool resumes_ = false;
  std::deque<Row> ready_;
};

}  // namespace pliant::sampler
