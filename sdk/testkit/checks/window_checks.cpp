// Memory that communicators know: PLIANT_MEMORY_WINDOW and register_window.
#include <algorithm>
#include <optional>

#include "testkit/checks/accelerator_checks.hpp"
#include "testkit/ranks.hpp"

namespace pliant::testkit {

namespace {

using Slots = pliant_accelerator;
using Table = pliant_collectives;

constexpr int32_t kWindowRanks = 4;
constexpr uint64_t kPage = 4096;
constexpr uint64_t kPages = 600;
constexpr uint64_t kFew = 1000;  ///< elements of each rank
constexpr uint64_t kMany = 40001;

bool has_windows(const Accelerator& accelerator) {
  const Table* table = accelerator.collectives();
  return table != nullptr && table->register_window != nullptr;
}

void need_windows(const Subject& subject) {
  need_collectives(subject);
  const Accelerator accelerator(subject);
  const bool has_memory = accelerator.has(PLIANT_CAP_WINDOW_MEMORY);
  expect(has_memory == has_windows(accelerator),
         has_memory ? "its device has PLIANT_CAP_WINDOW_MEMORY, and its collectives have no register_window"
                    : "its collectives have register_window, and its device has no PLIANT_CAP_WINDOW_MEMORY");
  if (!has_memory) skip("its collectives have no register_window");
}

void memory(const Subject& subject) {
  const Accelerator accelerator(subject);
  if (!accelerator.has(PLIANT_CAP_WINDOW_MEMORY)) {
    void* pointer = nullptr;
    const Outcome refused = accelerator.call(&Slots::alloc, 0, PLIANT_MEMORY_WINDOW, kPage, &pointer);
    expect(refused.status == PLIANT_UNIMPLEMENTED,
           "alloc of PLIANT_MEMORY_WINDOW, which the device does not have, returned " + refused.text());
    return;
  }
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{100}, kPage, 3 * kPage + 1}) {
    const Memory one(accelerator, bytes, PLIANT_MEMORY_WINDOW);
    const Memory other(accelerator, bytes, PLIANT_MEMORY_WINDOW);
    for (const Memory* each : {&one, &other}) {
      expect(reinterpret_cast<uintptr_t>(each->at()) % kPage == 0,
             std::to_string(bytes) + " bytes of PLIANT_MEMORY_WINDOW do not begin at a multiple of 4096");
    }
    const Bytes ones(bytes, 1);
    const Bytes twos(bytes, 2);
    accelerator.write(one.at(), ones.data(), bytes);
    accelerator.write(other.at(), twos.data(), bytes);
    Bytes got(bytes);
    accelerator.read(got.data(), one.at(), bytes);
    expect(got == ones, std::to_string(bytes) + " bytes of PLIANT_MEMORY_WINDOW are not what was written");
  }
  void* pointer = nullptr;
  const Outcome refused = accelerator.call(&Slots::alloc, 0, PLIANT_MEMORY_WINDOW, ~uint64_t{0} / 2, &pointer);
  expect(refused.status == PLIANT_RESOURCE_EXHAUSTED,
         "alloc of 2^63 bytes of PLIANT_MEMORY_WINDOW returned " + refused.text());
}

/// What page `page` of a rank's window holds before anything is exchanged.
int32_t drawn(const Rank& rank, int32_t of, uint64_t element) {
  return static_cast<int32_t>((rank.seed % 1000) + static_cast<uint64_t>(of) * 7919 + element * 31) % 100000;
}

/// A window of one rank, full of elements that all ranks know.
class Window {
 public:
  explicit Window(const Rank& rank)
      : rank_(rank),
        memory_(rank.accelerator, kPages * kPage, PLIANT_MEMORY_WINDOW, rank.rank % rank.accelerator.devices()),
        expected_(kPages * kPage / sizeof(int32_t)) {
    for (uint64_t i = 0; i < expected_.size(); ++i) expected_[i] = drawn(rank, rank.rank, i);
    rank.accelerator.write(memory_.at(), expected_.data(), kPages * kPage);
  }
  void make_known(const Comm& comm, const Stream& stream) const {
    void* const begin = memory_.at();
    must("register_window", rank_.accelerator.call(&Table::register_window, comm, begin, kPages * kPage, stream));
  }
  /// Element `element` of the window.
  [[nodiscard]] void* at(uint64_t element) const { return memory_.at(element * sizeof(int32_t)); }
  void expect_at(uint64_t element, int32_t value) { expected_[element] = value; }
  /// Fails unless all of it is as expected.
  void verify(const std::string& after) const {
    std::vector<int32_t> got(expected_.size());
    rank_.accelerator.read(got.data(), memory_.at(), kPages * kPage);
    const auto wrong = std::mismatch(got.begin(), got.end(), expected_.begin());
    if (wrong.first == got.end()) return;
    expect(false, "after " + after + " element " + std::to_string(wrong.first - got.begin()) +
                      " of the window of rank " + std::to_string(rank_.rank) + " is " + std::to_string(*wrong.first) +
                      ", not " + std::to_string(*wrong.second));
  }

