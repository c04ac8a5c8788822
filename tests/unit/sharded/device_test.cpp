// Runtime on devices: what holds the program up where the CPU does not reach their memory, what is used again from step
// to step, and what a device that runs short leaves of a pass.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <latch>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "sharded/runtime.hpp"
#include "unit/elastic/device_machines.hpp"
#include "unit/sharded/says.hpp"

namespace pliant::sharded {
namespace {

constexpr uint64_t kElements = 2000;

Config config_of(const std::string& coordinator, const std::string& more = "") {
  ConfigOverrides overrides;
  overrides.plugin_dirs = {PLIANT_PLUGIN_DIR, PLIANT_BROKEN_COORDINATOR_DIR};
  overrides.read_environment = false;
  return Config::parse(fmt::format("config_version = 1\n[accelerator]\nuse = \"host\"\n[run]\ndeterministic = true\n"
                                   "[coordinator]\nuse = \"{}\"\n{}\n",
                                   coordinator, more),
                       {"accelerator", "coordinator"}, overrides);
}

/// A root, and layers with weights of their own below it.
struct Layers {
  std::vector<uint32_t> weights;
  uint32_t root;
  std::vector<uint32_t> modules;

  Layers(Runtime& runtime, int count) {
    for (int i = 0; i < count; ++i) {
      ParameterSpec spec;
      spec.name = fmt::format("layer.{}.weights", i);
      spec.shape = {static_cast<int64_t>(kElements)};
      spec.initialise = [](std::span<float> values) { std::fill(values.begin(), values.end(), 1.0F); };
      weights.push_back(runtime.model.add(std::move(spec)));
    }
    ModuleSpec whole;
    whole.name = "model";
    root = runtime.model.add(std::move(whole));
    for (int i = 0; i < count; ++i) {
      ModuleSpec layer;
      layer.name = fmt::format("layer.{}", i);
      layer.parent = ModuleId{root};
      layer.own = {ParameterId{weights[static_cast<size_t>(i)]}};
      modules.push_back(runtime.model.add(std::move(layer)));
    }
    runtime.close_model();
  }
};

void visit(Runtime& runtime, uint32_t module) {
  runtime.enter(module, Direction::kForward);
  runtime.leave(module, Direction::kForward);
}

TEST_CASE("a bound of waits holds up a program that waits too far ahead, and does not count what is gathered ahead") {
  const Config config = config_of("broken", "[coordinator.broken]\nahead = true\nwaits = 1");
  for (const test::Machine& machine : test::machines_and_gpus()) {
    CAPTURE(machine.name);
    const Accelerator accelerator = test::open(machine);
    test::run_healthy_ranks(accelerator, 1, [&](int32_t, Communicator& group, Stream& exchange) {
      Stream program(accelerator, 0);
      Runtime runtime(config, accelerator, 0, program, exchange, {});
      const Layers of(runtime, 6);
      runtime.enter_group(group);
      runtime.initialise();
      runtime.begin_evaluation();
      {
        const test::Gate gate(exchange);
        runtime.enter(of.root, Direction::kForward);  // gathers all six, which stand behind the gate
        visit(runtime, of.modules[0]);
        visit(runtime, of.modules[1]);
        CHECK_FALSE(gate.was_waited_for());
      }
      for (size_t i = 2; i < 6; ++i) visit(runtime, of.modules[i]);
      runtime.leave(of.root, Direction::kForward);
      runtime.end_pass();

      runtime.begin_evaluation();
      {
        const test::Gate gate(exchange, std::chrono::milliseconds(50));
        runtime.enter(of.root, Direction::kForward);
        for (size_t i = 0; i < 3; ++i) visit(runtime, of.modules[i]);
        CHECK(gate.was_waited_for());  // the wait of the third: those of two before it were unfinished
      }
      for (size_t i = 3; i < 6; ++i) visit(runtime, of.modules[i]);
      runtime.leave(of.root, Direction::kForward);
      runtime.end_pass();
      runtime.leave_group();
    });
  }
  test::check_doubles_are_clean();
}

TEST_CASE("with poison the memory of what was released is NaN on every device, once the exchange comes to it") {
  const Config config = config_of("eager", "poison = true\nbudget = 65536");
  for (const test::Machine& machine : test::machines_and_gpus()) {
    CAPTURE(machine.name);
    const Accelerator accelerator = test::open(machine);
    test::run_healthy_ranks(accelerator, 1, [&](int32_t, Communicator& group, Stream& exchange) {
      Stream program(accelerator, 0);
      Runtime runtime(config, accelerator, 0, program, exchange, {});
      const Layers of(runtime, 2);
      runtime.enter_group(group);
      runtime.initialise();
      runtime.begin_evaluation();
      runtime.enter(of.modules[0], Direction::kForward);
      const void* const kept = runtime.value(of.weights[0]);
      runtime.leave(of.modules[0], Direction::kForward);
      exchange.synchronize();
      std::vector<uint32_t> bits(kElements);
      program.copy(bits.data(), kept, kElements * sizeof(float));  // of the budget's memory, which stays
      program.synchronize();
      CHECK(std::count(bits.begin(), bits.end(), 0xFFFFFFFFU) == static_cast<std::ptrdiff_t>(kElements));
      runtime.end_pass();
      runtime.leave_group();
    });
  }
  test::check_doubles_are_clean();
}

/// Counts the events that are made on an accelerator while this lives. One at a time.
class EventsMade {
 public:
  explicit EventsMade(const Accelerator& accelerator)
      : slots_(const_cast<pliant_accelerator&>(detail::inside(accelerator).slots().table())) {
    made_ = 0;
    make_ = slots_.event_create;
    slots_.event_create = [](void* self, int32_t device, uint32_t flags, pliant_event** out, pliant_error* error) {
      ++made_;
      return make_(self, device, flags, out, error);
    };
  }
  ~EventsMade() { slots_.event_create = make_; }
  EventsMade(const EventsMade&) = delete;
  EventsMade& operator=(const EventsMade&) = delete;
  [[nodiscard]] static int64_t count() { return made_; }

