// Runtime: shards have the bits that a reduction of whole gradients has, whoever computes what; what is refused.
#include "sharded/runtime.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <mutex>
#include <random>

#include "elastic/piecewise_norm.hpp"
#include "elastic/reduction.hpp"
#include "pliant/optimizer.hpp"
#include "sharded/rehearsal.hpp"
#include "thorough.hpp"
#include "unit/elastic/device_machines.hpp"

namespace pliant::sharded {
namespace {

Config config_with(const std::string& coordinator, bool deterministic, const std::string& more = "") {
  ConfigOverrides overrides;
  overrides.plugin_dirs = {PLIANT_PLUGIN_DIR, PLIANT_BROKEN_COORDINATOR_DIR};
  overrides.read_environment = false;
  return Config::parse(fmt::format("config_version = 1\n[accelerator]\nuse = \"host\"\n[run]\ndeterministic = {}\n"
                                   "[coordinator]\nuse = \"{}\"\n{}\n",
                                   deterministic, coordinator, more),
                       {"accelerator", "coordinator"}, overrides);
}

template <class Call>
std::string refusal(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.message();
  }
  return "nothing was thrown";
}

bool has(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

/// As floats on the host, of an array of the device.
std::vector<float> read_array(const void* array, DType type, uint64_t count, Stream& stream) {
  std::vector<float> values(count);
  if (count == 0) return values;
  std::vector<uint16_t> halves(type == DType::kF32 ? 0 : count);
  void* const to = type == DType::kF32 ? static_cast<void*>(values.data()) : halves.data();
  stream.copy(to, array, count * bytes_of(type));
  stream.synchronize();
  for (uint64_t k = 0; k < halves.size(); ++k) values[k] = std::bit_cast<float>(uint32_t{halves[k]} << 16U);
  return values;
}

/// Rounds to the nearest bf16, halves to even.
float as_bf16(float value) {
  auto bits = std::bit_cast<uint32_t>(value);
  bits += 0x7FFFU + ((bits >> 16U) & 1U);
  return std::bit_cast<float>(bits & 0xFFFF0000U);
}
/// The other way round.
void write_array(void* array, DType type, const std::vector<float>& values, Stream& stream) {
  if (values.empty()) return;
  std::vector<uint16_t> halves;
  for (const float value : values)
    halves.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(as_bf16(value)) >> 16U));
  const void* const from = type == DType::kF32 ? static_cast<const void*>(values.data()) : halves.data();
  stream.copy(array, from, values.size() * bytes_of(type));
  stream.synchronize();
}
/// `value` as an array of `type` holds it.
float held_as(DType type, float value) {
  return type == DType::kF32 ? value : as_bf16(value);
}

/// A root, an embedding that the head shares, a layer with a frozen part, one without elements, and one that no visit
/// uses.
struct Toy {
  static constexpr uint64_t kSizes[] = {1500, 1, 0, 3000, 77};
  std::vector<uint32_t> parameters;
  uint32_t root = 0, embed = 0, layer = 0, head = 0, unused = 0;

  explicit Toy(Runtime& runtime) {
    for (size_t i = 0; i < std::size(kSizes); ++i) {
      ParameterSpec spec;
      spec.name = fmt::format("p{}", i);
      spec.shape = {static_cast<int64_t>(kSizes[i])};
      spec.frozen = i == 1;
      spec.initialise = [i](std::span<float> values) {
        for (size_t k = 0; k < values.size(); ++k) values[k] = first_value(i, k);
      };
      parameters.push_back(runtime.model.add(std::move(spec)));
    }
    const auto module = [&runtime](const char* name, std::optional<uint32_t> parent, std::vector<uint32_t> own,
                                   std::vector<uint32_t> external = {}) {
      ModuleSpec spec;
      spec.name = name;
      if (parent) spec.parent = ModuleId{*parent};
      for (const uint32_t one : own) spec.own.push_back(ParameterId{one});
      for (const uint32_t one : external) spec.external.push_back(ParameterId{one});
      return runtime.model.add(std::move(spec));
    };
    root = module("model", std::nullopt, {});
    embed = module("embed", root, {0});
    layer = module("layer", root, {1, 2, 3});
    head = module("head", root, {}, {0});
    unused = module("unused", root, {4});
    runtime.close_model();
  }
  static float first_value(size_t parameter, size_t element) {
    return static_cast<float>(parameter) + static_cast<float>(element % 100) / 128;
  }
  static uint64_t offset(uint32_t parameter) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < parameter; ++i) sum += kSizes[i];
    return sum;
  }
  static uint64_t elements() { return offset(static_cast<uint32_t>(std::size(kSizes))); }
};

/// The gradient of a block of rows, of wild sizes, so that another order of additions gives other bits.
std::vector<float> gradient_of(RowRange rows) {
  std::mt19937 random(static_cast<uint32_t>(rows.first * 31 + rows.count));
  std::vector<float> all(Toy::elements());
  for (float& one : all)
    one = std::ldexp(static_cast<float>(static_cast<int32_t>(random())), static_cast<int>(random() % 20) - 40);
  std::fill_n(all.begin() + static_cast<std::ptrdiff_t>(Toy::offset(1)), 1, 0.0F);   // frozen
  std::fill_n(all.begin() + static_cast<std::ptrdiff_t>(Toy::offset(4)), 77, 0.0F);  // not used
  return all;
}

