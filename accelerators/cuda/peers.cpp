// Watches, compares and tells.
#include "peers.hpp"

#include <algorithm>
#include <string>

namespace pliant::cuda {

using accelerator::CallKind;
using accelerator::FailureCause;
using accelerator::ProcessId;
using sdk::Failure;

namespace {

std::string words_of(const CallNote& note) {
  accelerator::CallRecord record{};
  record.kind = static_cast<int32_t>(note.kind);
  record.dtype = static_cast<int32_t>(note.dtype);
  const bool reduces = note.kind == CallKind::kAllReduce || note.kind == CallKind::kReduceScatter;
  record.op = reduces ? static_cast<int32_t>(note.op) : 0;
  record.root = note.rank;
  record.count = note.count;
  return accelerator::describe(record);
}

bool is_message(const CallNote& note) {
  return note.kind == CallKind::kSend || note.kind == CallKind::kRecv;
}

std::string elements_of(const CallNote& note) {
  return std::to_string(note.count) + " " + sdk::name_of(note.dtype);
}

}  // namespace

Peers::Peers(int32_t rank) : rank_(rank) {
  try {
    page_ = std::make_unique<PeerPage>();
  } catch (const Failure&) {
    page_.reset();  // the communicator works without
  }
}

void Peers::meet(std::span<const PageName> names, accelerator::ProcessWatch& watch) {
  if (!page_) return;
  const PageName& own = page_->name();
  size_t place = 0;
  for (size_t r = 0; r < names.size(); ++r) {
    const PageName& name = names[r];
    if (name.process == 0 || name.pid_space != own.pid_space || name.layout != own.layout) continue;
    const size_t its_place = place++;
    if (static_cast<int32_t>(r) == rank_) {
      place_ = its_place;
      continue;
    }
    auto other = std::make_unique<Other>();
    other->rank = static_cast<int32_t>(r);
    other->place = its_place;
    other->page = PeerPage::open(name);
    if (other->page) others_.push_back(std::move(other));
  }
  if (others_.empty()) return;
  const auto next = std::find_if(others_.begin(), others_.end(), [this](const auto& one) { return one->rank > rank_; });
  neighbours_.push_back(next == others_.end() ? others_.front().get() : next->get());
  neighbours_.push_back(next == others_.begin() ? others_.back().get() : std::prev(next)->get());
  if (neighbours_.front() == neighbours_.back()) neighbours_.pop_back();
  for (const auto& other : others_) {
    const uint64_t process = other->page->name().process;
    if (process == own.process) continue;  // its threads end with this one's
    try {
      watch.watch(ProcessId::unpack(process), weak_from_this());
    } catch (const Failure&) {
      return;  // for want of a descriptor; NCCL still tells
    }
  }
}

const Peers::Other* Peers::at(int32_t rank) const {
  const auto found = std::find_if(others_.begin(), others_.end(), [&](const auto& one) { return one->rank == rank; });
  return found == others_.end() ? nullptr : found->get();
}

Peers::Noted Peers::show(const CallNote& call) {
  PeerPage::Words& words = page_->words();
  if (!is_message(call)) return {call, words.collectives.post(call)};
  const Other* other = at(call.rank);
  if (other == nullptr || other->place >= PeerPage::kMostPeers) return {call, 0};
  auto& rings = call.kind == CallKind::kSend ? words.sent : words.received;
  return {call, rings[other->place].post(call)};
}

void Peers::note(std::span<const CallNote> calls) {
  if (others_.empty()) return;
  std::vector<Noted> noted;
  noted.reserve(calls.size());
  for (const CallNote& call : calls) noted.push_back(show(call));
  for (const Noted& one : noted) {
    if (!is_message(one.note)) {
      for (const Other* other : neighbours_) compare(one, *other);
    } else if (const Other* other = at(one.note.rank); other != nullptr) {
      compare_messages(one, *other);
    }
  }
}

void Peers::compare(const Noted& own, const Other& other) {
  const auto theirs = other.page->words().collectives.at(own.number);
  if (!theirs) return;
  const auto mine = page_->words().collectives.at(own.number);
  const std::string self = "rank " + std::to_string(rank_);
  const std::string them = "rank " + std::to_string(other.rank);
  if (!(theirs->note == own.note)) {
    differ(other, "the ranks called different collectives: " + self + " " + words_of(own.note) + ", " + them + " " +
                      words_of(theirs->note));
  }
  if (mine && mine->history != theirs->history) {
    differ(other, "before this " + words_of(own.note) + ", " + self + " and " + them +
                      " called different collectives; all ranks must make the same calls");
  }
}

void Peers::compare_messages(const Noted& own, const Other& other) {
  if (other.place >= PeerPage::kMostPeers || place_ >= PeerPage::kMostPeers) return;
  const bool sends = own.note.kind == CallKind::kSend;
  const PeerPage::Words& words = other.page->words();
  const auto theirs = (sends ? words.received : words.sent)[place_].at(own.number);
  if (!theirs || (theirs->note.count == own.note.count && theirs->note.dtype == own.note.dtype)) return;
  const CallNote& sent = sends ? own.note : theirs->note;
  const CallNote& wanted = sends ? theirs->note : own.note;
  differ(other, "rank " + std::to_string(sends ? rank_ : other.rank) + " sent " + elements_of(sent) + ", but rank " +
                    std::to_string(sends ? other.rank : rank_) + " receives " + elements_of(wanted) +
                    "; both must name the same number and type");
}

void Peers::differ(const Other& other, const std::string& words) {
  const Failure failure = Failure(PLIANT_INVALID_ARGUMENT, words).about_rank(other.rank);
  uint64_t none = 0;
  page_->words().cause.compare_exchange_strong(none, FailureCause{FailureCause::kMismatch, rank_, other.rank}.packed());
  throw Failure(failure);
}

std::optional<Failure> Peers::found(bool also_ends) const {
  std::optional<Failure> end;
  for (const auto& other : others_) {
    const PeerPage::Words& words = other->page->words();
    const bool has_ended = other->has_ended;  // before its words, which are the last then
    const FailureCause cause = FailureCause::unpack(words.cause.load());
    const FailureCause died{FailureCause::kDied, other->rank, ProcessId::unpack(other->page->name().process).pid};
    if (cause.kind == FailureCause::kMismatch) {
      return cause.to_failure(rank_).about_rank(cause.detail == rank_ ? other->rank : cause.detail);
    }
    if (cause.kind == FailureCause::kDied && cause.rank != rank_) return cause.to_failure(rank_);
    if (cause.kind == FailureCause::kNone && has_ended && words.has_left.load() == 0) return died.to_failure(rank_);
    const bool gave_up = cause.kind == FailureCause::kAborted || cause.kind == FailureCause::kLeft;
    if (gave_up && !end) end = cause.to_failure(rank_);
    if (cause.kind == FailureCause::kNone && words.has_left.load() != 0 && !end) {
      end = FailureCause{FailureCause::kLeft, other->rank, 0}.to_failure(rank_);
    }
  }
  return also_ends ? end : std::nullopt;
}

void Peers::tell(const Failure& failure, FailureCause::Kind own) {
  if (!page_) return;
  FailureCause cause{own, rank_, 0};
  if (own == FailureCause::kNone) {
    const Other* lost = failure.status() == PLIANT_PEER_LOST ? at(failure.rank()) : nullptr;
    // That there was one keeps the end of this process from being taken for the cause.
    cause = FailureCause{FailureCause::kDisconnected, -1, 0};
    if (lost != nullptr) {
      cause = {FailureCause::kDied, lost->rank, ProcessId::unpack(lost->page->name().process).pid};
    }
  }
  uint64_t none = 0;
  page_->words().cause.compare_exchange_strong(none, cause.packed());
}

void Peers::leave() {
  if (page_) page_->words().has_left = 1;
}

void Peers::ended(const ProcessId& process) {
  for (const auto& other : others_) {
    if (other->page->name().process == process.packed()) other->has_ended = true;
  }
}

}  // namespace pliant::cuda