 private:
  pliant_accelerator& slots_;
  inline static std::atomic<int64_t> made_ = 0;
  inline static int32_t (*make_)(void*, int32_t, uint32_t, pliant_event**, pliant_error*) = nullptr;
};

constexpr float kFilled = 0x1.7e7e7ep-1F;    ///< of four bytes 0x3f
constexpr float kFilled16 = 0x1.7e0000p-1F;  ///< of two, as bf16

/// Forward and backward. The program is done with each module before it leaves it. `sends`: is called before it leaves
/// one backward.
void make_pass(
    Runtime& runtime, const Layers& of, RowRange rows, Stream& program, const std::function<void()>& sends = [] {}) {
  runtime.begin_pass(rows);
  runtime.enter(of.root, Direction::kForward);
  for (const uint32_t module : of.modules) {
    runtime.enter(module, Direction::kForward);
    program.synchronize();
    runtime.leave(module, Direction::kForward);
  }
  runtime.leave(of.root, Direction::kForward);
  runtime.enter(of.root, Direction::kBackward);
  for (size_t i = of.modules.size(); i-- > 0;) {
    runtime.enter(of.modules[i], Direction::kBackward);
    if (rows.count > 0) {
      program.fill(runtime.gradient(of.weights[i]), 0x3f, kElements * bytes_of(runtime.reduce_dtype()));
      program.synchronize();
    }
    sends();
    runtime.leave(of.modules[i], Direction::kBackward);
  }
  runtime.leave(of.root, Direction::kBackward);
  runtime.end_pass();
}

void begin_step(Runtime& runtime, int32_t world_size) {
  runtime.begin_step(
      4, 2, share_out(4, {.world_size = world_size, .granule = 2, .deterministic = true, .in_turn = true}), true);
}

TEST_CASE("the events of gathers and of gradients are used again: more steps and evaluations make no more of them") {
  const Accelerator accelerator = test::sim("host_visible = false\nmax_delay_us = 20\n");
  for (const std::string coordinator : {"eager", "zero3", "planned"}) {
    CAPTURE(coordinator);
    const EventsMade events(accelerator);
    int64_t early = 0;
    test::run_healthy_ranks(accelerator, 1, [&](int32_t, Communicator& group, Stream& exchange) {
      Stream program(accelerator, 0);
      Runtime runtime(config_of(coordinator), accelerator, 0, program, exchange, {});
      const Layers of(runtime, 6);
      runtime.enter_group(group);
      runtime.initialise();
      const auto evaluate = [&] {
        runtime.begin_evaluation();
        for (const uint32_t module : of.modules) {
          runtime.enter(module, Direction::kForward);
          program.synchronize();
          runtime.leave(module, Direction::kForward);
        }
        runtime.end_pass();
      };
      for (int step = 0; step < 9; ++step) {
        begin_step(runtime, 1);
        for (int64_t row = 0; row < 4; row += 2) make_pass(runtime, of, {row, 2}, program);
        runtime.finish_gradient(1);
        runtime.allow_update();
        runtime.update([](const ShardRange&) {});
        for (int pass = 0; pass < 3; ++pass) evaluate();
        if (step == 3) early = EventsMade::count();  // in the first ones a trace is made and times are taken
      }
      for (int pass = 0; pass < 9; ++pass) evaluate();
      runtime.leave_group();
    });
    CHECK(early > 0);
    CHECK(EventsMade::count() == early);
  }
}

void on_a_thread(const std::function<void()>& work) {
  std::exception_ptr thrown;
  std::thread([&] {
    try {
      work();
    } catch (...) {
      thrown = std::current_exception();
    }
  }).join();
  if (thrown) std::rethrow_exception(thrown);
}

/// Two steps of two ranks, each part of which `runs` runs; then the first layer's weights.
std::vector<float> trained_in_parts(const Accelerator& accelerator, const std::string& coordinator,
                                    const std::function<void(const std::function<void()>&)>& runs) {
  std::vector<float> weights(kElements);
  test::run_healthy_ranks(accelerator, 2, [&](int32_t rank, Communicator& group, Stream& exchange) {
    Stream program(accelerator, 0);
    Runtime runtime(config_of(coordinator), accelerator, 0, program, exchange, {});
    const Layers of(runtime, 4);
    runs([&] { runtime.enter_group(group); });
    runs([&] { runtime.initialise(); });
    for (int step = 0; step < 2; ++step) {
      runs([&] { begin_step(runtime, 2); });
      runs([&] {
        runtime.begin_pass({2 * rank, 2});
        for (const uint32_t module : of.modules) visit(runtime, module);
      });
      for (size_t i = of.modules.size(); i-- > 0;) {
        runs([&] {
          runtime.enter(of.modules[i], Direction::kBackward);
          program.fill(runtime.gradient(of.weights[i]), 0x3f, kElements * sizeof(float));
        });
        runs([&] { runtime.leave(of.modules[i], Direction::kBackward); });
      }
      runs([&] { runtime.end_pass(); });
      runs([&] { CHECK(runtime.finish_gradient(1).finite); });
      runs([&] {
        runtime.allow_update();
        runtime.update([&](const ShardRange& range) {
          const std::array<const void*, 2> both{range.weights, range.gradient};
          program.reduce(range.weights, both, range.count, DType::kF32, ReduceOp::kSum, 0.5);
        });
      });
    }
    std::vector<float> seen(kElements);
    runs([&] { runtime.read(of.weights.front(), seen); });
    if (rank == 0) weights = seen;
    runs([&] { runtime.leave_group(); });
  });
  return weights;
}

TEST_CASE("calls on a device may come from any thread, one at a time") {
  const auto here = [](const std::function<void()>& work) { work(); };
  const std::vector<float> expected = trained_in_parts(test::open_host(), "eager", here);
  CHECK(expected.back() != 1.0F);
  for (const test::Machine& machine : test::machines_and_gpus()) {
    const Accelerator accelerator = test::open(machine);
    for (const char* const coordinator : {"eager", "zero3", "planned"}) {
      CAPTURE(machine.name);
      CAPTURE(coordinator);
      CHECK(trained_in_parts(accelerator, coordinator, on_a_thread) == expected);
    }
  }
  test::check_doubles_are_clean();
}

template <class Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.message();
  }
  return "nothing was thrown";
}