/// The same as make_pass hands it in, where gradients are of `type`: that of the shared parameter comes in two halves.
std::vector<float> gradient_in(DType type, RowRange rows) {
  std::vector<float> all = gradient_of(rows);
  for (uint64_t k = 0; k < all.size(); ++k) {
    const bool is_shared = k < Toy::kSizes[0];
    all[k] = is_shared ? held_as(type, held_as(type, 0.5F * all[k]) + 0.5F * all[k]) : held_as(type, all[k]);
  }
  return all;
}

void make_pass(Runtime& runtime, const Toy& toy, RowRange rows, Stream& stream) {
  const std::vector<float> gradient = rows.count > 0 ? gradient_of(rows) : std::vector<float>();
  runtime.begin_pass(rows);
  const auto visit = [&](uint32_t module, Direction direction, std::vector<uint32_t> used, float share) {
    runtime.enter(module, direction);
    for (const uint32_t parameter : used) {
      const DType computed = runtime.compute_dtype();
      const uint64_t elements = Toy::kSizes[parameter];
      const std::vector<float> value = read_array(runtime.value(parameter), computed, elements, stream);
      for (uint64_t k = 0; k < elements; ++k) REQUIRE(value[k] == held_as(computed, Toy::first_value(parameter, k)));
      if (direction != Direction::kBackward || parameter == 1 || rows.count == 0) continue;
      void* const to = runtime.gradient(parameter);
      const DType type = runtime.reduce_dtype();
      std::vector<float> sum = read_array(to, type, elements, stream);
      for (uint64_t k = 0; k < elements; ++k) sum[k] += share * gradient[Toy::offset(parameter) + k];
      write_array(to, type, sum, stream);
    }
    runtime.leave(module, direction);
  };
  runtime.enter(toy.root, Direction::kForward);
  visit(toy.embed, Direction::kForward, {0}, 0);
  visit(toy.layer, Direction::kForward, {1, 2, 3}, 0);
  visit(toy.head, Direction::kForward, {0}, 0);
  runtime.leave(toy.root, Direction::kForward);
  runtime.enter(toy.root, Direction::kBackward);
  visit(toy.head, Direction::kBackward, {0}, 0.5F);
  visit(toy.layer, Direction::kBackward, {1, 2, 3}, 1);
  visit(toy.embed, Direction::kBackward, {0}, 0.5F);
  runtime.leave(toy.root, Direction::kBackward);
  runtime.end_pass();
}

/// A coordinator and, of [coordinator], more than its name.
struct Way {
  std::string coordinator;
  std::string more;
};
/// For the model whole, its gradients and what arrives for them, at up to five ranks.
constexpr int kRoomyBudget = 53248;
std::vector<Way> ways(int budget = kRoomyBudget) {
  return {{"eager", ""}, {"zero3", ""}, {"planned", ""}, {"planned", fmt::format("budget = {}\n", budget)}};
}

/// The mean gradient of a step of `rows` rows, put together from the shards of all ranks, and its squared norm.
std::pair<std::vector<float>, double> mean_in_shards(const Accelerator& accelerator, const std::string& coordinator,
                                                     int32_t world_size, int64_t rows, bool deterministic,
                                                     const std::string& more = "") {
  std::vector<float> whole(Toy::elements());
  std::vector<double> norms(static_cast<size_t>(world_size));
  std::mutex mutex;
  test::run_healthy_ranks(accelerator, world_size, [&](int32_t rank, Communicator& group, Stream& stream) {
    Stream program(accelerator, 0);
    Runtime runtime(config_with(coordinator, deterministic, more), accelerator, 0, program, stream, {"moment"});
    const Toy toy(runtime);
    runtime.enter_group(group);
    runtime.initialise();
    const std::array<uint64_t, 1> all{Toy::elements()};
    elastic::PiecewiseNorm of_pass(all);
    runtime.measure_gradients(
        [&of_pass](size_t, uint64_t offset, std::span<const float> values) { of_pass.add(offset, values); });
    for (int step = 0; step < 3; ++step) {  // a trace is recorded in the first, and followed from then on
      const Assignment dealt = share_out(
          rows,
          {.world_size = world_size, .micro_batch = 2, .granule = 2, .deterministic = deterministic, .in_turn = true});
      runtime.begin_step(rows, 2, dealt, true);
      const auto own = dealt.of(rank);
      for (size_t i = 0; i < runtime.rounds(); ++i) {
        of_pass.clear();
        make_pass(runtime, toy, i < own.size() ? own[i] : RowRange{}, program);
        if (i < own.size()) CHECK(of_pass.sum() == squared_norm(gradient_in(runtime.reduce_dtype(), own[i])));
      }
      REQUIRE(runtime.is_complete());
      norms[static_cast<size_t>(rank)] = runtime.finish_gradient(0.125).squared_norm;
      CHECK_THROWS_WITH(static_cast<void>(runtime.squared_gradient_norm()),
                        doctest::Contains("call it after Step::commit"));
      if (step < 2) runtime.allow_update();  // as a commit would, before the next step begins
    }
    const std::lock_guard lock(mutex);
    runtime.allow_update();
    CHECK(runtime.squared_gradient_norm() == norms[static_cast<size_t>(rank)]);
    runtime.update([&](const ShardRange& range) {
      const uint64_t at = Toy::offset(static_cast<uint32_t>(range.parameter)) + range.first;
      const std::vector<float> part = read_array(range.gradient, DType::kF32, range.count, program);
      std::copy(part.begin(), part.end(), whole.begin() + static_cast<std::ptrdiff_t>(at));
    });
    CHECK(runtime.memory().gathered == 0);
    runtime.leave_group();
  });
  for (const double norm : norms) CHECK(norm == norms.front());
  return {whole, norms.front()};
}

