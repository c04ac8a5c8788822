// Pieces of a gradient in memory of devices, on software doubles: add_piece enqueues and waits for nothing, and what it
// reads is what lay there in stream order.
#include <doctest/doctest.h>

#include "device_machines.hpp"
#include "elastic/reduction.hpp"

namespace pliant::elastic {
namespace {

using pliant_test::Setting;

/// Commands of the doubles start late while this lives, by up to that much.
struct Delays {
  explicit Delays(const std::string& microseconds)
      : cuda("PLIANT_SOFT_CUDA_MAX_DELAY_US", microseconds), level_zero("PLIANT_SOFT_ZE_MAX_DELAY_US", microseconds) {}
  Setting cuda_seed{"PLIANT_SOFT_CUDA_SEED", "1"};
  Setting level_zero_seed{"PLIANT_SOFT_ZE_SEED", "1"};
  Setting cuda;
  Setting level_zero;
};

constexpr size_t kSize = 3001;

TEST_CASE("a piece in device memory is only enqueued, behind what was enqueued before and before what comes later") {
  for (const test::Machine& machine : test::machines()) {
    for (const bool deterministic : {false, true}) {
      INFO(machine.name << ", deterministic: " << deterministic);
      const Accelerator accelerator = test::open(machine);
      test::run_healthy_ranks(accelerator, 1, [&](int32_t, Communicator& communicator, Stream& stream) {
        Stream program(accelerator, 0);
        const Buffer piece(accelerator, 0, kSize * sizeof(float));
        const Buffer ones = test::full_of(1.0F, accelerator, program, kSize);
        const Buffer twos = test::full_of(2.0F, accelerator, program, kSize);
        const auto from = [&](size_t begin, size_t count) {
          return GradientPiece{begin, count, static_cast<const float*>(piece.pointer()) + begin};
        };
        GradientReduction reduction(accelerator, 0, program, kSize, deterministic);
        reduction.look_for_not_finite(true);
        for (int step = 0; step < 2; ++step) {
          reduction.begin(3, 1, test::alone(3), 0);
          {
            const test::Gate gate(program);
            for (int64_t row = 0; row < 3; ++row) {
              program.copy(piece.pointer(), row == 0 ? ones.pointer() : twos.pointer(), piece.bytes());
              reduction.add_piece({row, 1}, from(1000, kSize - 1000));
              reduction.add_piece({row, 1}, from(0, 1000));
              program.fill(piece.pointer(), 0xff, piece.bytes());
              reduction.add({row, 1}, 1, 1, 1);
            }
            CHECK_FALSE(program.is_idle());
            CHECK_FALSE(gate.was_waited_for());
          }
          const ReductionResult result = reduction.reduce(communicator, stream, {});
          CHECK(result.finite);
          CHECK(test::on_host(result.gradient, stream) == std::vector<float>(kSize, 5.0F));
        }
      });
    }
  }
  test::check_doubles_are_clean();
}

TEST_CASE("pieces may be overwritten as soon as the contract says, whatever memory and type they are of") {
  const Delays delays("100");
  for (const test::Machine& machine : test::machines()) {
    for (const bool deterministic : {false, true}) {
      for (const bool measured : {false, true}) {
        INFO(machine.name << ", deterministic: " << deterministic << ", measured: " << measured);
        const Accelerator accelerator = test::open(machine);
        test::run_healthy_ranks(accelerator, 1, [&](int32_t, Communicator& communicator, Stream& stream) {
          Stream program(accelerator, 0);
          GradientReduction reduction(accelerator, 0, program, kSize, deterministic);
          reduction.measure_parts(measured);
          reduction.begin(4, 1, test::alone(4), 0);
          constexpr uint16_t kOne = 0x3F80;  // bf16
          const Buffer there = test::full_of(1.0F, accelerator, program, kSize);
          const Buffer there16 = test::full_of(kOne, accelerator, program, kSize);
          const Buffer piece(accelerator, 0, there.bytes());
          const Buffer pinned(accelerator, 0, there.bytes(), MemoryKind::kPinned);
          auto* const in_pinned = static_cast<float*>(pinned.pointer());
          std::vector<float> plain(kSize);
          for (int64_t row = 0; row < 4; ++row) {
            // Of 16 bits and ever larger, so that what they are cast into moves.
            size_t next = 0;
            for (const size_t count : {100, 300, 600}) {
              program.copy(piece.pointer(), there16.pointer(), count * 2);
              reduction.add_piece({row, 1}, {next, count, piece.pointer(), DType::kBF16});
              program.fill(piece.pointer(), 0xff, piece.bytes());
              next += count;
            }
            program.copy(piece.pointer(), there.pointer(), piece.bytes());
            reduction.add_piece({row, 1}, {next, 1000, piece.pointer()});
            program.fill(piece.pointer(), 0xff, piece.bytes());
            next += 1000;
            program.copy(in_pinned, there.pointer(), 500 * sizeof(float));  // which is read when that has run
            reduction.add_piece({row, 1}, {next, 500, in_pinned});
            std::fill_n(in_pinned, 500, -1.0F);
            next += 500;
            std::fill(plain.begin(), plain.end(), 1.0F);
            reduction.add_piece({row, 1}, {next, kSize - next, plain.data()});
            std::fill(plain.begin(), plain.end(), -1.0F);
            reduction.add({row, 1}, 1, 1, 1);
          }
          const ReductionResult result = reduction.reduce(communicator, stream, {});
          CHECK(test::on_host(result.gradient, stream) == std::vector<float>(kSize, 4.0F));
          CHECK(result.part_norms == (measured ? 4.0 * kSize : 0.0));
        });
      }
    }
  }
  test::check_doubles_are_clean();
}

TEST_CASE("a reduction that ends, or begins again, in mid-step leaves no work behind that reads a piece") {
  const Delays delays("1000");
  for (const test::Machine& machine : test::machines()) {
    INFO(machine.name);
    const Accelerator accelerator = test::open(machine);
    Stream program(accelerator, 0);
    const Buffer ones = test::full_of(1.0F, accelerator, program, kSize);
    {
      const Buffer piece = test::full_of(1.0F, accelerator, program, kSize);
      GradientReduction reduction(accelerator, 0, program, kSize, true);
      for (int attempt = 0; attempt < 3; ++attempt) {
        reduction.begin(4, 1, test::alone(4), 0);
        reduction.add_piece({0, 1}, {0, kSize, ones.pointer()});
        reduction.add({0, 1}, 1, 1, 1);
        reduction.add_piece({1, 1}, {0, 2000, piece.pointer()});
      }
    }
    CHECK(program.is_idle());
  }
  test::check_doubles_are_clean();
}

TEST_CASE("a reduction that ends waits for work that reads its gradient, also where the CPU reaches the device") {
  const Accelerator accelerator = test::open({"sim", "use = \"sim\"\n[accelerator.sim]\nmax_delay_us = 20000\n"});
  test::run_healthy_ranks(accelerator, 1, [&](int32_t, Communicator& communicator, Stream& stream) {
    Stream program(accelerator, 0);
    const Buffer copies(accelerator, 0, kSize * sizeof(float));
    {
      GradientReduction reduction(accelerator, 0, program, kSize, false);
      reduction.begin(1, 1, test::alone(1), 0);
      reduction.add({0, 1}, 1, 1, 1, std::vector<float>(kSize, 1.0F));
      const ReductionResult result = reduction.reduce(communicator, stream, {});
      for (int i = 0; i < 8; ++i) program.copy(copies.pointer(), result.gradient.data(), copies.bytes());
    }
    CHECK(program.is_idle());
  });
}

#ifdef PLIANT_SOFT_CUDA
TEST_CASE("a device that is lost in mid-step is told by reduce at the latest, and nothing hangs") {
  int told_late = 0;
  for (int at = 3; at < 14; ++at) {
    const Setting fault("PLIANT_SOFT_CUDA_LOSE_DEVICE_AT", std::to_string(at));
    const Accelerator accelerator = test::open(test::machines().front());
    Stream program(accelerator, 0);
    Stream stream(accelerator, 0);
    Communicator communicator(accelerator, 0, accelerator.make_comm_id(1), 0, 1);
    communicator.wait_ready(60000);
    const Buffer piece(accelerator, 0, kSize * sizeof(float));
    GradientReduction reduction(accelerator, 0, program, kSize, true);
    const auto step = [&] {
      reduction.begin(4, 1, test::alone(4), 0);
      for (int64_t row = 0; row < 4; ++row) {
        program.fill(piece.pointer(), 0, piece.bytes());
        reduction.add_piece({row, 1}, {0, kSize, piece.pointer()});
        reduction.add({row, 1}, 1, 1, 1);
      }
      ++told_late;
      static_cast<void>(reduction.reduce(communicator, stream, {}));
    };
    const auto error = test::error_of(step);
    REQUIRE(error);
    CHECK(error->status() != Status::kInvalidArgument);
  }
  CHECK(told_late > 0);
}
#endif

}  // namespace
}  // namespace pliant::elastic
