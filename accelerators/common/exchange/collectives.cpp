// Drives an exchange: does whatever can be done now, and sleeps when nothing can.
#include "common/exchange/collectives.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "common/exchange/direct_exchange.hpp"
#include "common/exchange/exchange.hpp"

namespace pliant::accelerator {

using sdk::Failure;

namespace {

const char* name_of(CallKind kind) {
  switch (kind) {
    case CallKind::kAllReduce:
      return "all_reduce";
    case CallKind::kAllGather:
      return "all_gather";
    case CallKind::kReduceScatter:
      return "reduce_scatter";
    case CallKind::kBroadcast:
      return "broadcast";
    case CallKind::kBarrier:
      return "barrier";
    case CallKind::kAllGatherV:
      return "all_gather_v";
    case CallKind::kSend:
      return "send";
    case CallKind::kRecv:
      return "recv";
    case CallKind::kWindow:
      return "register_window";
    case CallKind::kGatherPieces:
      return "gather_pieces";
    case CallKind::kScatterPieces:
      return "scatter_pieces";
  }
  return "an unknown collective";
}

}  // namespace

std::string describe(const CallRecord& call) {
  const auto kind = static_cast<CallKind>(call.kind);
  std::string text = name_of(kind);
  if (kind == CallKind::kBarrier) return text;
  text += " of " + std::to_string(call.count) + " " + sdk::name_of(static_cast<sdk::DType>(call.dtype));
  if (call.op != 0) text += std::string(" (") + sdk::name_of(static_cast<sdk::ReduceOp>(call.op)) + ")";
  if (kind == CallKind::kBroadcast) text += " from rank " + std::to_string(call.root);
  if (call.place != 0 && kind != CallKind::kScatterPieces) {
    const Windows::Place place = Windows::Place::unpack(call.place);
    text += " at byte " + std::to_string(place.offset) + " of window " + std::to_string(place.window);
  }
  if (kind == CallKind::kAllGatherV) text += " in all (counts of the ranks: digest " + std::to_string(call.root) + ")";
  if (kind == CallKind::kGatherPieces || kind == CallKind::kScatterPieces)
    text += " in all (pieces: digest " + std::to_string(call.root) + ")";
  return text;
}

int32_t digest(const sdk::PieceTable& pieces, std::span<const uint8_t> adds) {
  uint64_t hash = pieces.digest();
  for (const uint8_t one : adds) hash = (hash ^ (one != 0 ? 1U : 0U)) * 0x9e3779b97f4a7c15ULL + (hash >> 29U);
  return static_cast<int32_t>(hash >> 33U);
}

namespace {

CallRecord record_of(const Call& call, uint64_t history, const Places& places) {
  CallRecord made{};
  made.history = history;
  made.place = places.common;
  made.source = places.source;
  made.kind = static_cast<int32_t>(call.kind);
  if (call.kind == CallKind::kBarrier) return made;
  made.count = call.elements.count;
  made.dtype = static_cast<int32_t>(call.elements.dtype);
  if (call.kind == CallKind::kAllReduce || call.kind == CallKind::kReduceScatter)
    made.op = static_cast<int32_t>(call.op);
  if (call.kind == CallKind::kBroadcast) made.root = call.rank;
  if (call.pieces != nullptr) {
    made.count = call.pieces->total();
    made.root = digest(*call.pieces, call.adds);
  }
  return made;
}

bool same_call(const CallRecord& a, const CallRecord& b) {
  return a.count == b.count && a.kind == b.kind && a.dtype == b.dtype && a.op == b.op && a.root == b.root &&
         a.place == b.place;
}

uint64_t digest(const CallRecord& call) {
  uint64_t hash = call.history + 1;
  for (const uint64_t word : {call.count, static_cast<uint64_t>(call.kind), static_cast<uint64_t>(call.dtype),
                              static_cast<uint64_t>(call.op), static_cast<uint64_t>(call.root), call.place}) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 29U;
  }
  return hash;
}

/// What of one tick goes to whom.
class TickParcels final : public Parcels {
 public:
  TickParcels(const Exchange& exchange, int32_t own, Stage stage, uint64_t tick)
      : exchange_(exchange), own_(own), stage_(stage), tick_(tick) {}
  [[nodiscard]] bool concerns(int32_t) const override {
    const bool all_take = exchange_.source() < 0 || exchange_.source() == own_;
    return stage_ != Stage::kPosted || all_take || tick_ == 0;  // the first shows which call this is
  }
  [[nodiscard]] ByteRange of(int32_t peer) const override {
    return stage_ == Stage::kPosted ? exchange_.posted_for(peer, tick_) : exchange_.reduced_for(peer, tick_);
  }