std::vector<float> mean_of_whole(const Accelerator& accelerator, int64_t rows, DType type = DType::kF32) {
  std::vector<float> mean;
  test::run_healthy_ranks(accelerator, 1, [&](int32_t, Communicator& group, Stream& stream) {
    Stream program(accelerator, 0);
    elastic::GradientReduction reduction(accelerator, 0, program, Toy::elements(), true);
    const Assignment runs = share_out(rows, {.world_size = 1, .granule = 2, .deterministic = true});
    reduction.begin(rows, 2, runs, 0);
    for (const RowRange block : runs.of(0)) reduction.add(block, 0, 1, 0, gradient_in(type, block));
    const auto reduced = reduction.reduce(group, stream, {});
    for (const float one : reduced.gradient) mean.push_back(one * 0.125F);
  });
  return mean;
}

TEST_CASE("shards have the bits that a reduction of whole gradients has, at every number of ranks") {
  const Accelerator accelerator = test::open_host();
  for (const int64_t rows : {1, 2, 7, 16, 23}) {
    CAPTURE(rows);
    const std::vector<float> expected = mean_of_whole(accelerator, rows);
    for (const Way& way : ways()) {
      for (const int32_t world_size : {1, 2, 3, 5}) {
        CAPTURE(way.coordinator);
        CAPTURE(way.more);
        CAPTURE(world_size);
        const auto [mean, norm] = mean_in_shards(accelerator, way.coordinator, world_size, rows, true, way.more);
        CHECK(mean == expected);
        CHECK(norm == squared_norm(expected));
      }
    }
  }
}

TEST_CASE("bf16 is rounded once on either way, and added up in f32: the bits do not depend on the ranks") {
  const Accelerator accelerator = test::open_host();
  for (const auto& types : std::vector<std::pair<std::string, DType>>{
           {"compute_dtype = \"bf16\"\n", DType::kF32},
           {"compute_dtype = \"bf16\"\nreduce_dtype = \"bf16\"\n", DType::kBF16}}) {
    const std::vector<float> expected = mean_of_whole(accelerator, 23, types.second);
    for (const Way& way : ways()) {
      for (const int32_t world_size : {1, 2, 5}) {
        const std::string more = types.first + way.more;
        CAPTURE(more);
        CAPTURE(way.coordinator);
        CAPTURE(world_size);
        const auto [mean, norm] = mean_in_shards(accelerator, way.coordinator, world_size, 23, true, more);
        CHECK(mean == expected);
        CHECK(norm == squared_norm(expected));
      }
    }
  }
}

TEST_CASE("weights are cast once between two updates, anew when they change, and owners keep f32") {
  const Accelerator accelerator = test::open_host();
  test::run_healthy_ranks(accelerator, 2, [&](int32_t rank, Communicator& group, Stream& stream) {
    Stream program(accelerator, 0);
    Runtime runtime(config_with("eager", true, "compute_dtype = \"bf16\""), accelerator, 0, program, stream, {});
    const Toy toy(runtime);
    runtime.enter_group(group);
    runtime.initialise();
    const std::vector<ShardRun> own = runtime.runs(0);
    const auto is_as_at_first = [&] {
      runtime.fetch(3);
      const float seen = read_array(runtime.value(3), DType::kBF16, 3000, program)[7];
      runtime.release(3);
      return seen == as_bf16(Toy::first_value(3, 7));
    };
    CHECK(is_as_at_first());
    // Until an update nothing is cast again: what changes behind the runtime's back does not show, here and in a step.
    for (const ShardRun& run : own) std::fill_n(run.at, run.count, 9.0F);
    CHECK(is_as_at_first());
    runtime.begin_step(4, 2, share_out(4, {.world_size = 2, .granule = 2, .deterministic = true, .in_turn = true}),
                       true);
    make_pass(runtime, toy, {2 * rank, 2}, program);
    runtime.finish_gradient(1);
    runtime.allow_update();
    runtime.update([](const ShardRange& range) { std::fill_n(range.weights, range.count, 1.001F); });
    runtime.fetch(3);
    const std::vector<float> changed = read_array(runtime.value(3), DType::kBF16, 3000, program);
    CHECK(std::count(changed.begin(), changed.end(), as_bf16(1.001F)) == 3000);
    runtime.release(3);
    std::vector<float> kept(Toy::kSizes[3]);
    runtime.read(3, kept);
    CHECK(std::count(kept.begin(), kept.end(), 1.001F) == 3000);
    runtime.leave_group();
  });
}

