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

void save_row(ByteWriter& out, const Row& row);
Row load_row(ByteReader& in);

/// Engine has
///   template <class Emit> void push(const sdk::Entry&, int64_t size, Emit&&);  // emit(Row) for each finished row
///   template <class Emit> void flush(Emit&&);
///   void save(ByteWriter&) const; void load(ByteReader&, const Cost&);         // load checks all it can
///   template <class See> void see_open(See&&) const;                           // every entry that save saves
/// save is called before the first push, and after one that emitted.
///
/// A saved position is where the rows that are ready began to be formed, and how many of them were taken: they are
/// formed again, and compared by a digest. So it takes as many bytes as the packs that were open there.
template <class Engine>
class RowStream {
 public:
  RowStream(const FeedRule& rule, Engine engine) : rule_(rule), engine_(std::move(engine)) {}

  /// What save wrote, not yet open.
  static RowStream load(const FeedRule& rule, Engine engine, const std::string& bytes) {
    RowStream stream(rule, std::move(engine));
    ByteReader in(bytes);
    for (uint64_t* field :
         {&stream.seed_, &stream.epoch_, &stream.total_, &stream.asked_, &stream.taken_, &stream.formed_}) {
      *field = in.number();
    }
    stream.mark_ = std::string(in.rest());
    stream.cursor_ = in.number();
    stream.first_ = in.integer();
    if (stream.cursor_ > stream.asked_) damaged("it has read more sequences than there are");
    stream.resumes_ = true;
    stream.engine_.load(in, rule.cost);
    in.expect_end();
    return stream;
  }
  [[nodiscard]] std::string save() const {
    ByteWriter out;
    for (const uint64_t field : {seed_, epoch_, total_, asked_, taken_, formed_}) out.number(field);
    return out.bytes() + mark_;
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
    if (!resumes_) return mark();
    const uint64_t formed = std::exchange(formed_, 0);
    if (formed == 0) return;
    form_rows();
    if (formed_ != formed) {
      throw sdk::Failure(PLIANT_FAILED_PRECONDITION,
                         "the sequences at the loaded position make other rows than when it was saved; resume with the "
                         "lengths and loss tokens that it was saved with");
    }
    if (taken_ > ready_.size()) damaged("it has taken more rows than there were");
    ready_.erase(ready_.begin(), ready_.begin() + static_cast<std::ptrdiff_t>(taken_));
  }
  const Row* peek() {
    if (ready_.empty()) {
      mark();
      form_rows();
    }
    return ready_.empty() ? nullptr : &ready_.front();
  }
  void take() {
    ready_.pop_front();
    ++taken_;
  }

 private:
  /// From here on rows are formed.
  void mark() {
    ByteWriter out;
    out.number(cursor_);
    out.number(first_);
    engine_.save(out);
    mark_ = out.bytes();
    taken_ = 0;
    formed_ = 0;
  }
  void form_rows() {
    while (ready_.empty() && cursor_ < asked_) read_piece();
    if (ready_.empty() && !engine_.is_empty()) engine_.flush(emitter());
  }
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
                           " that the data set lacks; resume with the lengths that it was saved with");
  }
  auto emitter() {
    return [this](Row row) {
      if (rule_.loss_tokens) {
        for (sdk::Entry& entry : row) entry.piece.count = request_.lengths[static_cast<size_t>(entry.id)];
      }
      for (const sdk::Entry& entry : row) {
        for (const int64_t field : {entry.id, entry.piece.first, entry.piece.count}) {
          formed_ = (formed_ ^ static_cast<uint64_t>(field)) * 0x9e3779b97f4a7c15U + row.size();
        }
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
  /// Pushes the next piece of a sequence.
  void read_piece() {
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
    if (first_ < 0 || first_ >= used) damaged("it has read more of a sequence than there is");
    const sdk::Piece piece{first_, std::min(rule_.longest, used - first_)};
    first_ += piece.count;
    if (first_ == used) {
      ++cursor_;
      first_ = 0;
    }
    engine_.push(sdk::Entry{id, piece}, rule_.cost(piece.count), emitter());
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
  int64_t first_ = 0;    ///< tokens of the next one that were read
  std::string mark_;     ///< where the rows that are ready began to be formed
  uint64_t taken_ = 0;   ///< of those rows
  uint64_t formed_ = 0;  ///< digest of those rows; 0 = none are
  bool resumes_ = false;
  std::deque<Row> ready_;
};

}  // namespace pliant::sampler
