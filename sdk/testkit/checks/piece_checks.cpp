// Collectives of pieces: arrays that lie with several ranks, gathered and scattered by a table.
#include <algorithm>
#include <array>
#include <initializer_list>
#include <memory>
#include <numeric>
#include <utility>

#include "testkit/checks/accelerator_checks.hpp"
#include "testkit/collective_work.hpp"

namespace pliant::testkit {

namespace {

using Table = pliant_collectives;

constexpr uint64_t kTables = 8;
constexpr uint64_t kElsewhere = 100;  ///< of `where`: what lies in memory that is written to

/// Tables that all ranks draw alike; 0: nothing, 1: all of the last rank, 2: one piece of each, side by side, the last
/// one: large.
std::vector<pliant_piece> table_of(const Rank& rank, uint64_t number) {
  const auto ranks = static_cast<uint64_t>(rank.world_size);
  auto draw = [&, index = uint64_t{0}](uint64_t below) mutable {
    return testkit::drawn(rank.seed, 9000 + number, index++) % below;
  };
  std::vector<pliant_piece> made;
  const bool is_large = number == kTables - 1;
  const uint64_t pieces = number == 0 ? 0 : number == 2 ? ranks : 1 + draw(is_large ? ranks : 3 * ranks);
  uint64_t end = number == 2 ? 0 : draw(9);
  for (uint64_t i = 0; i < pieces; ++i) {
    const uint64_t owner = number == 1 ? ranks - 1 : number == 2 ? i : draw(ranks);
    const uint64_t count = draw(5) == 0 ? 0 : 1 + draw(is_large ? 9001 : 67);
    made.push_back({static_cast<int32_t>(owner), 0, end, count});
    end += count;
    if (number != 2 && draw(2) == 0) end += draw(60);
  }
  return made;
}

/// Which of them: all for f32, one for every other type, whose bytes take the same way.
std::vector<uint64_t> tables_for(int32_t dtype) {
  if (dtype != PLIANT_F32) return {6};
  std::vector<uint64_t> all(kTables);
  std::iota(all.begin(), all.end(), uint64_t{0});
  return all;
}

uint64_t end_of_table(const std::vector<pliant_piece>& table) {
  uint64_t end = 0;
  for (const pliant_piece& one : table) end = one.count == 0 ? end : one.offset + one.count;
  return end;
}

uint64_t owned_by(const std::vector<pliant_piece>& table, int32_t rank) {
  uint64_t all = 0;
  for (const pliant_piece& one : table) all += one.rank == rank ? one.count : 0;
  return all;
}

/// see(first byte in the array, first byte among the packed pieces, bytes) for each piece of `rank`.
template <class See>
void each_of(const std::vector<pliant_piece>& table, int32_t rank, uint64_t width, const See& see) {
  uint64_t packed = 0;
  for (const pliant_piece& one : table) {
    if (one.rank != rank) continue;
    see(static_cast<std::ptrdiff_t>(one.offset * width), static_cast<std::ptrdiff_t>(packed * width),
        static_cast<std::ptrdiff_t>(one.count * width));
    packed += one.count;
  }
}

/// What is in memory before anything is exchanged; `where` tells arrays apart.
Bytes piece_contents(const Rank& rank, int32_t dtype, uint64_t count, uint64_t where) {
  return drawn_elements(dtype, count, Draw::kSmall, rank.seed, 8000 + where).bytes();
}

/// Where a rank has its pieces before the gather.
enum class Own { kPacked, kInPlace, kAtItsPlace };

/// One gather_pieces, or scatter_pieces, by one rank.
class PieceWork {
 public:
  PieceWork(const Rank& rank, std::vector<pliant_piece> table, int32_t dtype)
      : rank_(rank), table_(std::move(table)), dtype_(dtype), width_(size_of(dtype)), end_(end_of_table(table_)) {}