TEST_CASE(
    "on devices that the CPU does not reach, and where work is late and runs in any order, the bits are the same") {
  const std::vector<float> expected = mean_of_whole(test::open_host(), 7);
  const std::vector<float> in_bf16 = mean_of_whole(test::open_host(), 7, DType::kBF16);
  std::vector<test::Machine> machines = test::machines_and_gpus();
  for (const int seed : {1, 2, 3}) {
    if (!test::is_thorough() && seed > 1) break;
    const std::string options = fmt::format("reorder = true\nmax_delay_us = 200\nseed = {}\n", seed);
    machines.push_back({"sim, in any order", "use = \"sim\"\n[accelerator.sim]\n" + options});
    machines.push_back({"sim, in any order", "use = \"sim\"\n[accelerator.sim]\nhost_visible = false\n" + options});
  }
  for (const test::Machine& machine : machines) {
    const Accelerator accelerator = test::open(machine);
    // At one rank and at three these have no room for all parameters at once: they take turns in their places.
    for (const int32_t world_size : {1, 3}) {
      CAPTURE(machine.name);
      CAPTURE(world_size);
      for (const Way& way : ways(37376)) {
        CAPTURE(way.coordinator);
        CAPTURE(way.more);
        CHECK(mean_in_shards(accelerator, way.coordinator, world_size, 7, true, way.more).first == expected);
      }
      for (const Way& way : ways(19712)) {
        CAPTURE(way.coordinator);
        CAPTURE(way.more);
        const std::string bf16 = "compute_dtype = \"bf16\"\nreduce_dtype = \"bf16\"\n" + way.more;
        CHECK(mean_in_shards(accelerator, way.coordinator, world_size, 7, true, bf16).first == in_bf16);
      }
    }
  }
  test::check_doubles_are_clean();
}

/// What fast mode makes of a step: round by round, and in each in the order of ranks.
std::vector<float> mean_by_ranks(int32_t world_size, int64_t rows) {
  const Assignment dealt = share_out(
      rows, {.world_size = world_size, .micro_batch = 2, .granule = 2, .deterministic = false, .in_turn = true});
  std::vector<float> sum;
  bool adds = true;
  for (size_t round = 0; std::exchange(adds, false); ++round) {
    for (int32_t rank = 0; rank < world_size; ++rank) {
      const auto blocks = dealt.of(rank);
      if (round >= blocks.size()) continue;
      adds = true;
      const std::vector<float> addend = gradient_in(DType::kF32, blocks[round]);
      if (sum.empty()) {
        sum = addend;
      } else {
        for (size_t k = 0; k < sum.size(); ++k) sum[k] += addend[k];
      }
    }
  }
  for (float& one : sum) one *= 0.125F;
  return sum;
}

TEST_CASE("in fast mode shards have the sum in the order of ranks, round by round, to the bit") {
  const Accelerator accelerator = test::open_host();
  const std::vector<float> in_tree = mean_of_whole(accelerator, 23);
  for (const Way& way : ways()) {
    for (const int32_t world_size : {1, 3}) {
      CAPTURE(way.coordinator);
      CAPTURE(way.more);
      CAPTURE(world_size);
      const std::vector<float> expected = mean_by_ranks(world_size, 23);
      const auto [mean, norm] = mean_in_shards(accelerator, way.coordinator, world_size, 23, false, way.more);
      CHECK(mean == expected);
      CHECK(mean != in_tree);
      CHECK(norm == squared_norm(expected));
    }
  }
}

TEST_CASE("what a program does out of order is refused, by the module or parameter") {
  const Accelerator accelerator = test::open_host();
  test::run_healthy_ranks(accelerator, 1, [&](int32_t, Communicator& group, Stream& stream) {
    Stream program(accelerator, 0);
    Runtime runtime(config_with("eager", true), accelerator, 0, program, stream, {});
    const Toy toy(runtime);
    CHECK(has(refusal([&] { runtime.begin_evaluation(); }), "has no group"));
    runtime.enter_group(group);
    runtime.initialise();
    runtime.begin_step(4, 2, share_out(4, {.world_size = 1, .granule = 2, .deterministic = true}), true);
    CHECK(has(refusal([&] { runtime.begin_pass({2, 2}); }), "is out of order: micro-batch 0 of 2 is next"));
    CHECK(has(refusal([&] { runtime.enter(toy.embed, Direction::kForward); }), "outside a pass"));
    runtime.begin_pass({0, 2});
    CHECK(has(refusal([&] { runtime.begin_pass({2, 2}); }), "was not ended"));
    CHECK(has(refusal([&] { runtime.value(0); }), "p0 is not gathered here"));
    runtime.enter(toy.embed, Direction::kForward);
    CHECK(has(refusal([&] { runtime.leave(toy.head, Direction::kForward); }), "embed (forward) is the last"));
    CHECK(has(refusal([&] { runtime.end_pass(); }), "embed was entered but not left"));
    runtime.leave(toy.embed, Direction::kForward);
    CHECK(has(refusal([&] { runtime.value(0); }), "p0 is not gathered here"));
    CHECK(has(refusal([&] { runtime.leave(toy.embed, Direction::kForward); }), "embed was left but not entered"));
    CHECK(has(refusal([&] { runtime.gradient(1); }), "p1 is frozen"));
    runtime.enter(toy.embed, Direction::kBackward);
    runtime.leave(toy.embed, Direction::kBackward);
    CHECK(has(refusal([&] { runtime.gradient(0); }), "p0 has left the last module that used it"));
    CHECK(has(refusal([&] { runtime.fetch(0); }), "inside a pass"));
    runtime.end_pass();
    CHECK_FALSE(runtime.is_complete());
    make_pass(runtime, toy, {2, 2}, program);
    CHECK(runtime.is_complete());
    runtime.fetch(0);
    CHECK(read_array(runtime.value(0), DType::kF32, 1500, program)[5] == Toy::first_value(0, 5));
    runtime.release(0);
    CHECK(has(refusal([&] { runtime.release(0); }), "was not fetched by hand"));
    runtime.leave_group();
  });
}