/// What two ranks came to in a step of one pass, where the second has no memory for some of its allocations.
struct Met {
  std::exception_ptr thrown[2];
  bool has_finished[2] = {false, false};  ///< the step
  std::ptrdiff_t lost[2] = {0, 0};        ///< elements of its gradient that are not the sum of both
  bool is_of_addition = false;            ///< memory lacked for the sum that what was received is added to
  std::vector<std::string> then{};        ///< what the second rank was told when it went on
};

/// `failing`: allocations of the second rank, counted from 1. The first one sends no gradient before the second has
/// sent its first: that is on its way while the second goes on.
Met meet_shortage(bool is_here, const std::string& types, const std::vector<int>& failing) {
  const std::string options = fmt::format("use = \"sim\"\n[accelerator.sim]\nhost_visible = {}\n", is_here);
  const Accelerator well(test::ConfigFile(options).open());
  const Accelerator scarce(
      test::ConfigFile(options + fmt::format("fail_alloc_at = [{}]\n", fmt::join(failing, ", "))).open());
  const CommId id = well.make_comm_id(2);
  std::latch first_is_sent(1);  // or will not be
  int scattered = 0;            // by the second
  Met met;
  const auto run = [&](int32_t rank) {
    const Accelerator& accelerator = rank == 0 ? well : scarce;
    Stream exchange(accelerator, 0);
    Stream program(accelerator, 0);
    Communicator group(accelerator, 0, id, rank, 2);
    group.wait_ready(60000);
    Runtime runtime(config_of("eager", types), accelerator, 0, program, exchange, {});
    const Layers of(runtime, 2);
    runtime.enter_group(group);
    runtime.initialise();
    begin_step(runtime, 2);
    runtime.watch([&](Runtime::Begun begun) {
      if (rank == 1 && begun == Runtime::Begun::kScatter && scattered++ == 0) first_is_sent.count_down();
    });
    try {
      make_pass(runtime, of, {2 * rank, 2}, program, [&] {
        if (rank == 0) first_is_sent.wait();
      });
    } catch (const Error& error) {
      const bool has_name = error.message().find("no memory for ") != std::string::npos;
      if (rank == 1 && !has_name && error.message().find("of 8192 bytes") != std::string::npos) {
        met.is_of_addition = true;
        met.then.push_back(refusal([&] { runtime.leave(of.root, Direction::kBackward); }));
        met.then.push_back(refusal([&] { runtime.end_pass(); }));
        CHECK_FALSE(runtime.is_complete());
      }
      throw;
    }
    runtime.finish_gradient(1);
    runtime.allow_update();
    runtime.update([&](const ShardRange& range) {
      std::vector<float> gradient(range.count);
      program.copy(gradient.data(), range.gradient, range.count * sizeof(float));
      program.synchronize();
      const float of_both = 2 * (runtime.reduce_dtype() == DType::kF32 ? kFilled : kFilled16);
      met.lost[rank] += std::count_if(gradient.begin(), gradient.end(), [&](float one) { return one != of_both; });
    });
    met.has_finished[rank] = true;
    runtime.leave_group();
  };
  std::vector<std::thread> ranks;
  for (int32_t rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      try {
        run(rank);
      } catch (...) {
        met.thrown[rank] = std::current_exception();
      }
      if (rank == 1 && scattered == 0) first_is_sent.count_down();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return met;
}

std::optional<Status> status_of(const std::exception_ptr& thrown) {
  if (!thrown) return std::nullopt;
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    return error.status();
  }
}

