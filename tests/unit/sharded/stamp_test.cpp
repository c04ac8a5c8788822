// Stamps: what a rank owns is of one step, for it, for whoever takes a part of it over and for whoever maps it.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <numeric>
#include <set>
#include <thread>
#include <utility>

#include "elastic/state_digest.hpp"
#include "sharded/memory/shard_memory.hpp"
#include "sharded/runtime.hpp"
#include "sharded/shards/segments.hpp"
#include "unit/accelerator/handles.hpp"
#include "unit/elastic/device_machines.hpp"
#include "unit/sharded/says.hpp"

namespace pliant::sharded {
namespace {

constexpr int64_t kElements = 4 * 1024 + 482;  // of 5 chunks; the last block is not full
constexpr int32_t kChunks = 5;

std::vector<test::Machine> all_machines() {
  std::vector<test::Machine> all = test::machines_and_gpus();
  all.push_back({"host", "use = \"host\"\n"});
  all.push_back({"sim, seen by the CPU", "use = \"sim\"\n[accelerator.sim]\nmax_delay_us = 20\n"});
  all.push_back({"sim, of one process", "use = \"sim\"\n[accelerator.sim]\nexchange = false\nhost_visible = false\n"});
  return all;
}

FlatLayout layout() {
  return *FlatLayout::create(kElements);
}

float value_of(int64_t element, int64_t step) {
  return static_cast<float>(step * 1000 + element % 97);
}

void write_to(void* there, const std::vector<float>& values, Stream& stream) {
  stream.copy(there, values.data(), values.size() * sizeof(float));
  stream.synchronize();
}

/// Turns a bit of one element around, behind the back of whoever owns it.
void flip_bit(float* there, Stream& stream) {
  uint32_t word = 0;
  stream.copy(&word, there, sizeof(word));
  stream.synchronize();
  word ^= 1U << 9U;
  stream.copy(there, &word, sizeof(word));
  stream.synchronize();
}

std::vector<float> all_values(int64_t step) {
  std::vector<float> values(static_cast<size_t>(kElements));
  for (size_t i = 0; i < values.size(); ++i) values[i] = value_of(static_cast<int64_t>(i), step);
  return values;
}

/// The chunks of `values`, which lie as in the array that `stamp` is of, that have another digest than it says.
std::vector<ChunkId> wrong_chunks(const Stamp& stamp, const float* values, data::ArrayDigests& digests) {
  std::vector<ChunkId> wrong;
  std::vector<uint64_t> taken;
  for (size_t first = 0; first < stamp.chunks.size();) {
    size_t end = first + 1;
    while (end < stamp.chunks.size() && stamp.chunks[end].chunk == stamp.chunks[end - 1].chunk + 1) ++end;
    taken.assign(end - first, 0);
    const ChunkRange run{static_cast<ChunkId>(stamp.chunks[first].chunk), static_cast<int32_t>(end - first)};
    take_digests(digests, stamp.layout, run, values + first * static_cast<size_t>(stamp.layout.chunk_elements()),
                 taken);
    for (size_t i = first; i < end; ++i) {
      if (taken[i - first] != stamp.chunks[i].digest) wrong.push_back(static_cast<ChunkId>(stamp.chunks[i].chunk));
    }
    first = end;
  }
  return wrong;
}

/// Gives what `rank` owns the values of `step`.
void fill(ShardMemory& memory, const Ownership& owners, int32_t rank, int64_t step, Stream& stream) {
  const std::vector<float> values = all_values(step);
  memory.begin_change();
  for (const OwnedRun& run : owners.runs_of(rank)) {
    const FlatRange range = layout().range_of(run.chunks);
    const int64_t end = std::min(range.end(), kElements);
    for (size_t array = 0; array < memory.count(); ++array) {
      write_to(memory.values(array) + int64_t{run.slot} * layout().chunk_elements(),
               {values.begin() + range.first, values.begin() + end}, stream);
    }
  }
  memory.end_change(step);
}

TEST_CASE("the digests of chunks add up to that of the whole array, whoever owns what, and are taken once a change") {
  const std::vector<float> values = all_values(3);
  elastic::DigestOfBytes whole;
  whole.add(values.data(), values.size() * sizeof(float));
  const uint64_t expected = whole.finish();
  for (const test::Machine& machine : all_machines()) {
    const Accelerator accelerator = test::open(machine);
    Stream stream(accelerator, 0);
    for (const int32_t world_size : {1, 2, 3, 7}) {
      CAPTURE(machine.name);
      CAPTURE(world_size);
      const Ownership owners = *Ownership::deal(kChunks, world_size);
      uint64_t sum = 0;
      for (int32_t rank = 0; rank < world_size; ++rank) {
        ShardMemory memory(accelerator, 0, stream, {"weights", "moment"});
        CHECK(memory.step() == kNoStep);
        memory.make(layout(), owners, rank);
        CHECK(memory.step() == kNoStep);
        fill(memory, owners, rank, 3, stream);
        CHECK(memory.step() == 3);
        const std::vector<uint64_t> taken = memory.digests();
        REQUIRE(taken.size() == 2);
        CHECK(taken[0] == taken[1]);
        sum += taken[0];
        if (owners.chunks_of(rank) == 0) continue;
        flip_bit(memory.values(1) + 5, stream);
        CHECK(memory.digests() == taken);
        memory.begin_change();
        memory.end_change(4);
        CHECK(memory.digests()[0] == taken[0]);
        CHECK(memory.digests()[1] != taken[1]);
      }
      CHECK(sum == expected);
    }
  }
  test::check_doubles_are_clean();
}

TEST_CASE("whoever maps an array is told its step, sees that it changes, and finds the chunk that has other bytes") {
  for (const test::Machine& machine : all_machines()) {
    CAPTURE(machine.name);
    const Accelerator accelerator = test::open(machine);
    if (!accelerator.properties(0).exchange_memory) continue;
    Stream stream(accelerator, 0);
    Stream others(accelerator, 0);
    const Ownership owners = *Ownership::of_runs(std::vector<Ownership::Run>{{2, 0}, {1, 1}, {2, 0}}, 2, 1);
    ShardMemory memory(accelerator, 0, stream, {"weights"});
    memory.make(layout(), owners, 0);
    const auto settle = [&] { stream.synchronize(); };
    settle();
    MappedShard mapped(memory.values(0), memory.bytes(), others);
    CHECK_FALSE(mapped.stamp());
    fill(memory, owners, 0, 7, stream);
    settle();
    std::optional<Stamp> stamp = mapped.stamp();
    REQUIRE(stamp);
    CHECK(stamp->head.step == 7);
    CHECK(stamp->head.is_digested == 0);
    CHECK(stamp->layout.elements() == kElements);
    REQUIRE(stamp->chunks.size() == 4);
    CHECK(stamp->chunks[1].chunk == 1);
    CHECK(stamp->chunks[2].chunk == 3);
    const std::vector<uint64_t> sums = memory.digests();
    settle();
    std::vector<float> copy(memory.bytes() / sizeof(float));
    stamp = mapped.read(copy.data());
    REQUIRE(stamp);
    CHECK(stamp->head.is_digested == 1);
    CHECK(std::accumulate(stamp->chunks.begin(), stamp->chunks.end(), uint64_t{0},
                          [](uint64_t sum, const StampEntry& one) { return sum + one.digest; }) == sums[0]);
    CHECK(copy[0] == value_of(0, 7));
    CHECK(copy[2 * 1024] == value_of(3 * 1024, 7));
    data::ArrayDigests of_copy(accelerator, 0, others, true);
    data::ArrayDigests of_device(accelerator, 0, others, accelerator.properties(0).host_visible);
    CHECK(wrong_chunks(*stamp, copy.data(), of_copy).empty());
    CHECK(wrong_chunks(*stamp, memory.values(0), of_device).empty());
    copy[2 * 1024 + 3] += 1;
    CHECK(wrong_chunks(*stamp, copy.data(), of_copy) == std::vector{ChunkId{3}});
    flip_bit(memory.values(0) + 1030, stream);
    CHECK(wrong_chunks(*stamp, memory.values(0), of_device) == std::vector{ChunkId{1}});

    memory.begin_change();
    settle();
    CHECK_FALSE(mapped.stamp());
    memory.end_change(7);  // the same step again is another change
    settle();
    REQUIRE(mapped.stamp());
    CHECK(mapped.stamp()->head.changes == stamp->head.changes + 1);
    MappedShard shorter(memory.values(0), memory.bytes() - 4096, others);
    CHECK_THROWS_WITH_AS(static_cast<void>(shorter.stamp()),
                         doctest::Contains("there is no stamp of a shard after 12288 bytes"), Error);
  }
  test::check_doubles_are_clean();
}

Config config_of_coordinator() {
  ConfigOverrides overrides;
  overrides.plugin_dirs = {PLIANT_PLUGIN_DIR};
  overrides.read_environment = false;
  return Config::parse(
      "config_version = 1\n[accelerator]\nuse = \"host\"\n[run]\ndeterministic = true\n[coordinator]\nuse = "
      "\"eager\"\n",
      {"accelerator", "coordinator"}, overrides);
}

/// One parameter, and one number beside each of its elements.
void add_model(Runtime& runtime) {
  ParameterSpec spec;
  spec.name = "w";
  spec.shape = {kElements};
  spec.initialise = [](std::span<float> values) {
    for (size_t i = 0; i < values.size(); ++i) values[i] = value_of(static_cast<int64_t>(i), 0);
  };
  ModuleSpec root;
  root.name = "model";
  root.own = {ParameterId{runtime.model.add(std::move(spec))}};
  runtime.model.add(std::move(root));
  runtime.close_model();
}

/// The update of step `step` - 1, and its end. `half_way`: called when some values are changed.
void make_step(Runtime& runtime, int64_t step, Stream& program, const std::function<void()>& half_way = {}) {
  runtime.allow_update();
  runtime.update([&](const ShardRange& range) {
    std::vector<float> values;
    for (uint64_t i = 0; i < range.count; ++i) {
      values.push_back(value_of(static_cast<int64_t>(range.first + i), step));
    }
    write_to(range.weights, values, program);
    if (half_way) half_way();
    write_to(range.state[0], values, program);
  });
  runtime.end_step(step);
}

struct Joined {
  std::string said;  ///< what the rank met
  bool has_begun = false;
  std::vector<uint64_t> digests{};
  std::string changed{};  ///< what it says of its own afterwards
};

/// Ranks 0 and 1 own the model and do `before`, then the third joins them at `step`.
std::vector<Joined> join(const Accelerator& accelerator, int64_t step,
                         const std::function<void(int32_t, Runtime&, Stream&)>& before) {
  const CommId of_two = accelerator.make_comm_id(2);
  const CommId of_three = accelerator.make_comm_id(3);
  std::vector<Joined> all(3);
  test::run_healthy_ranks(accelerator, 3, [&](int32_t process, Communicator& everybody, Stream& stream) {
    Stream program(accelerator, 0);
    Runtime runtime(config_of_coordinator(), accelerator, 0, program, stream, {"moment"});
    add_model(runtime);
    if (process < 2) {
      Communicator two(accelerator, 0, of_two, process, 2);
      two.wait_ready(60000);
      runtime.enter_group(two);
      runtime.initialise();
      before(process, runtime, program);
      runtime.leave_group();
    }
    everybody.barrier(stream);
    stream.synchronize();
    Joined& own = all[static_cast<size_t>(process)];
    try {
      Communicator three(accelerator, 0, of_three, process, 3);
      three.wait_ready(60000);
      const std::vector<int32_t> was{0, 1, -1};
      runtime.enter_group(three, dealt(runtime.model, layout(), 2), was, 3, step, [&own] { own.has_begun = true; });
      runtime.require_step(step);
      own.digests = runtime.digests();
      try {
        runtime.require_unchanged();
      } catch (const Error& error) {
        own.changed = error.message();
      }
      three.barrier(stream);  // nobody goes while others need it
      stream.synchronize();
      runtime.leave_group();
    } catch (const Error& error) {
      own.said = error.message();
    }
  });
  return all;
}

TEST_CASE(
    "what moves to a joining rank is of the step that the group goes on from, and has the digests of its owners") {
  for (const test::Machine& machine : all_machines()) {
    CAPTURE(machine.name);
    const Accelerator accelerator = test::open(machine);
    for (const bool is_digested : {false, true}) {
      const auto all = join(accelerator, 2, [is_digested](int32_t, Runtime& runtime, Stream& program) {
        make_step(runtime, 1, program);
        make_step(runtime, 2, program);
        if (is_digested) static_cast<void>(runtime.digests());
      });
      const std::vector<float> values = all_values(2);
      elastic::DigestOfBytes whole;
      whole.add(values.data(), values.size() * sizeof(float));
      const uint64_t expected = whole.finish();
      uint64_t weights = 0;
      uint64_t moments = 0;
      for (const Joined& one : all) {
        CHECK(one.said == "");
        CHECK(one.has_begun);
        REQUIRE(one.digests.size() == 2);
        weights += one.digests[0];
        moments += one.digests[1];
      }
      CHECK(weights == expected);
      CHECK(moments == expected);
    }
  }
  test::check_doubles_are_clean();
}

TEST_CASE("a bit that is flipped in a chunk before it moves is named: the ranks, the array, the chunk") {
  for (const test::Machine& machine : all_machines()) {
    CAPTURE(machine.name);
    const Accelerator accelerator = test::open(machine);
    const auto all = join(accelerator, 1, [](int32_t process, Runtime& runtime, Stream& program) {
      make_step(runtime, 1, program);
      static_cast<void>(runtime.digests());
      // Rank 1 owns chunks 2 to 4 and gives the first of them away.
      if (process == 1) flip_bit(runtime.shards().values(1) + 481, program);
    });
    CHECK(all[2].has_begun);
    CHECK(says(all[2].said,
               "chunk 2 of moment arrived from rank 1 at rank 2 with other bytes than its stamp of step 1 (digest "));
    for (const size_t other : {size_t{0}, size_t{1}}) CHECK_FALSE(all[other].said.find("chunk") != std::string::npos);
  }
  test::check_doubles_are_clean();
}

TEST_CASE("a bit that is flipped before a move in a chunk that stays where it is, is named after it") {
  for (const test::Machine& machine : all_machines()) {
    CAPTURE(machine.name);
    const Accelerator accelerator = test::open(machine);
    const auto all = join(accelerator, 1, [](int32_t process, Runtime& runtime, Stream& program) {
      make_step(runtime, 1, program);
      static_cast<void>(runtime.digests());
      if (process == 1) flip_bit(runtime.shards().values(1) + 2 * 1024 + 3, program);  // the last of its chunks, kept
    });
    for (const Joined& one : all) CHECK(one.said == "");
    CHECK(says(all[1].changed, "chunk 4 of moment of this rank has changed since step 1 began"));
    CHECK(all[0].changed == "");
    CHECK(all[2].changed == "");
  }
  test::check_doubles_are_clean();
}

/// One rank that owns a model of two parameters, at step 0; `call` does something to it.
void alone(
    const Accelerator& accelerator,
    const std::function<void(Runtime& runtime, Stream& program, const std::vector<uint32_t>& parameters)>& call) {
  test::run_healthy_ranks(accelerator, 1, [&](int32_t, Communicator& group, Stream& stream) {
    Stream program(accelerator, 0);
    Runtime runtime(config_of_coordinator(), accelerator, 0, program, stream, {"moment"});
    std::vector<uint32_t> parameters;
    ModuleSpec root;
    root.name = "model";
    for (const int64_t elements : {int64_t{1500}, kElements - 1500}) {  // chunk 1 has a part of both
      ParameterSpec spec;
      spec.name = "w" + std::to_string(parameters.size());
      spec.shape = {elements};
      spec.initialise = [](std::span<float> values) { std::fill(values.begin(), values.end(), 0.25F); };
      parameters.push_back(runtime.model.add(std::move(spec)));
      root.own.push_back(ParameterId{parameters.back()});
    }
    runtime.model.add(std::move(root));
    runtime.close_model();
    runtime.enter_group(group);
    runtime.initialise();
    call(runtime, program, parameters);
    runtime.leave_group();
  });
}

/// An update that leaves the values as they are.
void update(Runtime& runtime) {
  runtime.allow_update(true);
  runtime.update([](const ShardRange&) {});
}

TEST_CASE(
    "a chunk that changes after an update is named by the next one, whether steps are skipped in between or not") {
  for (const test::Machine& machine : all_machines()) {
    CAPTURE(machine.name);
    const Accelerator accelerator = test::open(machine);
    for (const bool skips : {false, true}) {
      CAPTURE(skips);
      alone(accelerator, [skips](Runtime& runtime, Stream& program, const std::vector<uint32_t>&) {
        update(runtime);
        runtime.end_step(1);
        flip_bit(runtime.shards().values(0) + 4 * 1024 + 7, program);
        const std::vector<uint64_t> left = runtime.digests();  // by the update
        if (skips) runtime.end_step(2);
        CHECK(runtime.digests() == left);
        CHECK_THROWS_WITH_AS(update(runtime),
                             doctest::Contains("chunk 4 of weights of this rank has changed since step 1 began"),
                             Error);
      });
    }
  }
  test::check_doubles_are_clean();
}

TEST_CASE("an update whose digests nobody wants takes none, and nothing is said of what changes after it") {
  alone(test::open_host(), [](Runtime& runtime, Stream& program, const std::vector<uint32_t>&) {
    runtime.allow_update();
    runtime.update([](const ShardRange&) {});
    runtime.end_step(1);
    flip_bit(runtime.shards().values(0), program);
    CHECK_NOTHROW(update(runtime));
  });
}

TEST_CASE("a parameter that is written between two steps has new digests, and what changed beside it is named") {
  for (const test::Machine& machine : all_machines()) {
    CAPTURE(machine.name);
    const Accelerator accelerator = test::open(machine);
    alone(accelerator, [](Runtime& runtime, Stream& program, const std::vector<uint32_t>& parameters) {
      update(runtime);
      runtime.end_step(1);
      const std::vector<uint64_t> before = runtime.digests();
      runtime.write(parameters[0], std::vector<float>(1500, 0.5F));
      const std::vector<uint64_t> written = runtime.digests();
      CHECK(written[0] != before[0]);
      CHECK(written[1] == before[1]);
      CHECK_NOTHROW(runtime.require_unchanged());
      runtime.shards().begin_change();
      runtime.shards().end_change(1);
      CHECK(runtime.digests() == written);                   // taken anew
      flip_bit(runtime.shards().values(0) + 1700, program);  // of the other parameter, in the chunk of both
      CHECK_THROWS_WITH_AS(runtime.write(parameters[0], std::vector<float>(1500, 0.5F)),
                           doctest::Contains("chunk 1 of weights of this rank has changed"), Error);
      flip_bit(runtime.shards().values(0) + 1700, program);
      flip_bit(runtime.shards().values(0) + 3000, program);  // in a chunk that is not written
      CHECK_NOTHROW(runtime.write(parameters[0], std::vector<float>(1500, 0.75F)));
      CHECK_THROWS_WITH_AS(update(runtime), doctest::Contains("chunk 2 of weights of this rank has changed"), Error);
    });
  }
  test::check_doubles_are_clean();
}

TEST_CASE("a rank whose part is of another step is named by itself and by whoever is to get of it") {
  const Accelerator accelerator = test::open_host();
  auto all = join(accelerator, 1, [](int32_t process, Runtime& runtime, Stream& program) {
    if (process == 0) make_step(runtime, 1, program);
  });
  CHECK(all[1].has_begun);
  CHECK(says(all[1].said, "the shards of this rank belong to step 0, not to step 1"));
  CHECK(says(all[2].said, "rank 1 gives rank 2 chunks 2 to 2 of step 0; the group continues from step 1"));

  all = join(accelerator, 1, [](int32_t process, Runtime& runtime, Stream& program) {  // gives nothing away
    if (process == 1) make_step(runtime, 1, program);
  });
  CHECK(all[0].has_begun);
  CHECK(says(all[0].said, "the shards of this rank belong to step 0, not to step 1"));

  all = join(accelerator, 1, [](int32_t process, Runtime& runtime, Stream& program) {
    if (process == 0) return make_step(runtime, 1, program);
    runtime.allow_update();
    CHECK_THROWS_AS(runtime.update([](const ShardRange&) { throw 7; }), int);
  });
  CHECK(says(all[1].said, "the shards of this rank belong to no step because an update or a move was not completed"));
  CHECK(says(all[2].said, "rank 1 gives rank 2 chunks 2 to 2 of no step; the group continues from step 1"));
}

TEST_CASE("a group in which nothing moves goes on from one step, too") {
  const Accelerator accelerator = test::open_host();
  test::run_healthy_ranks(accelerator, 1, [&](int32_t, Communicator& group, Stream& stream) {
    Stream program(accelerator, 0);
    Runtime runtime(config_of_coordinator(), accelerator, 0, program, stream, {"moment"});
    add_model(runtime);
    runtime.enter_group(group);
    CHECK(runtime.step() == kNoStep);
    runtime.initialise();
    const Ownership owners = runtime.ownership();
    const std::vector<int32_t> was{0};
    bool begun = false;
    CHECK_THROWS_WITH_AS(runtime.enter_group(group, owners, was, 1, 5, [&begun] { begun = true; }),
                         "the shards of this rank belong to step 0, not to step 5", Error);
    CHECK(begun);
    CHECK(runtime.enter_group(group, owners, was, 1, 0, [] { FAIL("all is well"); }) == 0);
    runtime.leave_group();
  });
}

TEST_CASE("a step that changed nothing counts, one that was left in the middle of its update does not") {
  const Accelerator accelerator = test::open_host();
  test::run_healthy_ranks(accelerator, 1, [&](int32_t, Communicator& group, Stream& stream) {
    Stream program(accelerator, 0);
    Runtime runtime(config_of_coordinator(), accelerator, 0, program, stream, {"moment"});
    add_model(runtime);
    runtime.enter_group(group);
    runtime.initialise();
    CHECK(runtime.step() == 0);
    const std::vector<uint64_t> at_first = runtime.digests();
    runtime.end_step(1);  // it was skipped
    CHECK(runtime.step() == 1);
    CHECK(runtime.digests() == at_first);
    for (int twice = 0; twice < 2; ++twice) {
      runtime.allow_update();
      runtime.update([&](const ShardRange& range) {
        CHECK(runtime.step() == kNoStep);
        range.weights[0] += 1;
      });
      CHECK(runtime.step() == 2);
    }
    runtime.end_step(2);
    CHECK(runtime.digests() != at_first);
    runtime.require_step(2);
    CHECK_THROWS_WITH_AS(runtime.require_step(3), "the shards of this rank belong to step 2, not to step 3", Error);
    runtime.allow_update();
    runtime.begin_evaluation();
    CHECK_THROWS_AS(runtime.update([](const ShardRange&) {}), Error);
    runtime.end_pass();
    CHECK(runtime.owes_update());
    CHECK_THROWS_WITH_AS(runtime.end_step(3), doctest::Contains("was committed but this rank has not applied it"),
                         Error);
    runtime.allow_update();
    CHECK_THROWS_AS(runtime.update([](const ShardRange&) { throw 7; }), int);
    CHECK_THROWS_WITH_AS(runtime.end_step(3), doctest::Contains("belong to no step because an update or a move"),
                         Error);
    CHECK_THROWS_AS(runtime.require_step(3), Error);
    runtime.leave_group();
  });
}

// Between processes.

constexpr uint64_t kValueBytes = uint64_t{kChunks} * 1024 * sizeof(float);
enum : size_t { kHasMapped, kChanges, kSawChange, kIsDone };

/// How often the reader has looked, in memory of both processes.
class Looks {
 public:
  Looks()
      : count_(new (::mmap(nullptr, sizeof(Count), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Count) {}
  ~Looks() { ::munmap(count_, sizeof(Count)); }
  Looks(const Looks&) = delete;
  Looks& operator=(const Looks&) = delete;
  void add() const { count_->fetch_add(1); }
  /// One look has begun and ended since this was called, or there are no more.
  void wait_for_one(const pliant_test::Flag& last) const {
    const int64_t seen = count_->load();
    while (count_->load() < seen + 2 && !last.raised()) std::this_thread::yield();
  }

 private:
  using Count = std::atomic<int64_t>;
  Count* const count_;
};

/// Trains for as long as the other process looks.
std::string train(const Accelerator& accelerator, pliant_test::Board& board, const pliant_test::Wire& wire,
                  const Looks& looks) {
  Stream program(accelerator, 0);
  Stream stream(accelerator, 0);
  Communicator alone(accelerator, 0, accelerator.make_comm_id(1), 0, 1);
  alone.wait_ready(60000);
  Runtime runtime(config_of_coordinator(), accelerator, 0, program, stream, {"moment"});
  add_model(runtime);
  runtime.enter_group(alone);
  runtime.initialise();
  make_step(runtime, 1, program);  // now both arrays have the same values
  program.synchronize();
  for (size_t i = 0; i < 2; ++i) wire.pass(0, runtime.shards().array(i).handle().raw());
  board.flags[kHasMapped].wait();
  make_step(runtime, 2, program, [&board] {
    board.flags[kChanges].raise();
    board.flags[kSawChange].wait();
  });
  int64_t step = 3;
  for (; !board.flags[kIsDone].raised(); ++step) {
    make_step(runtime, step, program);
    if (step % 4 == 0) static_cast<void>(runtime.digests());
    if (step % 2 == 0) looks.wait_for_one(board.flags[kIsDone]);  // the others go by as fast as they can
  }
  runtime.leave_group();
  return step > 10 ? "" : fmt::format("only {} steps were made", step);
}

/// Values of one step, in both arrays each, as their stamps say; "" when all that it saw was so.
std::string look(const Accelerator& accelerator, pliant_test::Board& board, const pliant_test::Wire& wire,
                 const Looks& looks) {
  Stream stream(accelerator, 0);
  data::ArrayDigests digests(accelerator, 0, stream, true);
  std::vector<detail::ImportedMemory> memory;
  for (int i = 0; i < 2; ++i) {
    const pliant_ipc_handle handle = wire.take(1);
    memory.emplace_back(accelerator, 0, handle);
    pliant_test::close_descriptor(handle);
  }
  std::string fault;
  std::vector<float> copy(kValueBytes / sizeof(float));
  {
    MappedShard first(memory[0].pointer(), kValueBytes, stream);
    if (!first.stamp() || first.stamp()->head.step != 1) fault = "it does not begin with step 1";
    board.flags[kHasMapped].raise();
    board.flags[kChanges].wait();
    if (fault.empty() && (first.stamp() || first.read(copy.data())))
      fault = "values that change are said to be of a step";
    board.flags[kSawChange].raise();
  }
  int64_t verified = 0;
  std::set<int64_t> steps;
  for (int i = 0; fault.empty() && (steps.size() < 30 || verified < 10); ++i) {
    MappedShard shard(memory[static_cast<size_t>(i % 2)].pointer(), kValueBytes, stream);
    const std::optional<Stamp> stamp = shard.read(copy.data());
    looks.add();
    if (!stamp) continue;
    const int64_t step = stamp->head.step;
    if (!steps.empty() && step < *steps.rbegin()) fault = fmt::format("step {} after {}", step, *steps.rbegin());
    steps.insert(step);
    for (int64_t k = 0; k < kElements && fault.empty(); ++k) {
      const float value = copy[static_cast<size_t>(k)];
      if (value != value_of(k, step)) fault = fmt::format("step {}: element {} is {}", step, k, value);
    }
    if (stamp->head.is_digested == 0) continue;
    ++verified;
    if (!wrong_chunks(*stamp, copy.data(), digests).empty()) fault = fmt::format("step {}: wrong digests", step);
  }
  memory.clear();  // before the owner frees it
  board.flags[kIsDone].raise();
  return fault;
}

TEST_CASE(
    "another process that maps what a rank owns while it trains sees whole values of one step, or that they change") {
  for (const test::Machine& machine : all_machines()) {
    if (machine.name == "sim, of one process") continue;
    CAPTURE(machine.name);
    const Looks looks;
    pliant_test::run_pair(
        [&](const pliant_test::Rank& self, const pliant_test::Wire& wire) -> std::string {
          const Accelerator accelerator = test::open(machine);
          return self.rank == 0 ? train(accelerator, self.board, wire, looks)
                                : look(accelerator, self.board, wire, looks);
        },
        [](int32_t) {
          return std::make_unique<pliant_test::Device>(pliant_test::OptionSettings{}, pliant_test::kHostFile);
        });
  }
}

TEST_CASE("where no process can map memory the array has a stamp all the same, and no handle") {
  const Accelerator accelerator = test::open({"", "use = \"sim\"\n[accelerator.sim]\nexchange = false\n"});
  Stream stream(accelerator, 0);
  ShardMemory memory(accelerator, 0, stream, {"weights"});
  memory.make(layout(), *Ownership::deal(kChunks, 1), 0);
  memory.end_change(4);
  CHECK(memory.step() == 4);
  CHECK(memory.bytes_taken(0) == memory.bytes());
  CHECK_THROWS_WITH_AS(static_cast<void>(memory.array(0).handle()),
                       doctest::Contains("other processes cannot map the shards of this one"), Error);
}

}  // namespace
}  // namespace pliant::sharded