TEST_CASE("evaluation between passes gathers and leaves nothing behind, and a pass that was given up is made again") {
  const Accelerator accelerator = test::open_host();
  for (const Way& way : ways()) {
    CAPTURE(way.coordinator);
    CAPTURE(way.more);
    test::run_healthy_ranks(accelerator, 2, [&](int32_t rank, Communicator& group, Stream& stream) {
      Stream program(accelerator, 0);
      Runtime runtime(config_with(way.coordinator, true, way.more), accelerator, 0, program, stream, {});
      const Toy toy(runtime);
      runtime.enter_group(group);
      runtime.initialise();
      runtime.begin_evaluation();
      runtime.enter(toy.layer, Direction::kForward);
      CHECK(read_array(runtime.value(3), DType::kF32, 3000, program)[7] == Toy::first_value(3, 7));
      CHECK(has(refusal([&] { runtime.enter(toy.layer, Direction::kBackward); }), "in a pass without gradients"));
      runtime.leave(toy.layer, Direction::kForward);
      runtime.end_pass();
      runtime.begin_evaluation();
      runtime.enter(toy.embed, Direction::kForward);
      runtime.abandon();
      CHECK(runtime.memory().gathered == 0);
      const Ownership owners = runtime.ownership();
      const std::vector<int32_t> was{0, 1};
      CHECK(runtime.enter_group(group, owners, was, 2, 0, [] { FAIL("nothing has to move"); }) == 0);
      runtime.begin_step(4, 2, share_out(4, {.world_size = 2, .granule = 2, .deterministic = true, .in_turn = true}),
                         true);
      make_pass(runtime, toy, {2 * rank, 2}, program);
      CHECK(runtime.is_complete());
      CHECK(runtime.finish_gradient(1).finite);
      runtime.leave_group();
    });
  }
}

/// Every element that this process owns has its first value, and its moment is minus its place in the model.
void check_shards(Runtime& runtime, std::vector<int>& owned) {
  for (const ShardRun& run : runtime.runs(1)) {
    for (uint64_t k = 0; k < run.count; ++k) {
      ++owned[run.first + k];
      REQUIRE(run.at[k] == -static_cast<float>(run.first + k));
    }
  }
  for (const ShardRun& run : runtime.runs(0)) {
    for (uint64_t k = 0; k < run.count; ++k) {
      uint32_t parameter = 0;
      while (run.first + k >= Toy::offset(parameter) + Toy::kSizes[parameter]) ++parameter;
      REQUIRE(run.at[k] == Toy::first_value(parameter, run.first + k - Toy::offset(parameter)));
    }
  }
}