 private:
  const Exchange& exchange_;
  const int32_t own_;
  const Stage stage_;
  const uint64_t tick_;
};

/// One call under way.
class Run {
 public:
  Run(Group& group, Exchange& exchange, const CallRecord& record, uint64_t first_tick)
      : group_(group), exchange_(exchange), record_(record), first_(first_tick), ticks_(exchange.ticks()) {}

  void go() {
    while (taken_ < ticks_) {
      group_.check_own();
      if (!post() && !reduce() && !take()) wait();
    }
    if (exchange_.leaves_together()) group_.await(Group::kEveryone, Stage::kTaken, first_ + ticks_, true);
  }

 private:
  /// A slot may be filled again when everyone has taken what was in it.
  [[nodiscard]] uint64_t taken_before_post() const {
    const uint64_t tick = first_ + posted_ + 1;
    return tick > kSlots ? tick - kSlots : 0;
  }
  bool post() {
    if (posted_ == ticks_ || posted_ - taken_ == kSlots || group_.laggard(Stage::kTaken, taken_before_post()) >= 0)
      return false;
    group_.segment().call(group_.rank(), first_ + posted_) = record_;
    exchange_.post(posted_);
    const TickParcels parcels(exchange_, group_.rank(), Stage::kPosted, posted_);
    group_.publish(Stage::kPosted, first_ + ++posted_, &parcels);
    return true;
  }
  /// The first of those whose post is needed that has not posted `tick`; -1 when all have.
  [[nodiscard]] int32_t missing_post(uint64_t tick) const {
    const int32_t source = exchange_.source();
    if (source < 0) return group_.laggard(Stage::kPosted, first_ + tick + 1);
    return source == group_.rank() || group_.progress(source, Stage::kPosted) >= first_ + tick + 1 ? -1 : source;
  }
  bool reduce() {
    if (reduced_ == posted_ || missing_post(reduced_) >= 0) return false;
    if (reduced_ == 0) compare();
    if (exchange_.reduces()) {
      exchange_.reduce(reduced_);
      const TickParcels parcels(exchange_, group_.rank(), Stage::kReduced, reduced_);
      group_.publish(Stage::kReduced, first_ + reduced_ + 1, &parcels);
    }
    ++reduced_;
    return true;
  }
  bool take() {
    if (taken_ == reduced_) return false;
    if (exchange_.reduces() && group_.laggard(Stage::kReduced, first_ + taken_ + 1) >= 0) return false;
    exchange_.take(taken_);
    group_.publish(Stage::kTaken, first_ + ++taken_);
    return true;
  }
  /// The latest stage that has begun is the one that the others wait for, too.
  void wait() {
    const int32_t source = exchange_.source();
    const bool soon = ticks_ == 1;
    if (taken_ < reduced_) return group_.await(Group::kEveryone, Stage::kReduced, first_ + taken_ + 1, soon);
    if (reduced_ < posted_)
      return group_.await(source < 0 ? Group::kEveryone : source, Stage::kPosted, first_ + reduced_ + posts_at_once(),
                          soon);
    group_.await(Group::kEveryone, Stage::kTaken, taken_before_post(), soon);
  }

  /// Posts of each other rank to sleep for. Where ranks share processors, a rank that is woken for every post of the
  /// others only takes the processor from them. No more than it has posted itself: so the rank that has posted least
  /// never sleeps for a post. With a reduction others may need this rank in between.
  [[nodiscard]] uint64_t posts_at_once() const {
    return group_.crowded() && !exchange_.reduces() ? posted_ - reduced_ : 1;
  }

