// Runtime: passes that programs make of it beside the plain ones: a frozen reference beside what is trained, modules
// that are entered again and computed once more, passes that are given up, models of one element and of none.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "sharded/runtime.hpp"
#include "unit/elastic/rank_group.hpp"
#include "unit/sharded/networks.hpp"
#include "unit/sharded/says.hpp"

namespace pliant::sharded {
namespace {

TEST_CASE("a frozen reference beside what is trained keeps its values and changes no bit of the other") {
  check_everywhere(plain_pass, true);
  const std::vector<float> expected = trained_by(plain_pass, "eager", 1, false);
  for (const int32_t world_size : {2, 6}) CHECK(trained_by(plain_pass, "zero3", world_size, true) == expected);
  const std::string budget = fmt::format("budget = {}", 2 * 12032 + 5 * 4096);  // five others send a chunk each
  CHECK(trained_by(plain_pass, "planned", 6, true, budget) == expected);
}

TEST_CASE("a module that is entered again before it is left stays whole until it is left as often") {
  check_everywhere(
      [](Runtime& runtime, const Networks& of, RowRange rows) {
        runtime.begin_pass(rows);
        runtime.enter(of.root, Direction::kForward);
        runtime.enter(of.policy, Direction::kForward);
        runtime.enter(of.policy, Direction::kForward);
        runtime.leave(of.policy, Direction::kForward);
        CHECK(static_cast<float*>(runtime.value(of.trained)) != nullptr);
        runtime.leave(of.policy, Direction::kForward);
        runtime.leave(of.root, Direction::kForward);
        runtime.enter(of.root, Direction::kBackward);
        for (int visit = 0; visit < 2; ++visit) {
          runtime.enter(of.policy, Direction::kBackward);
          add_gradient(runtime, of, rows, 0.5F);
          runtime.leave(of.policy, Direction::kBackward);
        }
        runtime.leave(of.root, Direction::kBackward);
        runtime.end_pass();
      },
      false);
}

TEST_CASE("a module that is computed once more in backward has the same gradient") {
  check_everywhere(
      [](Runtime& runtime, const Networks& of, RowRange rows) {
        runtime.begin_pass(rows);
        runtime.enter(of.root, Direction::kForward);
        runtime.enter(of.policy, Direction::kForward);
        runtime.leave(of.policy, Direction::kForward);
        runtime.leave(of.root, Direction::kForward);
        runtime.enter(of.root, Direction::kBackward);
        runtime.enter(of.policy, Direction::kRecompute);
        CHECK(static_cast<float*>(runtime.value(of.trained)) != nullptr);
        runtime.leave(of.policy, Direction::kRecompute);
        runtime.enter(of.policy, Direction::kBackward);
        add_gradient(runtime, of, rows);
        runtime.leave(of.policy, Direction::kBackward);
        runtime.leave(of.root, Direction::kBackward);
        runtime.end_pass();
      },
      false);
}

TEST_CASE("a pass that is given up in backward leaves nothing, and the step that begins anew has its bits") {
  const Accelerator accelerator = test::open_host();
  const std::vector<float> expected = trained_by(plain_pass, "eager", 1, false);
  for (const auto& way : kWays) {
    const std::string& coordinator = way.first;
    const std::string& options = way.second;
    CAPTURE(coordinator);
    CAPTURE(options);
    test::run_healthy_ranks(accelerator, 1, [&](int32_t, Communicator& group, Stream& stream) {
      Stream program(accelerator, 0);
      Runtime runtime(config_of(coordinator, options), accelerator, 0, program, stream, {});
      const Networks of(runtime, false);
      runtime.enter_group(group);
      runtime.initialise();
      for (int step = 0; step < 3; ++step) {
        std::vector<RowRange> own;
        begin_step(runtime, 0, 1, own);
        plain_pass(runtime, of, own[0]);
        runtime.begin_pass(own[1]);
        runtime.enter(of.policy, Direction::kForward);
        runtime.leave(of.policy, Direction::kForward);
        runtime.enter(of.policy, Direction::kBackward);
        add_gradient(runtime, of, own[1]);
        runtime.abandon();
        CHECK(runtime.memory().gathered == 0);
        CHECK(says(thrown_by([&] { runtime.value(of.trained); }), "policy.weights is not gathered here"));
        take_step(runtime, of, 0, 1, plain_pass);
      }
      CHECK(read_whole(runtime, of.trained) == expected);
      runtime.leave_group();
    });
  }
}

TEST_CASE("a model of one element trains on four ranks, three of which own nothing, and one of none on any") {
  const Accelerator accelerator = test::open_host();
  std::vector<std::pair<std::string, std::string>> ways = kWays;
  ways.emplace_back("planned", "budget = 768");  // its value, its gradient and what arrives for it
  for (const auto& way : ways) {
    const std::string& coordinator = way.first;
    const std::string& options = way.second;
    for (const int64_t elements : {1, 0}) {
      CAPTURE(coordinator);
      CAPTURE(options);
      CAPTURE(elements);
      std::mutex mutex;
      int owners = 0;
      std::vector<std::vector<float>> seen;
      test::run_healthy_ranks(accelerator, 4, [&](int32_t rank, Communicator& group, Stream& stream) {
        Stream program(accelerator, 0);
        Runtime runtime(config_of(coordinator, options), accelerator, 0, program, stream, {"moment"});
        const Networks of(runtime, false, elements);
        runtime.enter_group(group);
        runtime.initialise();
        for (int step = 0; step < 2; ++step) take_step(runtime, of, rank, 4, plain_pass);
        std::vector<float> values = read_whole(runtime, of.trained);
        const std::lock_guard lock(mutex);
        owners += runtime.runs(1).empty() ? 0 : 1;
        seen.push_back(std::move(values));
        runtime.leave_group();
      });
      CHECK(owners == elements);
      for (const std::vector<float>& one : seen) CHECK(one == seen.front());
      CHECK(seen.front().size() == static_cast<size_t>(elements));
      CHECK((elements == 0 || seen.front().front() != first_value(0)));
    }
  }
}

TEST_CASE(
    "what a budget has no room for is refused by the module's name, also when it comes later, and changes nothing") {
  const Accelerator accelerator = test::open_host();
  test::run_healthy_ranks(accelerator, 1, [&](int32_t, Communicator& group, Stream& stream) {
    Stream program(accelerator, 0);
    Runtime small(config_of("eager", "budget = 4096"), accelerator, 0, program, stream, {});
    CHECK(says(thrown_by([&] { const Networks of(small, false); }), "budget = 4096 is too small: policy alone uses"));
    Runtime runtime(config_of("eager", "budget = 26000"), accelerator, 0, program, stream, {});
    const Networks of(runtime, true);
    runtime.enter_group(group);
    runtime.initialise();
    const std::vector<ParameterId> both{ParameterId{of.trained}, ParameterId{of.kept}};
    CHECK(says(thrown_by([&] { runtime.set_parameters(of.policy, both, {}); }),
               "policy alone uses 36096 bytes with its gradients"));
    runtime.begin_evaluation();
    runtime.enter(of.policy, Direction::kForward);
    CHECK(static_cast<const float*>(runtime.value(of.trained))[7] == first_value(7));
    CHECK(says(thrown_by([&] { runtime.value(of.kept); }), "reference.weights is not gathered here"));
    runtime.leave(of.policy, Direction::kForward);
    runtime.end_pass();
    runtime.leave_group();
  });
}

TEST_CASE("a budget that modules inside one another do not fit into is refused in words about the budget") {
  const Accelerator accelerator = test::open_host();
  test::run_healthy_ranks(accelerator, 1, [&](int32_t, Communicator& group, Stream& stream) {
    Stream program(accelerator, 0);
    Runtime runtime(config_of("eager", "budget = 26000"), accelerator, 0, program, stream, {});
    const uint32_t outer = add_parameter(runtime, "outer.weights", 3000);
    const uint32_t inner = add_parameter(runtime, "inner.weights", 3000);
    const uint32_t more = add_parameter(runtime, "more.weights", 3000, true);
    const uint32_t root = add_module(runtime, "outer", std::nullopt, {outer});
    const uint32_t middle = add_module(runtime, "inner", root, {inner});
    const uint32_t last = add_module(runtime, "more", middle, {more});
    runtime.close_model();
    runtime.enter_group(group);
    runtime.initialise();
    runtime.begin_evaluation();
    runtime.enter(root, Direction::kForward);
    runtime.enter(middle, Direction::kForward);
    try {
      runtime.enter(last, Direction::kForward);
      FAIL("nothing was thrown");
    } catch (const Error& error) {
      CHECK(error.status() == Status::kResourceExhausted);
      CHECK(error.origin() == Origin::kInput);
      CHECK(says(error.message(), "[coordinator] budget is too small for what coordinator"));
      CHECK(says(error.message(), "more.weights"));
    }
    runtime.leave_group();
  });
}

TEST_CASE("with bf16 a budget is refused by name where it is too small, and changes no bit where it suffices") {
  const Accelerator accelerator = test::open_host();
  const std::string types = "compute_dtype = \"bf16\"\nreduce_dtype = \"bf16\"\n";
  const auto bf16_pass = [](Runtime& runtime, const Networks& of, RowRange rows) {
    runtime.begin_pass(rows);
    runtime.enter(of.policy, Direction::kForward);
    runtime.leave(of.policy, Direction::kForward);
    runtime.enter(of.policy, Direction::kBackward);
    auto* const gradient = static_cast<uint16_t*>(runtime.gradient(of.trained));
    for (uint64_t k = 0; k < kElements && rows.count > 0; ++k) {
      gradient[k] = static_cast<uint16_t>(std::bit_cast<uint32_t>(gradient_of(rows, k)) >> 16U);
    }
    runtime.leave(of.policy, Direction::kBackward);
    runtime.end_pass();
  };
  const std::vector<float> expected = trained_by(bf16_pass, "eager", 4, false, types);
  CHECK(expected[7] != first_value(7));
  bool suffices = false;
  bool is_too_small = false;
  for (int64_t budget = 12288; budget <= 200000 && !suffices; budget += 1024) {
    CAPTURE(budget);
    try {
      CHECK(trained_by(bf16_pass, "eager", 4, false, types + fmt::format("budget = {}", budget)) == expected);
      suffices = true;
    } catch (const Error& error) {
      is_too_small = true;
      const std::string words = error.message();
      CHECK((says(words, "budget") || error.status() == Status::kAborted || error.status() == Status::kPeerLost));
    }
  }
  CHECK(suffices);
  CHECK(is_too_small);
}

TEST_CASE("a balancer that changes who computes within a round changes no bit") {
  const Accelerator accelerator = test::open_host();
  const std::vector<float> expected = trained_by(plain_pass, "eager", 1, false);
  for (const int32_t world_size : {2, 3}) {
    CAPTURE(world_size);
    test::run_healthy_ranks(accelerator, world_size, [&](int32_t rank, Communicator& group, Stream& stream) {
      Stream program(accelerator, 0);
      Runtime runtime(config_of("eager"), accelerator, 0, program, stream, {});
      const Networks of(runtime, false);
      runtime.enter_group(group);
      runtime.initialise();
      for (int step = 0; step < 3; ++step) {
        // Round by round, and in each in another order of ranks.
        Assignment turned;
        const int64_t rounds = (kRows / kGranule + world_size - 1) / world_size;
        for (int32_t of_rank = 0; of_rank < world_size; ++of_rank) {
          for (int64_t round = 0; round < rounds; ++round) {
            const int64_t in_round = std::min<int64_t>(world_size, kRows / kGranule - round * world_size);
            const int64_t place = of_rank < in_round ? (of_rank + round + 1 + step) % in_round : -1;
            if (place >= 0) turned.blocks.push_back({(round * world_size + place) * kGranule, kGranule});
          }
          turned.offsets.push_back(turned.blocks.size());
        }
        runtime.begin_step(kRows, kGranule, turned, true);
        for (size_t round = 0; round < runtime.rounds(); ++round) {
          const auto own = turned.of(rank);
          plain_pass(runtime, of, round < own.size() ? own[round] : RowRange{});
        }
        CHECK(runtime.finish_gradient(0.125).finite);
        runtime.allow_update();
        runtime.update([](const ShardRange& range) {
          for (uint64_t k = 0; k < range.count; ++k) range.weights[k] -= 1e-6F * range.gradient[k];
        });
      }
      CHECK(read_whole(runtime, of.trained) == expected);
      runtime.leave_group();
    });
  }
}

TEST_CASE(
    "what a rank owns may be looked at outside of passes, frozen parameters too, and is all of the model over all "
    "ranks") {
  const Accelerator accelerator = test::open_host();
  std::mutex mutex;
  uint64_t seen = 0;
  uint64_t all = 0;
  test::run_healthy_ranks(accelerator, 3, [&](int32_t rank, Communicator& group, Stream& stream) {
    Stream program(accelerator, 0);
    Runtime runtime(config_of("eager"), accelerator, 0, program, stream, {"momentum"});
    const Networks of(runtime, true);
    const auto look = [&] {
      uint64_t own = 0;
      runtime.visit_owned([&](const ShardRange& range) {
        own += range.count;
        CHECK((range.weights != nullptr && range.gradient == nullptr && range.state.size() == 1));
      });
      return own;
    };
    CHECK(says(thrown_by([&] { look(); }), "has no group"));
    runtime.enter_group(group);
    runtime.initialise();
    const uint64_t own = look();
    std::vector<RowRange> rows;
    begin_step(runtime, rank, 3, rows);
    runtime.begin_pass(rows.empty() ? RowRange{} : rows.front());
    CHECK(says(thrown_by([&] { look(); }), "was not ended"));
    runtime.abandon();
    {
      const std::lock_guard lock(mutex);
      seen += own;
      all = runtime.model.elements();
    }
    runtime.leave_group();
  });
  CHECK(seen == all);
}

TEST_CASE("an update is made once, and only of a step that is committed and not skipped") {
  const Accelerator accelerator = test::open_host();
  test::run_healthy_ranks(accelerator, 1, [&](int32_t, Communicator& group, Stream& stream) {
    Stream program(accelerator, 0);
    Runtime runtime(config_of("eager"), accelerator, 0, program, stream, {});
    const Networks of(runtime, false);
    const auto update = [&] { runtime.update([](const ShardRange&) {}); };
    CHECK(says(thrown_by(update), "has no group"));
    CHECK(says(thrown_by([&] { runtime.value(of.trained); }), "has no group"));
    CHECK(says(thrown_by([&] { runtime.gradient(of.trained); }), "has no group"));
    CHECK(says(thrown_by([&] { runtime.release(of.trained); }), "has no group"));
    runtime.enter_group(group);
    runtime.initialise();
    CHECK(says(thrown_by(update), "without a committed step"));
    std::vector<RowRange> own;
    begin_step(runtime, 0, 1, own);
    for (const RowRange rows : own) plain_pass(runtime, of, rows);
    CHECK(says(thrown_by(update), "without a committed step"));
    runtime.finish_gradient(1);
    CHECK(says(thrown_by(update), "without a committed step"));
    runtime.allow_update();
    update();
    CHECK(says(thrown_by(update), "without a committed step"));
    begin_step(runtime, 0, 1, own);
    for (const RowRange rows : own) plain_pass(runtime, of, rows);
    runtime.allow_update();
    begin_step(runtime, 0, 1, own);
    CHECK(says(thrown_by(update), "without a committed step"));
    plain_pass(runtime, of, own[0]);
    runtime.abandon();
    CHECK(says(thrown_by([&] { runtime.begin_pass(own[0]); }), "was abandoned by an exception; call Session::next"));
    runtime.leave_group();
  });
}

TEST_CASE("backward a module may be left before those that were entered in it") {
  check_everywhere(
      [](Runtime& runtime, const Networks& of, RowRange rows) {
        runtime.begin_pass(rows);
        runtime.enter(of.root, Direction::kForward);
        runtime.enter(of.policy, Direction::kForward);
        CHECK(says(thrown_by([&] { runtime.leave(of.root, Direction::kForward); }), "policy (forward) is the last"));
        runtime.leave(of.policy, Direction::kForward);
        runtime.leave(of.root, Direction::kForward);
        runtime.enter(of.root, Direction::kBackward);
        runtime.enter(of.policy, Direction::kBackward);
        runtime.leave(of.root, Direction::kBackward);
        CHECK(says(thrown_by([&] { runtime.leave(of.root, Direction::kBackward); }), "is the last entered module"));
        add_gradient(runtime, of, rows);
        runtime.leave(of.policy, Direction::kBackward);
        runtime.end_pass();
      },
      false);
}

TEST_CASE("forward, backward and update may come from three threads") {
  const auto on_a_thread = [](const auto& work) { std::thread(work).join(); };
  check_everywhere(
      [&](Runtime& runtime, const Networks& of, RowRange rows) {
        on_a_thread([&] {
          runtime.begin_pass(rows);
          runtime.enter(of.policy, Direction::kForward);
          runtime.leave(of.policy, Direction::kForward);
        });
        on_a_thread([&] {
          runtime.enter(of.policy, Direction::kBackward);
          add_gradient(runtime, of, rows);
        });
        on_a_thread([&] {
          runtime.leave(of.policy, Direction::kBackward);
          runtime.end_pass();
        });
      },
      false);
}

TEST_CASE("what is written has its value on every rank at once, also where it was whole, and trains on from there") {
  const Accelerator accelerator = test::open_host();
  for (const auto& way : kWays) {
    const std::string& coordinator = way.first;
    const std::string& options = way.second;
    CAPTURE(coordinator);
    CAPTURE(options);
    test::run_healthy_ranks(accelerator, 3, [&](int32_t rank, Communicator& group, Stream& stream) {
      Stream program(accelerator, 0);
      Runtime runtime(config_of(coordinator, options), accelerator, 0, program, stream, {});
      const Networks of(runtime, true);
      runtime.enter_group(group);
      runtime.initialise();
      const auto digests = [&runtime] {
        std::vector<uint64_t> taken = runtime.digests();
        runtime.combine_over_ranks(taken, ReduceOp::kSum);
        return taken;
      };
      const auto begun_with = digests();
      std::vector<float> values(kElements);
      for (size_t k = 0; k < values.size(); ++k) values[k] = static_cast<float>(k);
      // The way zero3 has it, the reference stays whole after an evaluation.
      runtime.begin_evaluation();
      runtime.enter(of.reference, Direction::kForward);
      runtime.leave(of.reference, Direction::kForward);
      runtime.end_pass();
      runtime.write(of.kept, values);
      CHECK(read_whole(runtime, of.kept) == values);
      runtime.begin_evaluation();
      runtime.enter(of.reference, Direction::kForward);
      const auto* const seen = static_cast<const float*>(runtime.value(of.kept));
      CHECK(std::vector<float>(seen, seen + kElements) == values);
      CHECK(says(thrown_by([&] { runtime.write(of.kept, values); }), "the previous pass was not ended"));
      runtime.leave(of.reference, Direction::kForward);
      runtime.end_pass();
      CHECK(runtime.step() == 0);
      CHECK(digests() != begun_with);
      for (size_t k = 0; k < values.size(); ++k) values[k] = first_value(k);
      runtime.write(of.kept, values);
      CHECK(digests() == begun_with);
      runtime.prefetch(of.kept);
      CHECK(says(thrown_by([&] { runtime.value(of.kept); }), "is not gathered here"));
      CHECK(says(thrown_by([&] { runtime.write(of.kept, values); }), "while it is fetched by hand"));
      runtime.fetch(of.kept);
      CHECK(static_cast<const float*>(runtime.value(of.kept))[7] == first_value(7));
      runtime.release(of.kept);
      runtime.prefetch(of.kept);
      runtime.release(of.kept);
      take_step(runtime, of, rank, 3, plain_pass);
      CHECK(runtime.memory().gathered == 0);
      runtime.leave_group();
    });
  }
}

TEST_CASE(
    "a rank that joins a group which has no chunk for it takes part, and what it is told of another map ends it") {
  const Accelerator accelerator = test::open_host();
  struct Process {
    Process(const Accelerator& on, const std::string& more, int64_t elements)
        : program(on, 0),
          exchange(on, 0),
          runtime(config_of("eager", more), on, 0, program, exchange, {"moment"}),
          networks(runtime, false, elements) {}
    Stream program, exchange;
    Runtime runtime;
    Networks networks;
  };
  for (const int64_t elements : {1, 0}) {
    CAPTURE(elements);
    std::vector<std::unique_ptr<Process>> processes;
    for (int i = 0; i < 3; ++i) processes.push_back(std::make_unique<Process>(accelerator, "", elements));
    const auto train = [&](int32_t rank, int32_t world_size) {
      Process& own = *processes[static_cast<size_t>(rank)];
      take_step(own.runtime, own.networks, rank, world_size, plain_pass);
      own.runtime.end_step(own.runtime.step());
      return read_whole(own.runtime, own.networks.trained);
    };
    std::vector<std::vector<float>> seen(3);
    test::run_healthy_ranks(accelerator, 2, [&](int32_t rank, Communicator& group, Stream&) {
      Runtime& runtime = processes[static_cast<size_t>(rank)]->runtime;
      runtime.enter_group(group, 5);
      runtime.initialise();
      train(rank, 2);
      runtime.leave_group();
    });
    const Ownership from = processes[0]->runtime.ownership();
    CHECK(from.epoch() == 5);
    test::run_healthy_ranks(accelerator, 3, [&](int32_t rank, Communicator& group, Stream&) {
      Runtime& runtime = processes[static_cast<size_t>(rank)]->runtime;
      const std::vector<int32_t> was{0, 1, -1};
      CHECK(runtime.enter_group(group, from, was, 3, 1, [] { FAIL("nothing has to move"); }) == 0);
      CHECK(runtime.ownership().epoch() == 6);
      seen[static_cast<size_t>(rank)] = train(rank, 3);
      runtime.leave_group();
    });
    for (const std::vector<float>& one : seen) CHECK(one == seen.front());
    CHECK(seen.front().size() == static_cast<size_t>(elements));
    if (elements == 0) continue;
    const Ownership other = or_throw(Ownership::of_runs(std::vector<Ownership::Run>{{1, 0}}, 3, 9));
    const auto thrown = test::run_ranks(accelerator, 3, [&](int32_t rank, Communicator& group, Stream&) {
      const std::vector<int32_t> was{0, 1, 2};
      bool begun = false;
      processes[static_cast<size_t>(rank)]->runtime.enter_group(group, other, was, 3, 2, [&begun] { begun = true; });
      CHECK(begun == false);
    });
    int refused = 0;
    for (const std::exception_ptr& one : thrown) {
      if (!one) continue;
      ++refused;
      CHECK(says(thrown_by([&] { std::rethrow_exception(one); }), "owns other chunks than rank"));
    }
    CHECK(refused == (from.owner_of(ChunkId{0}) == 0 ? 0 : 2));
  }
}

}  // namespace
}  // namespace pliant::sharded