TEST_CASE("what ranks own goes to those who stay or join, bit by bit, and no more of it than must") {
  const Accelerator accelerator = test::open_host();
  struct Turn {
    std::vector<int32_t> processes;  ///< by rank
    int32_t stay;
    uint64_t chunks;  ///< that must move, of 5
  };
  // All begin; two leave, two others join, one leaves from the middle, all change places, one takes everything.
  const std::vector<Turn> turns{{{0, 1, 2, 3}, 4, 0}, {{0, 2, 1, 3}, 2, 3},   {{0, 2}, 2, 0},
                                {{0, 2, 4, 1}, 4, 2}, {{4, 0, 1, 2}, 3, 1},   {{1, 4, 0, 3}, 4, 1},
                                {{3, 0, 4, 1}, 4, 0}, {{2, 0, 1, 3, 4}, 1, 5}};
  std::vector<CommId> ids(turns.size());
  std::vector<uint64_t> sent(turns.size());
  std::vector<std::vector<int>> owned(turns.size(), std::vector<int>(Toy::elements()));
  std::vector<std::vector<int32_t>> owners(turns.size());  // processes by rank
  std::vector<Ownership> maps(turns.size());
  std::mutex mutex;
  test::run_healthy_ranks(accelerator, 5, [&](int32_t process, Communicator& everybody, Stream& stream) {
    Stream program(accelerator, 0);
    Runtime runtime(config_with("eager", true), accelerator, 0, program, stream, {"moment"});
    const Toy toy(runtime);
    for (size_t i = 0; i < turns.size(); ++i) {
      const Turn& turn = turns[i];
      if (process == 0) {
        const CommId made = accelerator.make_comm_id(static_cast<int32_t>(turn.processes.size()));
        const std::lock_guard lock(mutex);
        ids[i] = made;
      }
      everybody.barrier(stream);
      stream.synchronize();
      // A barrier in shared memory is none that a sanitizer sees.
      std::unique_lock reading(mutex);
      const CommId id = ids[i];
      const Ownership from = i > 0 ? maps[i - 1] : Ownership();
      const std::vector<int32_t> before = i > 0 ? owners[i - 1] : std::vector<int32_t>();
      reading.unlock();
      const auto at = std::find(turn.processes.begin(), turn.processes.end(), process);
      if (at != turn.processes.end()) {
        const auto rank = static_cast<int32_t>(at - turn.processes.begin());
        Communicator group(accelerator, 0, id, rank, static_cast<int32_t>(turn.processes.size()));
        group.wait_ready(60000);
        uint64_t bytes = 0;
        bool begun = false;
        if (i == 0) {
          runtime.enter_group(group);
          runtime.initialise();
          for (const ShardRun& run : runtime.runs(1)) {
            for (uint64_t k = 0; k < run.count; ++k) run.at[k] = -static_cast<float>(run.first + k);
          }
        } else {
          std::vector<int32_t> was;
          for (const int32_t one : turn.processes) {
            const auto place = std::find(before.begin(), before.end(), one);
            was.push_back(place == before.end() ? -1 : static_cast<int32_t>(place - before.begin()));
          }
          bytes = runtime.enter_group(group, from, was, turn.stay, 0, [&begun] { begun = true; });
        }
        const std::lock_guard lock(mutex);
        CHECK(begun == (turn.chunks > 0));
        sent[i] += bytes;
        maps[i] = runtime.ownership();
        owners[i].assign(turn.processes.begin(), turn.processes.begin() + turn.stay);
        check_shards(runtime, owned[i]);
        runtime.leave_group();
      }
      everybody.barrier(stream);
      stream.synchronize();
    }
  });
  for (size_t i = 0; i < turns.size(); ++i) {
    CAPTURE(i);
    CHECK(sent[i] == turns[i].chunks * 2 * 1024 * sizeof(float));
    CHECK(std::count(owned[i].begin(), owned[i].end(), 1) == static_cast<std::ptrdiff_t>(Toy::elements()));
  }
}

TEST_CASE("a module may have other parameters from one pass to the next") {
  const Accelerator accelerator = test::open_host();
  for (const Way& way : ways()) {
    CAPTURE(way.coordinator);
    CAPTURE(way.more);
    test::run_healthy_ranks(accelerator, 2, [&](int32_t, Communicator& group, Stream& stream) {
      Stream program(accelerator, 0);
      Runtime runtime(config_with(way.coordinator, true, way.more), accelerator, 0, program, stream, {});
      const Toy toy(runtime);
      runtime.enter_group(group);
      runtime.initialise();
      const auto visit = [&](uint32_t parameter) {
        runtime.begin_evaluation();
        CHECK(has(refusal([&] { runtime.set_parameters(toy.head, {}, {}); }), "was not ended"));
        runtime.enter(toy.head, Direction::kForward);
        const auto value = read_array(runtime.value(parameter), DType::kF32, Toy::kSizes[parameter], program);
        CHECK(value.back() == Toy::first_value(parameter, Toy::kSizes[parameter] - 1));
        runtime.leave(toy.head, Direction::kForward);
        runtime.end_pass();
      };
      visit(0);
      runtime.set_parameters(toy.head, {ParameterId{3}}, {});
      visit(3);
      CHECK(has(refusal([&] { runtime.set_parameters(toy.head, {ParameterId{9}}, {}); }),
                "names parameter 9, but 5 were added"));
      visit(3);
      runtime.set_parameters(toy.head, {}, {ParameterId{0}});
      visit(0);
      runtime.leave_group();
    });
  }
}