 private:
  const Rank& rank_;
  const Memory memory_;
  std::vector<int32_t> expected_;
};

/// Gathers from outside of windows to element `to` of the window.
void gather(const Rank& rank, const Comm& comm, const Stream& stream, Window& window, uint64_t to, uint64_t count) {
  const Memory own(rank.accelerator, count * sizeof(int32_t), PLIANT_MEMORY_DEVICE,
                   rank.rank % rank.accelerator.devices());
  std::vector<int32_t> sent(count);
  for (uint64_t i = 0; i < count; ++i) sent[i] = drawn(rank, rank.rank + 100, i);
  rank.accelerator.write(own.at(), sent.data(), count * sizeof(int32_t));
  const void* const from = own.at();
  must("all_gather", rank.accelerator.call(&Table::all_gather, comm, from, window.at(to), count, PLIANT_I32, stream));
  stream.wait();
  for (int32_t r = 0; r < rank.world_size; ++r) {
    for (uint64_t i = 0; i < count; ++i) {
      window.expect_at(to + static_cast<uint64_t>(r) * count + i, drawn(rank, r + 100, i));
    }
  }
  window.verify("all_gather into it");
}

/// From element `from` of the window to plain memory: the part of this rank, summed up. Nobody wrote there before.
void scatter(const Rank& rank, const Comm& comm, const Stream& stream, const Window& window, uint64_t from,
             uint64_t count) {
  const Memory part(rank.accelerator, count * sizeof(int32_t), PLIANT_MEMORY_DEVICE,
                    rank.rank % rank.accelerator.devices());
  void* const to = part.at();
  const void* const begin = window.at(from);
  must("reduce_scatter",
       rank.accelerator.call(&Table::reduce_scatter, comm, begin, to, count, PLIANT_I32, PLIANT_SUM, stream));
  stream.wait();
  std::vector<int32_t> got(count);
  rank.accelerator.read(got.data(), part.at(), count * sizeof(int32_t));
  for (uint64_t i = 0; i < count; ++i) {
    int32_t sum = 0;
    for (int32_t r = 0; r < rank.world_size; ++r) {
      sum += drawn(rank, r, from + static_cast<uint64_t>(rank.rank) * count + i);
    }
    if (got[i] == sum) continue;  // a message for each would take longer than all else
    expect(false, "element " + std::to_string(i) + " of reduce_scatter from a window is " + std::to_string(got[i]) +
                      ", not " + std::to_string(sum));
  }
  window.verify("reduce_scatter from it");
}

void collectives_script(const Rank& rank) {
  const Comm comm(rank, rank.id());
  const Stream stream(rank.accelerator, rank.rank % rank.accelerator.devices());
  Window window(rank);
  window.make_known(comm, stream);
  stream.wait();
  window.verify("register_window");

  gather(rank, comm, stream, window, 0, kFew);
  gather(rank, comm, stream, window, 4099, kFew);
  gather(rank, comm, stream, window, 9001, kMany);

  scatter(rank, comm, stream, window, 200003, kFew);
  scatter(rank, comm, stream, window, 300001, kMany);
}

/// The same memory is a window of two communicators, and of one that comes when they are gone.
void several_script(const Rank& rank) {
  const Stream gathers(rank.accelerator, rank.rank % rank.accelerator.devices());
  const Stream others(rank.accelerator, rank.rank % rank.accelerator.devices());
  Window window(rank);
  {
    const Comm first(rank, rank.id());
    const Comm second(rank, rank.id());
    window.make_known(first, gathers);
    window.make_known(second, others);
    gather(rank, first, gathers, window, 0, kMany);
    gather(rank, second, others, window, 200003, kMany);
    rank.tell("has gathered");
    rank.hear();  // a communicator must not end while a peer is still in a collective
  }
  const Comm next(rank, rank.id());
  window.make_known(next, gathers);
  gather(rank, next, gathers, window, 400003, kMany);
}

void collectives(const Subject& subject) {
  need_windows(subject);
  Ranks ranks(subject, "windows", kWindowRanks);
  ranks.carry_id();
  ranks.finish();
}

void several(const Subject& subject) {
  need_windows(subject);
  Ranks ranks(subject, "several_windows", kWindowRanks);
  ranks.carry_id();
  ranks.carry_id();
  ranks.hear_all("end of all_gather");
  ranks.tell_all();
  ranks.carry_id();
  ranks.finish();
}

}  // namespace

std::vector<Script> window_scripts() {
  return {{"windows", collectives_script}, {"several_windows", several_script}};
}

std::vector<Check> window_checks() {
  return {
      {"windows.memory", "memory for windows begins at a multiple of 4096 bytes, or is refused by a device without it",
       memory},
      {"windows.collectives", "collectives to and from a window are right and change nothing else in it", collectives,
       60},
      {"windows.several", "memory may be a window of several communicators, also of later ones", several, 60},
  };
}

}  // namespace pliant::testkit