  void gather_from(Own own) {
    own_ = own;
    const Bytes whole = piece_contents(rank_, dtype_, end_, 0);
    wanted_ = piece_contents(rank_, dtype_, end_, kElsewhere + static_cast<uint64_t>(rank_.rank));
    Bytes packed(owned_by(table_, rank_.rank) * width_);
    receive_ = std::make_unique<Guarded>(rank_.accelerator, end_ * width_);
    Bytes before = wanted_;
    each_of(table_, rank_.rank, width_, [&](auto at, auto from, auto bytes) {
      std::copy_n(whole.begin() + at, bytes, packed.begin() + from);
      if (own != Own::kPacked) std::copy_n(whole.begin() + at, bytes, before.begin() + at);
    });
    receive_->set(before);
    send_ = std::make_unique<Guarded>(rank_.accelerator, packed.size());
    send_->set(packed);
    sent_ = packed;
    for (int32_t r = 0; r < rank_.world_size; ++r) {
      each_of(table_, r, width_,
              [&](auto at, auto, auto bytes) { std::copy_n(whole.begin() + at, bytes, wanted_.begin() + at); });
    }
  }
  [[nodiscard]] Outcome gather(const Comm& comm, const Stream& stream) const {
    const void* from = own_ == Own::kPacked ? send_->at() : nullptr;
    const auto own = [this](const pliant_piece& one) { return one.rank == rank_.rank && one.count != 0; };
    if (own_ == Own::kAtItsPlace && std::count_if(table_.begin(), table_.end(), own) == 1) {
      from = receive_->at() + std::find_if(table_.begin(), table_.end(), own)->offset * width_;
    }
    void* const to = receive_->at();
    return rank_.accelerator.call(&Table::gather_pieces, comm, from, to, table_.data(), table_.size(), dtype_, stream);
  }

  /// `adds`: by rank.
  void scatter_of(std::vector<uint8_t> adds) {
    adds_ = std::move(adds);
    sent_ = piece_contents(rank_, dtype_, end_, static_cast<uint64_t>(rank_.rank));
    send_ = std::make_unique<Guarded>(rank_.accelerator, sent_.size());
    send_->set(sent_);
    const uint64_t owned = owned_by(table_, rank_.rank);
    wanted_ = piece_contents(rank_, dtype_, owned * static_cast<uint64_t>(rank_.world_size - 1), kElsewhere);
    receive_ = std::make_unique<Guarded>(rank_.accelerator, wanted_.size());
    receive_->set(wanted_);
    std::ptrdiff_t room = 0;
    for (int32_t r = 0; r < rank_.world_size; ++r) {
      if (r == rank_.rank) continue;
      if (adds_[static_cast<size_t>(r)] != 0) {
        const Bytes theirs = piece_contents(rank_, dtype_, end_, static_cast<uint64_t>(r));
        each_of(table_, rank_.rank, width_, [&](auto at, auto packed, auto bytes) {
          std::copy_n(theirs.begin() + at, bytes, wanted_.begin() + room + packed);
        });
      }
      room += static_cast<std::ptrdiff_t>(owned * width_);
    }
  }
  [[nodiscard]] Outcome scatter(const Comm& comm, const Stream& stream) const {
    const void* const from = adds_[static_cast<size_t>(rank_.rank)] != 0 ? send_->at() : nullptr;
    void* const to = receive_->at();
    return rank_.accelerator.call(&Table::scatter_pieces, comm, from, to, table_.data(), table_.size(), adds_.data(),
                                  dtype_, stream);
  }

  void verify(const std::string& what) const {
    const std::string words = what + " of " + std::to_string(table_.size()) + " pieces of " + name_of_type(dtype_) +
                              " at world size " + std::to_string(rank_.world_size);
    const std::string wrong = difference({dtype_, receive_->get(words)}, {dtype_, wanted_});
    expect(wrong.empty(), words + ": " + wrong);
    expect(send_->get(words) == sent_, words + " changed what it sends");
  }