  /// All ranks must be in the same call, and have come here by the same calls.
  void compare() {
    for (int32_t r = 0; r < group_.world_size(); ++r) {
      if (r == group_.rank() || (exchange_.source() >= 0 && r != exchange_.source())) continue;
      const CallRecord theirs = group_.segment().call(r, first_);
      if (same_call(theirs, record_) && theirs.history == record_.history) continue;
      const std::string own = "rank " + std::to_string(group_.rank());
      const std::string other = "rank " + std::to_string(r);
      if (same_call(theirs, record_)) {
        group_.fail_for_mismatch(r, "before this " + describe(record_) + ", " + own + " and " + other +
                                        " called different collectives; all ranks must make the same calls");
      }
      group_.fail_for_mismatch(r, "the ranks called different collectives: " + own + " " + describe(record_) + ", " +
                                      other + " " + describe(theirs));
    }
  }

  Group& group_;
  Exchange& exchange_;
  const CallRecord record_;
  const uint64_t first_;
  const uint64_t ticks_;
  uint64_t posted_ = 0;
  uint64_t reduced_ = 0;
  uint64_t taken_ = 0;
};

}  // namespace

void Collectives::run(const Call& call) {
  try {
    exchange(call);
    if (call.kind == CallKind::kWindow && group_.world_size() > 1) make_window(call);
  } catch (const Failure&) {
    if (is_read_) group_.give_up();  // before the caller hears of it, and uses what others may be reading
    throw;
  } catch (...) {
    group_.give_up();  // this rank is at another place of the call than the others, for good
    throw;
  }
}

void Collectives::exchange(const Call& call) {
  group_.check();
  if (group_.world_size() == 1) return run_alone(call);
  const Places places = Places::of(call, windows_, group_.rank(), group_.world_size());
  const CallRecord record = record_of(call, history_, places);
  const auto run = [&](Exchange& exchange) {
    Run(group_, exchange, record, tick_).go();
    tick_ += exchange.ticks();
  };
  const auto direct = DirectExchange::of(call, places, windows_, group_, tick_);
  if (direct) {
    is_read_ = true;
    run(*direct);
    is_read_ = false;
  }
  if (!direct || !direct->has_happened()) run(*Exchange::of(call, group_, tick_));
  history_ = digest(record);
}

void Collectives::run_alone(const Call& call) {
  if (call.kind == CallKind::kScatterPieces || call.send == nullptr) return;  // nobody else, or in place
  if (!call.gathers_pieces()) {
    if (call.send != call.recv && call.elements.count != 0) std::memmove(call.recv, call.send, call.elements.bytes());
    return;
  }
  const uint64_t width = sdk::size_of(call.elements.dtype);
  const auto* const from = static_cast<const std::byte*>(call.send);
  auto* const to = static_cast<std::byte*>(call.recv);
  for (const sdk::PieceTable::Piece& one : call.pieces->of(0)) {
    std::memmove(to + one.offset * width, from + one.packed * width, one.count * width);
  }
}

void Collectives::make_window(const Call& call) {
  using Card = ExchangeMemory::Card;
  const auto gather = [this](const void* send, void* recv, uint64_t bytes) {
    exchange({.kind = CallKind::kAllGather, .send = send, .recv = recv, .elements = {bytes, sdk::DType::kU8}});
  };
  if (call.windows == nullptr) return;  // the same on every rank
  const uint64_t bytes = call.elements.count;
  const Card own = call.windows->card_of(call.recv, bytes);
  const auto ranks = static_cast<size_t>(group_.world_size());
  std::vector<Card> cards(ranks);
  gather(&own, cards.data(), sizeof(Card));
  const uint8_t could = windows_.map(*call.windows, cards, group_.rank(), call.recv, bytes) ? 1 : 0;
  std::vector<uint8_t> all(ranks);
  gather(&could, all.data(), 1);
  windows_.keep(std::find(all.begin(), all.end(), 0) == all.end());
}

}  // namespace pliant::accelerator
