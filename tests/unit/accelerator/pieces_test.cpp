// Arrays that lie with several ranks, gathered and scattered by a table: chunk by chunk, and between windows.
#include <numeric>

#include "pliant/sdk/pieces.hpp"
#include "window_memory.hpp"

using namespace pliant_test;

namespace {

using Table = std::vector<pliant_piece>;

const OptionSettings kSmallChunks{{{"chunk_bytes", 4096}}, {}, {}};

/// Pieces of all sizes from `scale` on, and empty ones, out of rank order, some with gaps between them.
Table table_of(int32_t world_size, uint64_t scale) {
  Table made;
  uint64_t end = 3;
  for (int32_t i = 0; i < 3 * world_size; ++i) {
    const auto number = static_cast<uint64_t>(i);
    const uint64_t count = i % 5 == 2 ? 0 : scale * (1 + number % 3) + number;
    made.push_back({(i * i + i / 2) % world_size, 0, end, count});
    end += count + (i % 4 == 0 ? 7 : 0);
  }
  return made;
}

uint64_t end_of(const Table& table) {
  return table.back().offset + table.back().count;
}

uint64_t owned_by(const Table& table, int32_t rank) {
  return std::accumulate(table.begin(), table.end(), uint64_t{0}, [rank](uint64_t sum, const pliant_piece& one) {
    return sum + (one.rank == rank ? one.count : 0);
  });
}

/// Element `offset` of the array of `rank`.
float value(uint64_t offset, int32_t rank) {
  return static_cast<float>(offset % 100003) + 0.25F * static_cast<float>(rank % 3);
}

constexpr float kUntouched = -7;

std::string first_difference(const float* got, const std::vector<float>& wanted) {
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (got[i] != wanted[i])
      return "element " + std::to_string(i) + " is " + std::to_string(got[i]) + ", not " + std::to_string(wanted[i]);
  }
  return "";
}

/// Room for what is packed at `send`, or NULL: in place. "" or what went wrong.
std::string gather(const Rank& self, const Comm& comm, const Stream& stream, const Table& table, float* send,
                   float* recv) {
  std::vector<float> wanted(end_of(table), kUntouched);
  std::copy(wanted.begin(), wanted.end(), recv);
  uint64_t packed = 0;
  for (const pliant_piece& one : table) {
    for (uint64_t i = one.offset; i < one.offset + one.count; ++i) {
      wanted[i] = value(i, one.rank);
      if (one.rank != self.rank) continue;
      (send == nullptr ? recv[i] : send[packed++]) = wanted[i];
    }
  }
  Outcome outcome = self.device.call(&pliant_collectives::gather_pieces, comm, send, recv, table.data(), table.size(),
                                     PLIANT_F32, stream);
  if (outcome.ok()) outcome = stream.synchronize();
  return outcome.ok() ? first_difference(recv, wanted) : outcome.text();
}

/// Room for an array at `send`.
std::string scatter(const Rank& self, const Comm& comm, const Stream& stream, const Table& table,
                    const std::vector<uint8_t>& adds, float* send, float* recv) {
  for (uint64_t i = 0; i < end_of(table); ++i) send[i] = value(i, self.rank);
  std::vector<float> wanted;
  for (int32_t r = 0; r < self.world_size; ++r) {
    if (r == self.rank) continue;
    for (const pliant_piece& one : table) {
      for (uint64_t i = one.offset; one.rank == self.rank && i < one.offset + one.count; ++i) {
        wanted.push_back(adds[static_cast<size_t>(r)] != 0 ? value(i, r) : kUntouched);
      }
    }
  }
  std::fill_n(recv, wanted.size(), kUntouched);
  float* const from = adds[static_cast<size_t>(self.rank)] != 0 ? send : nullptr;
  Outcome outcome = self.device.call(&pliant_collectives::scatter_pieces, comm, from, recv, table.data(), table.size(),
                                     adds.data(), PLIANT_F32, stream);
  if (outcome.ok()) outcome = stream.synchronize();
  return outcome.ok() ? first_difference(recv, wanted) : outcome.text();
}

/// Everyone adds, every other rank, and nobody.
std::vector<std::vector<uint8_t>> adders(int32_t world_size) {
  std::vector<uint8_t> others(static_cast<size_t>(world_size));
  for (size_t r = 0; r < others.size(); r += 2) others[r] = 1;
  return {std::vector<uint8_t>(others.size(), 1), others, std::vector<uint8_t>(others.size(), 0)};
}

/// Gathers and scatters in the memory of a window, or beside it.
std::string in_windows(const Rank& self, bool is_beside) {
  const WindowMemory window(self.device, uint64_t{8} << 20U);
  const Comm comm(self.device, self.id(), self.rank, self.world_size);
  const Stream stream(self.device);
  if (const Outcome known = window.become_window(comm, stream); !known.ok()) return known.text();
  std::string fault;
  for (const uint64_t scale : {uint64_t{5}, uint64_t{20011}}) {
    const Table table = table_of(self.world_size, scale);
    auto* const whole = reinterpret_cast<float*>(window.at());
    std::vector<float> beside(std::max(end_of(table), owned_by(table, self.rank) + 1));
    float* const packed = is_beside ? beside.data() : whole + end_of(table);
    for (float* const send : {packed, static_cast<float*>(nullptr), packed}) {
      if (fault.empty()) fault = gather(self, comm, stream, table, send, whole);
    }
    std::vector<float> received(owned_by(table, self.rank) * static_cast<uint64_t>(self.world_size - 1));
    for (const std::vector<uint8_t>& adds : adders(self.world_size)) {
      float* const addend = is_beside ? beside.data() : whole + 5;
      if (fault.empty()) fault = scatter(self, comm, stream, table, adds, addend, received.data());
    }
  }
  return fault;
}

}  // namespace