TEST_CASE("a rank that has no memory to add what it received gives the pass up, and no rank finishes the step") {
  for (const bool is_here : {true, false}) {
    CAPTURE(is_here);
    int of_additions = 0;
    for (int number = 1; number <= 24; ++number) {  // more than it makes
      CAPTURE(number);
      const Met met = meet_shortage(is_here, "", {number});
      CHECK(met.has_finished[1] == !met.thrown[1]);
      for (const std::ptrdiff_t lost : met.lost) CHECK(lost == 0);
      if (!met.thrown[1]) continue;
      CHECK(status_of(met.thrown[1]) == Status::kResourceExhausted);
      if (!met.is_of_addition) continue;
      ++of_additions;
      for (const std::string& then : met.then) {
        CHECK(says(then, "a call of this pass has failed, so the pass cannot continue"));
      }
      CHECK_FALSE(met.has_finished[0]);
      const std::optional<Status> other = status_of(met.thrown[0]);
      CHECK((other == Status::kPeerLost || other == Status::kAborted));
    }
    CHECK(of_additions > 0);
  }
}

TEST_CASE("where memory lacks for more than one thing, a step that is finished has the whole gradient all the same") {
  int finished = 0;
  int of_additions = 0;
  for (int first = 8; first < 24; ++first) {
    for (int more = 1; more <= 4; ++more) {
      CAPTURE(first);
      CAPTURE(more);
      const Met met = meet_shortage(true, "reduce_dtype = \"bf16\"", {first, first + more});
      CHECK(met.has_finished[1] == !met.thrown[1]);
      for (const std::ptrdiff_t lost : met.lost) CHECK(lost == 0);
      finished += met.has_finished[1] ? 1 : 0;
      of_additions += met.is_of_addition ? 1 : 0;
    }
  }
  CHECK(finished > 0);
  CHECK(of_additions > 0);
}

