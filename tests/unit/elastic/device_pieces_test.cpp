// Pieces of a gradient in memory of devices, on software doubles: add_piece enqueues and waits for nothing, and what it
// reads is what lay there in stream order.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "accelerator/device_look.hpp"
#include "accelerator/norms_on_device.hpp"
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
            for (const size_t count : {100U, 300U, 600U}) {
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

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kLargest = std::numeric_limits<float>::max();

/// The device has the kernel that the look needs.
bool can_look(const Accelerator& accelerator) {
  Stream stream(accelerator, 0);
  const Buffer from(accelerator, 0, sizeof(float));
  const Buffer to(accelerator, 0, sizeof(double));
  stream.fill(from.pointer(), 0, from.bytes());
  const bool can = detail::squared_norms_there(stream, static_cast<double*>(to.pointer()),
                                               static_cast<const float*>(from.pointer()), 1);
  stream.synchronize();
  return can;
}

std::vector<RowRange> in_order(std::vector<RowRange> rows) {
  std::sort(rows.begin(), rows.end(), [](const RowRange& a, const RowRange& b) { return a.first < b.first; });
  return rows;
}

TEST_CASE("rows whose gradients are not finite are named one by one, from the device, from the host and of 16 bits") {
  int looked = 0;
  for (const test::Machine& machine : test::machines()) {
    const Accelerator accelerator = test::open(machine);
    const bool looks = can_look(accelerator);
    looked += looks ? 1 : 0;
    test::run_healthy_ranks(accelerator, 1, [&](int32_t, Communicator& communicator, Stream& stream) {
      for (const bool deterministic : {false, true}) {
        for (const bool measured : {false, true}) {
          INFO(machine.name << ", deterministic: " << deterministic << ", measured: " << measured);
          Stream program(accelerator, 0);
          const Buffer ones = test::full_of(1.0F, accelerator, program, kSize);
          const Buffer nans = test::full_of(kNan, accelerator, program, 1);
          const Buffer nans16 = test::full_of(uint16_t{0xffff}, accelerator, program, 1);
          const std::vector<float> infinite(1, -std::numeric_limits<float>::infinity());
          GradientReduction reduction(accelerator, 0, program, kSize, deterministic);
          reduction.measure_parts(measured);
          reduction.look_for_not_finite(true);
          for (const bool wrong : {false, true, false}) {
            reduction.begin(8, 1, test::alone(8), 0);
            for (int64_t row = 0; row < 8; ++row) {
              const auto last = [&]() -> GradientPiece {
                if (wrong && row == 1) return {kSize - 1, 1, nans.pointer()};
                if (wrong && row == 2) return {kSize - 1, 1, nans16.pointer(), DType::kBF16};
                if (wrong && row == 6) return {kSize - 1, 1, infinite.data()};
                return {kSize - 1, 1, ones.pointer()};
              };
              reduction.add_piece({row, 1}, last());
              reduction.add_piece({row, 1}, {0, kSize - 1, ones.pointer()});
              reduction.add({row, 1}, 1, 1, 1);
            }
            const ReductionResult result = reduction.reduce(communicator, stream, {});
            CHECK(result.finite == !wrong);
            const bool tells_all = wrong && !looks && !measured;
            CHECK(result.sum_not_finite.empty() == !tells_all);
            if (!wrong) CHECK(result.not_finite.empty());
            if (wrong && !tells_all)
              CHECK(in_order(result.not_finite) == std::vector<RowRange>{{1, 1}, {2, 1}, {6, 1}});
          }
        }
      }
    });
  }
  CHECK(looked > 0);
  test::check_doubles_are_clean();
}

TEST_CASE("gradients that overflow as a rank adds them up are reported as a sum, and none of their rows") {
  for (const test::Machine& machine : test::machines()) {
    INFO(machine.name);
    const Accelerator accelerator = test::open(machine);
    if (!can_look(accelerator)) continue;
    test::run_healthy_ranks(accelerator, 1, [&](int32_t, Communicator& communicator, Stream& stream) {
      Stream program(accelerator, 0);
      const Buffer largest = test::full_of(kLargest, accelerator, program, kSize);
      GradientReduction reduction(accelerator, 0, program, kSize, false);
      reduction.look_for_not_finite(true);
      reduction.begin(2, 1, test::alone(2), 0);
      for (int64_t row = 0; row < 2; ++row) {
        reduction.add_piece({row, 1}, {0, kSize, largest.pointer()});
        reduction.add({row, 1}, 1, 1, 1);
      }
      const ReductionResult result = reduction.reduce(communicator, stream, {});
      CHECK_FALSE(result.finite);
      CHECK(result.not_finite.empty());
      CHECK(result.sum_not_finite.empty());
      CHECK(result.own_sum_overflows);
    });
  }
}

TEST_CASE("a device finds the one element that is not finite, in however many pieces and chunks the gradient comes") {
  // The fewest elements whose chunks' numbers, of two floats each, are more than a chunk.
  constexpr size_t kLarge = size_t{512} * 1024 + 7;
  constexpr size_t kSingles = detail::DeviceLook::kPartsAtOnce + 100;  // more than there is room for at once
  for (const test::Machine& machine : test::machines()) {
    INFO(machine.name);
    const Accelerator accelerator = test::open(machine);
    if (!can_look(accelerator)) continue;
    Stream stream(accelerator, 0);
    const Buffer there = test::full_of(kLargest, accelerator, stream, kLarge);
    const Buffer nan = test::full_of(kNan, accelerator, stream, 1);
    auto* const at = static_cast<float*>(there.pointer());
    const std::vector<std::pair<size_t, size_t>> tried{
        {0, kLarge}, {0, 5 * kLarge}, {2500, kLarge}, {kLarge - 1, 3 * kLarge}};
    for (const auto& [wrong, elements] : tried) {
      for (const size_t whole : {size_t{0}, kLarge - kSingles}) {  // the rest comes element by element
        detail::DeviceLook look(accelerator, 0, stream, elements);
        look.begin(3);
        for (int block = 0; block < 3; ++block) {
          stream.copy(at + wrong, block == 1 ? nan.pointer() : at + 1, sizeof(float));
          CHECK(look.add(at + (kLarge - whole), whole));
          const size_t rest = whole == 0 ? size_t{0} : kLarge - whole;
          for (size_t i = 0; i < rest; ++i) CHECK(look.add(at + i, 1));
          if (whole == 0) CHECK(look.add(at, kLarge));
          look.close(static_cast<size_t>(block));
        }
        CHECK(look.not_finite() == std::vector<size_t>{1});
        stream.synchronize();
        look.begin(2);
        CHECK(look.add(at, kLarge));
        look.close(0);
        look.close(1);
        CHECK(look.not_finite() == std::vector<size_t>{});
        look.begin(3);  // of blocks that take turns
        for (int turn = 0; turn < 3; ++turn) {
          for (size_t block = 0; block < 3; ++block) {
            stream.copy(at + wrong, block == 2 && turn == 1 ? nan.pointer() : at + 1, sizeof(float));
            CHECK(look.add(at, kLarge));
            look.close(block);
          }
        }
        CHECK(look.not_finite() == std::vector<size_t>{2});
        look.begin(2);  // of which one comes in many parts, and the next begins before room is wanted
        for (int part = 0; part < 7; ++part) {
          stream.copy(at + wrong, part == 5 ? nan.pointer() : at + 1, sizeof(float));
          CHECK(look.add(at, kLarge / 3));
          CHECK(look.add(at + kLarge / 3, kLarge - kLarge / 3));
          look.close(part < 5 ? 0 : 1);
        }
        CHECK(look.not_finite() == std::vector<size_t>{1});
        CHECK(look.not_finite() == std::vector<size_t>{1});
        stream.copy(at + wrong, at + 1, sizeof(float));
        stream.synchronize();
      }
    }
  }
  test::check_doubles_are_clean();
}

#ifdef PLIANT_SOFT_CUDA
TEST_CASE("a device that is lost in mid-step is reported by reduce at the latest, and nothing hangs") {
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