TEST_CASE(
    "an answer that breaks a rule is refused whole, by coordinator, visit and parameter, and the next pass begins "
    "anew") {
  struct Case {
    const char* fault;
    const char* words;
  };
  const std::vector<Case> cases{
      {"wait-forgotten", "entering layer forward, the module uses p1, which nothing has waited for"},
      {"external-unseen", "entering head forward, the module uses p0, which is not gathered"},
      {"kind-unknown", "the model has no parameter 1000001"},
      {"place-odd", "it places p1 at byte 8200, which is not a multiple of 256"},
      {"releases-twice", "at the end of a step, action 0: it releases p0, which is not gathered"},
      {"reduces-twice", "leaving head backward, action 2: it reduces the gradient of p0 for the second time"},
      {"reduces-frozen", "it reduces the gradient of p1, which is frozen"},
  };
  const Accelerator accelerator = test::open_host();
  for (const Case& one : cases) {
    CAPTURE(one.fault);
    const Config config = config_with("broken", true, fmt::format("[coordinator.broken]\nfault = \"{}\"", one.fault));
    test::run_healthy_ranks(accelerator, 2, [&](int32_t rank, Communicator& group, Stream& stream) {
      Stream program(accelerator, 0);
      Runtime runtime(config, accelerator, 0, program, stream, {});
      const Toy toy(runtime);
      runtime.enter_group(group);
      runtime.initialise();
      uint64_t gathered = 0;
      const auto pass = [&] {
        gathered = 0;
        runtime.begin_pass({2 * rank, 2});
        for (const auto& [module, direction] :
             {std::pair{toy.layer, Direction::kForward}, std::pair{toy.head, Direction::kForward},
              std::pair{toy.embed, Direction::kForward}, std::pair{toy.embed, Direction::kBackward},
              std::pair{toy.head, Direction::kBackward}, std::pair{toy.layer, Direction::kBackward}}) {
          gathered = runtime.memory().gathered;
          runtime.enter(module, direction);
          gathered = runtime.memory().gathered;
          runtime.leave(module, direction);
        }
        runtime.end_pass();
        gathered = runtime.memory().gathered;
        runtime.finish_gradient(1);
      };
      const Assignment shares = share_out(4, {.world_size = 2, .granule = 2, .deterministic = true, .in_turn = true});
      runtime.begin_step(4, 2, shares, true);
      const std::string first = refusal(pass);
      CHECK(has(first, "coordinator 'broken' broke a rule: "));
      CHECK(has(first, one.words));
      CHECK(runtime.memory().gathered == gathered);  // nothing of the list was carried out
      const std::string then = refusal([&] { runtime.enter(toy.embed, Direction::kForward); });
      const bool is_over = has(first, "at the end of a step");
      CHECK(has(then, is_over ? "outside a pass" : "the pass cannot continue"));
      runtime.abandon();
      CHECK(runtime.memory().gathered == 0);
      runtime.begin_step(4, 2, shares, true);
      CHECK(refusal(pass) == first);
      runtime.leave_group();
    });
  }
}

TEST_CASE("a coordinator that moves shards to or from a tier is refused before any pass, and at plan time") {
  const Accelerator accelerator = test::open_host();
  const auto config_of = [](const std::string& fault) {
    return config_with("broken", true, fmt::format("[coordinator.broken]\nfault = \"{}\"", fault));
  };
  Stream program(accelerator, 0);
  Stream exchange(accelerator, 0);
  Runtime runtime(config_of("tier-assumed"), accelerator, 0, program, exchange, {});
  CHECK(has(refusal([&] { const Toy toy(runtime); }),
            "entering embed forward, action 0: it moves p0 to or from tier 1, and there is no tier"));
  CHECK(has(refusal([&] { check_coordinator(config_of("tier-assumed")); }),
            "coordinator 'broken' broke a rule: entering layer.0 forward, action 0: it moves layer.0.weight to or from "
            "tier 1, and there is no tier"));
  // What else is wrong with one shows in the order of the program.
  for (const char* const fault : {"none", "wait-forgotten", "reduces-twice"}) {
    CAPTURE(fault);
    CHECK(refusal([&] { check_coordinator(config_of(fault)); }) == "nothing was thrown");
  }
  CHECK(has(refusal([] {
              check_coordinator(config_with("zero3", true, "[coordinator.zero3]\noffload_param_device = \"nvme\""));
            }),
            "pliant.toml:9:24: error: coordinator 'zero3': offload_param_device = \"nvme\" needs a tier"));
}

TEST_CASE("whole parameters lie where the coordinator places them, and what comes and goes lies elsewhere") {
  const Accelerator accelerator = test::open_host();
  // 6,144 + 256 + 0 + 12,032 + 512 bytes whole, and room for gradients and what is on its way.
  const Config config = config_with("broken", true, "budget = 81920\n[coordinator.broken]\nplaces = true");
  test::run_healthy_ranks(accelerator, 2, [&](int32_t rank, Communicator& group, Stream& stream) {
    Stream program(accelerator, 0);
    Runtime runtime(config, accelerator, 0, program, stream, {});
    const Toy toy(runtime);
    runtime.enter_group(group);
    runtime.initialise();
    runtime.begin_step(4, 2, share_out(4, {.world_size = 2, .granule = 2, .deterministic = true, .in_turn = true}),
                       true);
    runtime.begin_pass({2 * rank, 2});
    runtime.enter(toy.layer, Direction::kForward);
    runtime.enter(toy.embed, Direction::kForward);
    const auto* const embedding = static_cast<const char*>(runtime.value(0));
    CHECK(static_cast<const char*>(runtime.value(1)) - embedding == 6144);
    CHECK(static_cast<const char*>(runtime.value(3)) - embedding == 6144 + 256);
    CHECK(read_array(runtime.value(3), DType::kF32, 3000, program)[7] == Toy::first_value(3, 7));
    runtime.leave(toy.embed, Direction::kForward);
    runtime.enter(toy.embed, Direction::kBackward);
    CHECK(runtime.value(0) == embedding);
    CHECK(static_cast<const char*>(runtime.gradient(0)) - embedding == 81920 - 6144);
    runtime.leave(toy.embed, Direction::kBackward);
    runtime.leave(toy.layer, Direction::kForward);
    runtime.end_pass();
    CHECK(runtime.finish_gradient(1).finite);
    runtime.leave_group();
  });
}