/// The device computes squared norms until refuse(), and then says that it cannot. One at a time.
class RefusedNorms {
 public:
  explicit RefusedNorms(const Accelerator& accelerator) : calls_(detail::inside(accelerator).optimizer) {
    REQUIRE(calls_.has(&pliant_optimizer::squared_norms_async));
    before_ = calls_;
    refuses_ = false;
    real_ = before_.table().squared_norms_async;
    own_ = before_.table();
    own_.squared_norms_async = [](void* self, double* to, const float* from, uint64_t count, pliant_stream* stream,
                                  pliant_error* error) {
      if (refuses_) return int32_t{PLIANT_UNIMPLEMENTED};
      return real_(self, to, from, count, stream, error);
    };
    calls_ = {own_, before_.self()};
  }
  ~RefusedNorms() { calls_ = before_; }
  RefusedNorms(const RefusedNorms&) = delete;
  RefusedNorms& operator=(const RefusedNorms&) = delete;
  static void refuse() { refuses_ = true; }

 private:
  sdk::Calls<pliant_optimizer>& calls_;
  sdk::Calls<pliant_optimizer> before_;
  pliant_optimizer own_{};
  inline static bool refuses_ = false;
  inline static decltype(pliant_optimizer::squared_norms_async) real_ = nullptr;
};

TEST_CASE("of a device that looks at gradients and then refuses to, no gradient is taken to be finite") {
  const Accelerator accelerator = test::sim("host_visible = false\n");
  const Config config = config_of("eager");
  for (const bool refuses : {false, true}) {
    CAPTURE(refuses);
    const RefusedNorms norms(accelerator);
    test::run_healthy_ranks(accelerator, 1, [&](int32_t, Communicator& group, Stream& exchange) {
      Stream program(accelerator, 0);
      Runtime runtime(config, accelerator, 0, program, exchange, {});
      const Layers of(runtime, 1);
      runtime.enter_group(group);
      runtime.initialise();
      begin_step(runtime, 1);
      for (int64_t block = 0; block < 2; ++block) {
        if (block == 1 && refuses) RefusedNorms::refuse();
        const RowRange rows{2 * block, 2};
        make_pass(runtime, of, rows, program, [&] {  // the first has NaN
          if (block > 0) return;
          program.fill(runtime.gradient(of.weights[0]), 0xff, kElements * sizeof(float));
          program.synchronize();
        });
      }
      CHECK(runtime.is_finite(0) == (refuses ? std::nullopt : std::optional(false)));
      CHECK(runtime.is_finite(1) == (refuses ? std::nullopt : std::optional(true)));
      CHECK_FALSE(runtime.finish_gradient(1).finite);
      runtime.leave_group();
    });
  }
}

}  // namespace
}  // namespace pliant::sharded
