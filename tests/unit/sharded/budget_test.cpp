// Runtime: what a budget has room for depends on the visits alone, and what is given back is not written to any more.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "unit/accelerator/wrapper.hpp"
#include "unit/sharded/networks.hpp"
#include "unit/sharded/says.hpp"

namespace pliant::sharded {
namespace {

/// Layers of unequal size, so that what is given back leaves gaps that do not fit the next, in a root that may have
/// weights, too, which are whole all the time.
struct Layers {
  std::vector<uint32_t> parameters;
  std::vector<uint32_t> modules;
  uint32_t root;
  explicit Layers(Runtime& runtime, int64_t elements_of_root) {
    std::vector<uint32_t> of_root;
    if (elements_of_root > 0) of_root.push_back(add_parameter(runtime, "model.weights", elements_of_root));
    root = add_module(runtime, "model", std::nullopt, of_root);
    for (const int64_t elements : {64, 300, 1500, 5000, 900, 3500}) {
      const std::string name = fmt::format("layer.{}", parameters.size());
      parameters.push_back(add_parameter(runtime, name + ".weights", elements));
      modules.push_back(add_module(runtime, name.c_str(), root, {parameters.back()}));
    }
    runtime.close_model();
  }

  void pass(Runtime& runtime, RowRange rows) const {
    runtime.begin_pass(rows);
    runtime.enter(root, Direction::kForward);
    for (const uint32_t module : modules) {
      runtime.enter(module, Direction::kForward);
      runtime.leave(module, Direction::kForward);
    }
    runtime.leave(root, Direction::kForward);
    runtime.enter(root, Direction::kBackward);
    for (size_t i = modules.size(); i-- > 0;) {
      runtime.enter(modules[i], Direction::kBackward);
      if (rows.count > 0) runtime.gradient(parameters[i]);
      runtime.leave(modules[i], Direction::kBackward);
    }
    runtime.leave(root, Direction::kBackward);
    runtime.end_pass();
  }
};

/// Whether two passes of two ranks fit.
bool suffices(const Accelerator& accelerator, int64_t budget, const std::string& more) {
  const auto thrown = test::run_ranks(accelerator, 2, [&](int32_t rank, Communicator& group, Stream& stream) {
    Stream program(accelerator, 0);
    Runtime runtime(config_of("eager", fmt::format("budget = {}\n{}", budget, more)), accelerator, 0, program, stream,
                    {});
    const Layers layers(runtime, 2500);
    runtime.enter_group(group);
    runtime.initialise();
    std::vector<RowRange> own;
    begin_step(runtime, rank, 2, own);
    for (size_t i = 0; i < 2; ++i) layers.pass(runtime, own[i]);
    CHECK(runtime.memory().gathered == 0);
    CHECK(runtime.memory().gathered_most <= static_cast<uint64_t>(budget));
    runtime.leave_group();
  });
  bool refused = false;
  bool failed = false;
  for (const std::exception_ptr& one : thrown) {
    if (!one) continue;
    failed = true;
    try {
      std::rethrow_exception(one);
    } catch (const Error& error) {
      refused = refused || error.status() == Status::kResourceExhausted;
    }
  }
  CHECK(failed == refused);
  return !failed;
}

TEST_CASE("whether a budget suffices does not depend on how quick the ranks are") {
  struct Way {
    std::string types;
    /// Whole at once: root, layer, gradient, and the room of the root's gradient: 60928 bytes, 30720.
    int64_t least, suffices, most;
  };
  for (const Way& way :
       {Way{"", 40448, 60928, 70000}, Way{"compute_dtype = \"bf16\"\nreduce_dtype = \"bf16\"", 20480, 30720, 48000}}) {
    int64_t least = 0;  // that suffices
    for (int64_t budget = way.least; budget <= way.most; budget += 2560) {
      CAPTURE(way.types);
      CAPTURE(budget);
      const bool at_once = suffices(test::host(), budget, way.types);
      for (const int seed : {1, 2}) {
        CAPTURE(seed);
        CHECK(suffices(test::sim(fmt::format("max_delay_us = 150\nseed = {}\n", seed)), budget, way.types) == at_once);
      }
      CHECK(at_once >= (least > 0));
      if (at_once && least == 0) least = budget;
    }
    CAPTURE(least);
    CHECK(least > way.least);
    CHECK(least <= way.suffices);
  }
}

TEST_CASE("zero3 keeps complete gradients until a bucket of them is full: with a small one no two are whole at once") {
  const auto most_of = [](const std::string& bucket) {
    uint64_t most = 0;
    const Accelerator accelerator = test::sim("host_visible = false\n");  // additions are enqueued at once there
    test::run_healthy_ranks(accelerator, 1, [&](int32_t, Communicator& group, Stream& stream) {
      Stream program(accelerator, 0);
      const std::string options =
          "[coordinator.zero3]\nparam_persistence_threshold = -1\nmax_reuse_distance = 0\n"
          "prefetch_bucket_size = 0\n";
      Runtime runtime(config_of("zero3", options + bucket), accelerator, 0, program, stream, {});
      const Layers layers(runtime, 0);
      runtime.enter_group(group);
      runtime.initialise();
      for (int step = 0; step < 3; ++step) {
        std::vector<RowRange> own;
        begin_step(runtime, 0, 1, own);
        for (const RowRange rows : own) layers.pass(runtime, rows);
        runtime.finish_gradient(1);
      }
      most = runtime.memory().gathered_most;
      runtime.leave_group();
    });
    return most;
  };
  CHECK(most_of("reduce_bucket_size = 1") == uint64_t{2} * 20224);  // the largest layer and its gradient
  CHECK(most_of("reduce_bucket_size = 6000") <= uint64_t{2} * 20224 + 6000 * sizeof(float) + 5 * 256);
  CHECK(most_of("reduce_bucket_size = 500000000") >= uint64_t{11264} * sizeof(float));  // all gradients of the model
  CHECK(most_of("") <= uint64_t{2} * 20224 + 11264 / 8 * sizeof(float) + 5 * 256);      // not set: an eighth of them
}

TEST_CASE("what was only prefetched by hand has arrived before its memory is anything else") {
  for (const int seed : {1, 2, 3}) {
    const Accelerator accelerator = test::sim(fmt::format("max_delay_us = 20000\nseed = {}\n", seed));
    test::run_healthy_ranks(accelerator, 1, [&](int32_t, Communicator& group, Stream& stream) {
      Stream program(accelerator, 0);
      Runtime runtime(config_of("eager", "budget = 12032"), accelerator, 0, program, stream, {});
      const uint32_t kept = add_parameter(runtime, "kept", kElements, true);
      const uint32_t trained = add_parameter(runtime, "trained", kElements);  // used unannounced
      const uint32_t root = add_module(runtime, "model", std::nullopt, {});
      runtime.close_model();
      runtime.enter_group(group);
      runtime.initialise();
      std::vector<RowRange> own;
      begin_step(runtime, 0, 1, own);
      runtime.prefetch(kept);
      runtime.release(kept);
      runtime.begin_pass(own[0]);
      CHECK(says(thrown_by([&] { runtime.gradient(trained); }), "trained has no memory for its gradient yet"));
      runtime.enter(root, Direction::kForward);
      runtime.leave(root, Direction::kForward);
      runtime.enter(root, Direction::kBackward);
      const auto* const gradient = static_cast<const float*>(runtime.gradient(trained));
      stream.synchronize();
      CHECK(std::count(gradient, gradient + kElements, 0.0F) == kElements);
      runtime.leave_group();
    });
  }
}

TEST_CASE("a parameter is read part by part where the budget has no room for its f32") {
  constexpr int64_t kLarge = 30000;
  const Accelerator accelerator = test::sim("host_visible = false\n");
  test::run_healthy_ranks(accelerator, 2, [&](int32_t, Communicator& group, Stream& stream) {
    Stream program(accelerator, 0);
    Runtime runtime(config_of("eager", "budget = 60416\ncompute_dtype = \"bf16\""), accelerator, 0, program, stream,
                    {});
    const uint32_t large = add_parameter(runtime, "large", kLarge, true);
    add_module(runtime, "model", std::nullopt, {large});
    runtime.close_model();
    runtime.enter_group(group);
    runtime.initialise();
    std::vector<float> written(kLarge);
    for (size_t i = 0; i < written.size(); ++i) written[i] = static_cast<float>(i) / 3;
    runtime.write(large, written);
    std::vector<float> got(kLarge);
    runtime.read(large, got);
    CHECK(got == written);
    CHECK(runtime.memory().gathered_most <= 60416);
    runtime.leave_group();
  });
}

TEST_CASE("what is fetched by hand after an evaluation lies in nobody's way, whoever chooses places") {
  const Accelerator accelerator = test::sim("host_visible = false\n");
  for (const char* const coordinator : {"eager", "planned"}) {
    for (const int budget : {60416, 70400, 90112}) {
      CAPTURE(coordinator);
      CAPTURE(budget);
      test::run_healthy_ranks(accelerator, 1, [&](int32_t, Communicator& group, Stream& stream) {
        Stream program(accelerator, 0);
        Runtime runtime(config_of(coordinator, fmt::format("budget = {}", budget)), accelerator, 0, program, stream,
                        {});
        const Layers layers(runtime, 0);
        runtime.enter_group(group);
        runtime.initialise();
        for (int step = 0; step < 4; ++step) {
          runtime.begin_evaluation();
          for (const uint32_t module : layers.modules) {
            runtime.enter(module, Direction::kForward);
            runtime.leave(module, Direction::kForward);
          }
          runtime.end_pass();
          const uint32_t by_hand = layers.parameters[static_cast<size_t>(step) % 2];
          runtime.fetch(by_hand);
          std::vector<RowRange> own;
          begin_step(runtime, 0, 1, own);
          for (const RowRange rows : own) layers.pass(runtime, rows);
          runtime.finish_gradient(1);
          runtime.release(by_hand);
        }
        runtime.leave_group();
      });
    }
  }
}

TEST_CASE("a pass that finds no room beside what is fetched by hand says how much that takes") {
  const Accelerator accelerator = test::host();
  test::run_healthy_ranks(accelerator, 1, [&](int32_t, Communicator& group, Stream& stream) {
    Stream program(accelerator, 0);
    Runtime runtime(config_of("planned", "budget = 60416"), accelerator, 0, program, stream, {});
    const Layers layers(runtime, 0);
    runtime.enter_group(group);
    runtime.initialise();
    const auto evaluate = [&] {
      runtime.begin_evaluation();
      for (const uint32_t module : layers.modules) {
        runtime.enter(module, Direction::kForward);
        runtime.leave(module, Direction::kForward);
      }
      runtime.end_pass();
    };
    evaluate();
    runtime.fetch(layers.parameters[3]);
    CHECK(says(thrown_by([&] {
                 evaluate();
                 evaluate();
               }),
               "; what is fetched by hand takes 20224 bytes of it: release that first, or raise the budget"));
    runtime.leave_group();
  });
}

TEST_CASE("parameters that a module is given before the first group are held against the budget, too") {
  const Accelerator accelerator = test::host();
  Stream program(accelerator, 0);
  Stream exchange(accelerator, 0);
  Runtime runtime(config_of("eager", "budget = 9000"), accelerator, 0, program, exchange, {});
  const uint32_t first = add_parameter(runtime, "first", 1000);
  const uint32_t second = add_parameter(runtime, "second", 1000);
  const uint32_t root = add_module(runtime, "model", std::nullopt, {});
  const uint32_t one = add_module(runtime, "one", root, {first});
  add_module(runtime, "other", root, {second});
  runtime.close_model();
  const std::vector<ParameterId> both{ParameterId{first}, ParameterId{second}};
  CHECK(says(thrown_by([&] { runtime.set_parameters(one, both, {}); }),
             "[coordinator] budget = 9000 is too small: one alone uses"));
  runtime.set_parameters(one, {ParameterId{second}}, {});
}

TEST_CASE("a budget above what the device has left is refused by its name") {
  const Accelerator accelerator = test::host("memory_bytes = 65536\n");
  Stream program(accelerator, 0);
  Stream exchange(accelerator, 0);
  Runtime runtime(config_of("eager", "budget = 1000000"), accelerator, 0, program, exchange, {});
  try {
    const Networks networks(runtime, false);
    FAIL("nothing was thrown");
  } catch (const Error& error) {
    CHECK(error.status() == Status::kResourceExhausted);
    CHECK(error.origin() == Origin::kInput);
    CHECK(says(error.message(),
               "[coordinator] budget = 1000000 is more than the free memory of the device (accelerator 'host': out of "
               "device memory"));
  }
}

}  // namespace
}  // namespace pliant::sharded