TEST_CASE(
    "a coordinator that takes costs is told what gathers take, on every rank the same, in the second step of every "
    "group") {
  const Accelerator accelerator = test::open_host();
  const Config config = config_with("broken", true, "[coordinator.broken]\nfault = \"refuses-costs\"");
  constexpr size_t kTurns = 2;
  std::array<std::array<std::string, kTurns>, 2> told;  // by rank; each has its own clock
  test::run_healthy_ranks(accelerator, 2, [&](int32_t rank, Communicator& group, Stream& stream) {
    Stream program(accelerator, 0);
    Runtime runtime(config, accelerator, 0, program, stream, {});
    const Toy toy(runtime);
    const auto step = [&] {
      runtime.begin_step(4, 2, share_out(4, {.world_size = 2, .granule = 2, .deterministic = true, .in_turn = true}),
                         true);
      make_pass(runtime, toy, {2 * rank, 2}, program);
      return refusal([&] { runtime.finish_gradient(1); });
    };
    for (size_t turn = 0; turn < kTurns; ++turn) {
      runtime.enter_group(group);
      runtime.initialise();
      CHECK(step() == "nothing was thrown");
      std::string& words = told[static_cast<size_t>(rank)][turn];
      words = step();
      CHECK(has(words, "costs of 5 parameters, 3 of them gathered"));  // one has no elements, one is in no visit
      CHECK(step() == "nothing was thrown");
      runtime.leave_group();
    }
  });
  CHECK(told[0] == told[1]);
}

TEST_CASE("what is fetched by hand serves passes, too, and is given back by the update that changes it") {
  const Accelerator accelerator = test::open_host();
  for (const Way& way : ways()) {
    CAPTURE(way.coordinator);
    CAPTURE(way.more);
    test::run_healthy_ranks(accelerator, 2, [&](int32_t rank, Communicator& group, Stream& stream) {
      Stream program(accelerator, 0);
      Runtime runtime(config_with(way.coordinator, true, way.more), accelerator, 0, program, stream, {});
      const Toy toy(runtime);
      runtime.enter_group(group);
      runtime.initialise();
      runtime.fetch(0);
      const void* const there = runtime.value(0);
      runtime.begin_step(4, 2, share_out(4, {.world_size = 2, .granule = 2, .deterministic = true, .in_turn = true}),
                         true);
      make_pass(runtime, toy, {2 * rank, 2}, program);
      CHECK(runtime.value(0) == there);
      runtime.finish_gradient(1);
      CHECK(runtime.value(0) == there);
      runtime.allow_update();
      runtime.begin_evaluation();  // its coordinator may keep p0, and nothing else, whole
      runtime.enter(toy.embed, Direction::kForward);
      runtime.leave(toy.embed, Direction::kForward);
      runtime.end_pass();
      runtime.update([](const ShardRange& range) { range.weights[0] += 1; });
      CHECK(has(refusal([&] { runtime.value(0); }), "p0 is not gathered here"));
      runtime.release(0);  // the update has
      CHECK(has(refusal([&] { runtime.release(0); }), "was not fetched by hand"));
      runtime.fetch(0);
      CHECK(read_array(runtime.value(0), DType::kF32, 1500, program)[0] == Toy::first_value(0, 0) + 1);
      runtime.release(0);
      CHECK(runtime.memory().gathered == 0);
      runtime.leave_group();
    });
  }
}

TEST_CASE("a gradient that is not finite on one rank is seen by all, and by that rank in its pass") {
  const Accelerator accelerator = test::open_host();
  test::run_healthy_ranks(accelerator, 2, [&](int32_t rank, Communicator& group, Stream& stream) {
    Stream program(accelerator, 0);
    Runtime runtime(config_with("eager", true), accelerator, 0, program, stream, {});
    const Toy toy(runtime);
    runtime.enter_group(group);
    runtime.initialise();
    runtime.begin_step(4, 2, share_out(4, {.world_size = 2, .granule = 2, .deterministic = true, .in_turn = true}),
                       true);
    runtime.begin_pass({2 * rank, 2});
    runtime.enter(toy.embed, Direction::kForward);
    runtime.leave(toy.embed, Direction::kForward);
    runtime.enter(toy.embed, Direction::kBackward);
    static_cast<float*>(runtime.gradient(0))[9] = rank == 1 ? NAN : 1.0F;
    runtime.leave(toy.embed, Direction::kBackward);
    runtime.end_pass();
    CHECK(runtime.is_finite(0) == (rank == 0));
    CHECK_FALSE(runtime.finish_gradient(1).finite);
    runtime.leave_group();
  });
}

}  // namespace
}  // namespace pliant::sharded