 private:
  const Rank& rank_;
  const std::vector<pliant_piece> table_;
  const int32_t dtype_;
  const uint64_t width_;
  const uint64_t end_;
  Own own_ = Own::kPacked;
  std::vector<uint8_t> adds_;
  std::unique_ptr<Guarded> send_;
  std::unique_ptr<Guarded> receive_;
  Bytes sent_;
  Bytes wanted_;
};

void piece_gather_script(const Rank& rank) {
  const Comm comm(rank, rank.id());
  comm.join();
  const Stream stream(rank.accelerator, rank.rank % rank.accelerator.devices());
  for (const int32_t dtype : kTypes) {
    for (const uint64_t number : tables_for(dtype)) {
      for (const Own own : {Own::kPacked, Own::kInPlace, Own::kAtItsPlace}) {
        if (dtype != PLIANT_F32 && own == Own::kAtItsPlace) continue;
        PieceWork work(rank, table_of(rank, number), dtype);
        work.gather_from(own);
        must("gather_pieces", work.gather(comm, stream));
        stream.wait();
        work.verify(own == Own::kPacked ? "gather_pieces" : "gather_pieces in place");
      }
    }
  }
}

/// Some ranks add, in the first; in the second everyone, nobody or one rank, by the number of the table.
std::vector<std::vector<uint8_t>> adders(const Rank& rank, uint64_t number) {
  const auto ranks = static_cast<size_t>(rank.world_size);
  std::vector<uint8_t> some(ranks);
  for (size_t r = 0; r < ranks; ++r) some[r] = drawn(rank.seed, 9500 + number, r) % 3 == 0 ? 0 : 255;
  std::vector<uint8_t> others(ranks, number % 3 == 0 ? 1 : 0);
  if (number % 3 == 2) others[number % ranks] = 1;
  return {some, others};
}

void piece_scatter_script(const Rank& rank) {
  const Comm comm(rank, rank.id());
  comm.join();
  const Stream stream(rank.accelerator, rank.rank % rank.accelerator.devices());
  for (const int32_t dtype : kTypes) {
    for (const uint64_t number : tables_for(dtype)) {
      for (const std::vector<uint8_t>& adds : adders(rank, number)) {
        PieceWork work(rank, table_of(rank, number), dtype);
        work.scatter_of(adds);
        must("scatter_pieces", work.scatter(comm, stream));
        stream.wait();
        work.verify("scatter_pieces");
      }
    }
  }
}

/// With other collectives and messages, twice.
void piece_group_script(const Rank& rank) {
  const Comm comm(rank, rank.id());
  const Stream stream(rank.accelerator, rank.rank % rank.accelerator.devices());
  for (uint64_t number = 4; number < 6; ++number) {
    PieceWork gathered(rank, table_of(rank, number), PLIANT_F32);
    PieceWork scattered(rank, table_of(rank, number + 1), PLIANT_BF16);
    PieceWork again(rank, table_of(rank, kTables - 1), PLIANT_F32);
    gathered.gather_from(number == 4 ? Own::kPacked : Own::kInPlace);
    scattered.scatter_of(adders(rank, number).front());
    again.gather_from(Own::kPacked);
    const CollectiveWork sum(rank, {Collective::kAllReduce, PLIANT_I32, PLIANT_SUM, 1001});
    const Memory sent(rank.accelerator, 64);
    const Memory received(rank.accelerator, 64);
    const Bytes message = drawn_bytes(rank.seed, 9700 + static_cast<uint64_t>(rank.rank), 64);
    rank.accelerator.write(sent.at(), message.data(), message.size());
    const int32_t after = (rank.rank + 1) % rank.world_size;
    const int32_t before = (rank.rank + rank.world_size - 1) % rank.world_size;
    const void* const from = sent.at();
    void* const to = received.at();
    must("group_begin", rank.accelerator.call(&Table::group_begin, comm));
    must("send", rank.accelerator.call(&Table::send, comm, from, message.size(), PLIANT_U8, after, stream));
    must("gather_pieces", gathered.gather(comm, stream));
    must("scatter_pieces", scattered.scatter(comm, stream));
    must("all_reduce", sum.enqueue(comm, stream));
    must("gather_pieces", again.gather(comm, stream));
    must("recv", rank.accelerator.call(&Table::recv, comm, to, message.size(), PLIANT_U8, before, stream));
    must("group_end", rank.accelerator.call(&Table::group_end, comm));
    stream.wait();
    gathered.verify("gather_pieces in a group");
    scattered.verify("scatter_pieces in a group");
    again.verify("gather_pieces in a group");
    sum.verify();
    Bytes got(message.size());
    rank.accelerator.read(got.data(), to, got.size());
    expect(got == drawn_bytes(rank.seed, 9700 + static_cast<uint64_t>(before), 64),
           "a message beside gather_pieces is not what was sent");
  }
}

void piece_refusal_script(const Rank& rank) {
  const Comm comm(rank, rank.id());
  comm.join();
  const Stream stream(rank.accelerator, rank.rank % rank.accelerator.devices());
  constexpr uint64_t kRoom = 400;  // elements
  const Memory send_memory(rank.accelerator, kRoom * sizeof(float));
  const Memory receive_memory(rank.accelerator, kRoom * sizeof(float));
  const void* const send = send_memory.at();
  void* const receive = receive_memory.at();
  const void* const nothing = nullptr;
  const std::array<uint8_t, 2> both = {1, 1};
  const std::array<uint8_t, 2> nobody = {0, 0};
  const auto refused = [](const std::string& what, const Outcome& outcome) {
    expect(outcome.status == PLIANT_INVALID_ARGUMENT, what + " returned " + outcome.text());
  };
  const auto gather = [&](const void* from, void* to, const std::vector<pliant_piece>& table, int32_t dtype) {
    return rank.accelerator.call(&Table::gather_pieces, comm, from, to, table.data(), table.size(), dtype, stream);
  };
  const auto scatter = [&](const void* from, const std::vector<pliant_piece>& table, const uint8_t* adds) {
    return rank.accelerator.call(&Table::scatter_pieces, comm, from, receive, table.data(), table.size(), adds,
                                 PLIANT_F32, stream);
  };
  const uint64_t far = ~uint64_t{0} - 10;
  const std::initializer_list<std::pair<const char*, std::vector<pliant_piece>>> wrong = {
      {"pieces in descending order", {{0, 0, 50, 10}, {1, 0, 10, 10}}},
      {"pieces that overlap", {{0, 0, 0, 11}, {1, 0, 10, 10}}},
      {"an empty piece in the middle of another", {{0, 0, 0, 11}, {1, 0, 10, 0}}},
      {"a piece of rank -1", {{-1, 0, 0, 10}}},
      {"a piece of a missing rank", {{0, 0, 0, 10}, {2, 0, 10, 10}}},
      {"a piece beyond the address space", {{0, 0, far, 20}}},
      {"a piece of too many elements", {{0, 0, 0, far}}}};
  for (const auto& one : wrong) {
    refused(std::string("gather_pieces of ") + one.first, gather(send, receive, one.second, PLIANT_F32));
    refused(std::string("scatter_pieces of ") + one.first, scatter(send, one.second, both.data()));
  }
  const std::vector<pliant_piece> right = {{0, 0, 0, 10}, {1, 0, 20, 30}};
  const pliant_piece* const no_table = nullptr;
  refused("gather_pieces without a table",
          rank.accelerator.call(&Table::gather_pieces, comm, send, receive, no_table, uint64_t{2}, PLIANT_F32, stream));
  refused("gather_pieces of an unknown type", gather(send, receive, right, 99));
  refused("gather_pieces to NULL", gather(send, nullptr, right, PLIANT_F32));
  refused("gather_pieces from memory that it writes to",
          gather(receive_memory.at(12 * sizeof(float)), receive, right, PLIANT_F32));
  refused("scatter_pieces without the ranks that add", scatter(send, right, nullptr));
  refused("scatter_pieces of a rank that adds NULL", scatter(nothing, right, both.data()));
  refused("scatter_pieces of a rank that does not add, with an array", scatter(send, right, nobody.data()));
  PieceWork work(rank, table_of(rank, 5), PLIANT_F32);
  work.gather_from(Own::kPacked);
  must("gather_pieces after it was refused", work.gather(comm, stream));
  stream.wait();
  work.verify("gather_pieces after it was refused");
}

void need_pieces(const Subject& subject) {
  need_collectives(subject);
  const Accelerator accelerator(subject);
  const Table* const table = accelerator.collectives();
  const bool gathers = table->gather_pieces != nullptr;
  expect(gathers == (table->scatter_pieces != nullptr), "its collectives have one of gather_pieces and scatter_pieces");
  if (!gathers) skip("its collectives have no gather_pieces");
}

void run_pieces(const Subject& subject, const char* script, std::initializer_list<int32_t> world_sizes) {
  need_pieces(subject);
  for (const int32_t world_size : world_sizes) {
    Ranks ranks(subject, script, world_size);
    ranks.carry_id();
    ranks.finish();
  }
}

void pieces_gathered(const Subject& subject) {
  run_pieces(subject, "gather_pieces", {1, 2, 3, 4, 7, 8});
}
void pieces_scattered(const Subject& subject) {
  run_pieces(subject, "scatter_pieces", {1, 2, 3, 4, 7, 8});
}
void pieces_in_groups(const Subject& subject) {
  run_pieces(subject, "pieces_in_group", {1, 3});
}
void pieces_refused(const Subject& subject) {
  run_pieces(subject, "refused_pieces", {2});
}

}  // namespace

std::vector<Script> piece_scripts() {
  return {{"gather_pieces", piece_gather_script},
          {"scatter_pieces", piece_scatter_script},
          {"pieces_in_group", piece_group_script},
          {"refused_pieces", piece_refusal_script}};
}

std::vector<Check> piece_checks() {
  return {
      {"pieces.gather", "gather_pieces is right at 1, 2, 3, 4, 7 and 8 ranks, for every type and tables of all sorts",
       pieces_gathered, 90},
      {"pieces.scatter", "scatter_pieces is right at 1, 2, 3, 4, 7 and 8 ranks, of all ranks, of some and of none",
       pieces_scattered, 90},
      {"pieces.groups", "collectives of pieces in a group are right next to others and messages", pieces_in_groups, 60},
      {"pieces.refused", "wrong tables of pieces are refused, and the communicator still works", pieces_refused, 60},
  };
}

}  // namespace pliant::testkit