TEST_CASE("arrays of pieces are gathered and scattered in chunks, at 1, 2, 3 and 5 ranks") {
  for (const int32_t world_size : {1, 2, 3, 5}) {
    INFO("world size ", world_size);
    Processes processes(
        world_size, when_ready([](const Rank& self, const Comm& comm, const Stream& stream) {
          std::string fault;
          for (const uint64_t scale : std::initializer_list<uint64_t>{1, 300, 3000}) {
            const Table table = table_of(self.world_size, scale);
            std::vector<float> whole(end_of(table));
            std::vector<float> packed(owned_by(table, self.rank) + 1);
            for (float* const send : {packed.data(), static_cast<float*>(nullptr)}) {
              if (fault.empty()) fault = gather(self, comm, stream, table, send, whole.data());
            }
            std::vector<float> received(owned_by(table, self.rank) * static_cast<uint64_t>(self.world_size - 1));
            for (const std::vector<uint8_t>& adds : adders(self.world_size)) {
              if (!fault.empty()) break;
              fault = scatter(self, comm, stream, table, adds, whole.data(), received.data());
            }
          }
          return fault;
        }),
        kSmallChunks);
    expect_all_well(processes);
  }
}

TEST_CASE("arrays of pieces are gathered and scattered between windows, and from memory beside them") {
  for (const int32_t world_size : {1, 2, 3}) {
    for (const int beside : {0, 1, 2, 7}) {  // a bit for each rank
      INFO("world size ", world_size, ", beside ", beside);
      Processes processes(world_size,
                          [beside](const Rank& self) { return in_windows(self, ((beside >> self.rank) & 1) != 0); });
      expect_all_well(processes);
    }
  }
}

TEST_CASE("ranks whose tables of pieces differ are told so, and none hangs") {
  for (const bool gathers : {true, false}) {
    Processes processes(2, when_ready([gathers](const Rank& self, const Comm& comm, const Stream& stream) {
                          const Table table{{0, 0, 0, 10}, {1, 0, self.rank == 0 ? 10U : 11U, 10}};
                          std::vector<float> whole(30);
                          std::vector<float> other(30);
                          const uint8_t adds[] = {1, 1};
                          using Slots = pliant_collectives;
                          const Outcome called =
                              gathers ? self.device.call(&Slots::gather_pieces, comm, other.data(), whole.data(),
                                                         table.data(), table.size(), PLIANT_F32, stream)
                                      : self.device.call(&Slots::scatter_pieces, comm, whole.data(), other.data(),
                                                         table.data(), table.size(), &adds[0], PLIANT_F32, stream);
                          return called.ok() ? stream.synchronize().text() : called.text();
                        }));
    std::string both;
    for (const RankEnd& end : processes.ends()) {
      CHECK(end.text.rfind(std::to_string(PLIANT_INVALID_ARGUMENT) + ": ", 0) == 0);
      both += end.text + "\n";
    }
    INFO(both);
    CHECK(both.find(std::string(gathers ? "gather_pieces" : "scatter_pieces") + " of 20 f32 in all (pieces: digest ") !=
          std::string::npos);
  }
}

TEST_CASE("what a rank has packed is found in the array, cut where it does not lie side by side") {
  const Table given{{1, 0, 2, 3}, {0, 0, 5, 4}, {1, 0, 9, 0}, {1, 0, 10, 2}, {1, 0, 12, 1}, {0, 0, 13, 1}};
  const pliant::sdk::PieceTable table(given, 3);
  CHECK(table.owned(0) == 5);
  CHECK(table.owned(1) == 6);
  CHECK(table.owned(2) == 0);
  CHECK(table.most_owned() == 6);
  CHECK(table.total() == 11);
  CHECK(table.end() == 14);
  CHECK(table.of(1).size() == 2);  // neighbours of one rank are one piece
  CHECK(table.ascending().size() == 4);
  const uint64_t places[] = {2, 3, 4, 10, 11, 12};
  for (uint64_t first = 0; first <= 6; ++first) {
    for (uint64_t count = 0; first + count <= 6; ++count) {
      std::vector<uint64_t> seen;
      table.each(1, first, count, [&](const pliant::sdk::PieceTable::Piece& one) {
        CHECK(one.packed == first + seen.size());
        CHECK(one.count > 0);
        for (uint64_t i = 0; i < one.count; ++i) seen.push_back(one.offset + i);
      });
      CHECK(seen == std::vector<uint64_t>(std::begin(places) + first, std::begin(places) + first + count));
    }
  }
  const Table moved{{1, 0, 2, 3}, {0, 0, 5, 4}, {1, 0, 9, 3}, {0, 0, 13, 1}};
  CHECK(table.digest() != pliant::sdk::PieceTable(moved, 3).digest());
  CHECK(table.digest() == pliant::sdk::PieceTable(table.ascending(), 3).digest());
}
