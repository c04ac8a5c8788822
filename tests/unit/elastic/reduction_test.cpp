// The rules of GradientReduction: what add refuses, when it is complete, short batches, faults half way.
#include "elastic/reduction.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <latch>
#include <limits>

#include "pliant/optimizer.hpp"
#include "rank_group.hpp"

namespace pliant::elastic {
namespace {

template <class Call>
Error error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return Error(Status::kOk, "nothing was thrown");
}

const std::vector<float> kOnes(5, 1.0F);

/// Granules in runs, as ranks share them without a balancer.
Assignment in_runs(int64_t rows, int64_t granule, int64_t world_size) {
  return share_out(rows, {.world_size = world_size, .granule = granule, .deterministic = true});
}

TEST_CASE("add refuses gaps, overlaps, foreign rows and gradients of another size") {
  const Accelerator accelerator = test::open_host();
  for (const bool deterministic : {false, true}) {
    Stream program(accelerator, 0);
    GradientReduction reduction(accelerator, 0, program, 5, deterministic);
    reduction.begin(12, 2, in_runs(12, 2, 3), 1);  // rows 4..7
    const auto refused = [&](RowRange rows, const std::vector<float>& gradient) {
      const Error error = error_of([&] { reduction.add(rows, 1, 1, 1, gradient); });
      CHECK(error.status() == Status::kInvalidArgument);
      return error.message();
    };
    CHECK(refused({6, 2}, kOnes).find("micro-batch 0 of 2 of this rank is next, rows 4..5") != std::string::npos);
    CHECK(refused({0, 2}, kOnes).find("rows 4..5") != std::string::npos);
    CHECK(refused({4, 6}, kOnes).find("rows 4..9") != std::string::npos);
    refused({4, 0}, kOnes);
    CHECK(refused({-5, 5}, kOnes).find("rows 4..5") != std::string::npos);
    CHECK(refused({INT64_MAX, INT64_MAX}, kOnes).find("rows 4..5") != std::string::npos);
    const Error null = error_of([&] { reduction.add({4, 2}, 1, 1, 1, {static_cast<const float*>(nullptr), 5}); });
    CHECK(null.message().find("null pointer") != std::string::npos);
    refused({4, -1}, kOnes);
    CHECK(refused({4, 2}, std::vector<float>(4)).find("4 elements, but gradient_size() said 5") != std::string::npos);
    reduction.add({4, 2}, 1, 1, 1, kOnes);
    refused({4, 2}, kOnes);
    CHECK_FALSE(reduction.complete());
    reduction.add({6, 2}, 1, 1, 1, kOnes);
    CHECK(reduction.complete());
    CHECK(refused({8, 2}, kOnes).find("all 2 micro-batches of this rank were added") != std::string::npos);
  }
}

TEST_CASE("pieces that overlap, leave the gradient, are missing or of an unknown type are refused and change nothing") {
  const Accelerator accelerator = test::open_host();
  test::run_healthy_ranks(accelerator, 1, [&](int32_t, Communicator& communicator, Stream& stream) {
    for (const bool deterministic : {false, true}) {
      Stream program(accelerator, 0);
      GradientReduction reduction(accelerator, 0, program, 5, deterministic);
      reduction.begin(2, 1, in_runs(2, 1, 1), 0);
      const auto refused = [&](GradientPiece piece, const std::string& words) {
        const Error error = error_of([&] { reduction.add_piece({0, 1}, piece); });
        CHECK(error.status() == Status::kInvalidArgument);
        CHECK_MESSAGE(error.message().find(words) != std::string::npos, error.message());
      };
      const auto lacks = [&](const std::string& words) {
        const Error error = error_of([&] { reduction.add({0, 1}, 1, 1, 1); });
        CHECK(error.status() == Status::kInvalidArgument);
        CHECK_MESSAGE(error.message().find(words) != std::string::npos, error.message());
      };
      lacks("lacks elements 0..4 of 5");
      reduction.add_piece({0, 1}, {.offset = 1, .count = 2, .data = kOnes.data()});
      refused({.offset = 2, .count = 2, .data = kOnes.data()}, "overlaps a piece that was added before: elements 2..3");
      refused({.offset = 0, .count = 2, .data = kOnes.data()}, "overlaps");
      refused({.offset = 0, .count = 5, .data = kOnes.data()}, "overlaps");
      refused({.offset = 1, .count = 1, .data = kOnes.data()}, "overlaps a piece that was added before: element 1");
      refused({.offset = 4, .count = 2, .data = kOnes.data()}, "has 2 elements at 4, but gradient_size() said 5");
      refused({.offset = UINT64_MAX, .count = 2, .data = kOnes.data()}, "gradient_size() said 5");
      refused({.offset = 1, .count = UINT64_MAX, .data = kOnes.data()}, "gradient_size() said 5");
      refused({.offset = 3, .count = 2, .data = nullptr}, "is a null pointer: elements 3..4");
      refused({.offset = 3, .count = 2, .data = kOnes.data(), .dtype = DType::kF64}, "has the type 2");
      refused({.offset = 3, .count = 2, .data = kOnes.data(), .dtype = static_cast<DType>(99)}, "has the type 99");
      CHECK(error_of([&] { reduction.add({0, 1}, 1, 1, 1, kOnes); }).message().find("overlaps") != std::string::npos);
      CHECK(error_of([&] {
              reduction.add_piece({1, 1}, {.count = 1, .data = kOnes.data()});
            }).status() == Status::kInvalidArgument);
      lacks("lacks element 0 of 5");
      reduction.add_piece({0, 1}, {.offset = 0, .count = 1, .data = kOnes.data()});
      reduction.add_piece({0, 1}, {.offset = 5, .count = 0});
      lacks("lacks elements 3..4 of 5");
      reduction.add_piece({0, 1}, {.offset = 3, .count = 2, .data = kOnes.data()});
      reduction.add({0, 1}, 1, 1, 1);
      reduction.add({1, 1}, 1, 1, 1, kOnes);
      const ReductionResult result = reduction.reduce(communicator, stream, {});
      for (const float value : result.gradient) CHECK(value == 2.0F);
      CHECK(result.loss_sum == 2.0);
    }
  });
}

TEST_CASE("pieces of 16 bits, from the host or the device and in any order, are added as floats") {
  const Accelerator accelerator = test::open_host();
  test::run_healthy_ranks(accelerator, 1, [&](int32_t, Communicator& communicator, Stream& stream) {
    for (const bool deterministic : {false, true}) {
      Stream program(accelerator, 0);
      GradientReduction reduction(accelerator, 0, program, 6, deterministic);
      reduction.measure_parts(true);
      reduction.begin(3, 1, in_runs(3, 1, 1), 0);
      const std::vector<uint16_t> bf16{0x3F80, 0x4000};  // 1, 2
      const std::vector<uint16_t> f16{0x4200, 0x4400};   // 3, 4
      const std::vector<float> f32{5, 6};
      const Buffer there(accelerator, 0, 4);
      stream.copy(there.pointer(), f16.data(), 4);
      stream.synchronize();
      for (int64_t row = 0; row < 3; ++row) {
        reduction.add_piece({row, 1}, {.offset = 4, .count = 2, .data = f32.data()});
        reduction.add_piece({row, 1}, {.offset = 0, .count = 2, .data = bf16.data(), .dtype = DType::kBF16});
        reduction.add_piece({row, 1}, {.offset = 2, .count = 2, .data = there.pointer(), .dtype = DType::kF16});
        reduction.add({row, 1}, 0, 7, 0);
      }
      const ReductionResult result = reduction.reduce(communicator, stream, {});
      for (size_t i = 0; i < 6; ++i) CHECK(result.gradient[i] == 3.0F * static_cast<float>(i + 1));
      CHECK(result.part_norms == doctest::Approx(3 * 91.0 / 7));
    }
  });
}

TEST_CASE("a device without memory for the sums says so each time, and the step can begin again") {
  const Accelerator accelerator = test::open_host("memory_bytes = 65536");
  const std::vector<float> gradient(10000, 1.0F);
  for (const bool deterministic : {false, true}) {
    Stream program(accelerator, 0);
    GradientReduction reduction(accelerator, 0, program, gradient.size(), deterministic);
    std::vector<Buffer> others;
    others.emplace_back(accelerator, 0, 60000);
    for (int attempt = 0; attempt < 2; ++attempt) {
      reduction.begin(1, 1, in_runs(1, 1, 1), 0);
      for (int again = 0; again < 2; ++again) {
        CHECK(error_of([&] { reduction.add({0, 1}, 1, 1, 1, gradient); }).status() == Status::kResourceExhausted);
      }
      CHECK_FALSE(reduction.complete());
    }
    others.clear();
    reduction.add({0, 1}, 1, 1, 1, gradient);
    CHECK(reduction.complete());
  }
}

TEST_CASE(
    "the sum over ranks in fixed order lies where the own sums did, and takes no gradient's worth of memory more") {
  constexpr size_t kLarge = size_t{1} << 22U;
  const Accelerator accelerator = test::open_host("memory_bytes = 60000000");  // two ranks: 34 MB, and 17 for slices
  test::run_healthy_ranks(accelerator, 2, [&](int32_t rank, Communicator& communicator, Stream& stream) {
    Stream program(accelerator, 0);
    const std::vector<float> gradient(kLarge, 1.0F);
    GradientReduction reduction(accelerator, 0, program, kLarge, true);
    for (int step = 0; step < 2; ++step) {
      reduction.begin(2, 1, in_runs(2, 1, 2), rank);
      reduction.add({rank, 1}, 1, 1, 1, gradient);
      const ReductionResult result = reduction.reduce(communicator, stream, {});
      CHECK(std::all_of(result.gradient.begin(), result.gradient.end(), [](float value) { return value == 2.0F; }));
    }
  });
}

TEST_CASE("a step that begins again drops the pieces of a micro-batch that never ended") {
  const Accelerator accelerator = test::open_host();
  test::run_healthy_ranks(accelerator, 1, [&](int32_t, Communicator& communicator, Stream& stream) {
    for (const bool deterministic : {false, true}) {
      Stream program(accelerator, 0);
      GradientReduction reduction(accelerator, 0, program, 5, deterministic);
      for (int attempt = 0; attempt < 3; ++attempt) {
        reduction.begin(2, 1, in_runs(2, 1, 1), 0);
        reduction.add({0, 1}, 1, 1, 1, kOnes);
        reduction.add_piece({1, 1}, {.offset = 1, .count = 2, .data = kOnes.data()});
      }
      reduction.begin(2, 1, in_runs(2, 1, 1), 0);
      reduction.add({0, 1}, 1, 1, 1, kOnes);
      reduction.add({1, 1}, 1, 1, 1, kOnes);
      const ReductionResult result = reduction.reduce(communicator, stream, {});
      for (const float value : result.gradient) CHECK(value == 2.0F);
    }
  });
}

TEST_CASE("deterministic mode takes one granule at a time, the last one may be short") {
  const Accelerator accelerator = test::open_host();
  Stream program(accelerator, 0);
  GradientReduction reduction(accelerator, 0, program, 5, true);
  reduction.begin(5, 2, in_runs(5, 2, 1), 0);
  const Error error = error_of([&] { reduction.add({0, 4}, 1, 1, 1, kOnes); });
  CHECK(error.status() == Status::kInvalidArgument);
  CHECK(error.message().find("rows 0..1") != std::string::npos);
  CHECK(error_of([&] { reduction.add({0, 1}, 1, 1, 1, kOnes); }).status() == Status::kInvalidArgument);
  reduction.add({0, 2}, 1, 1, 1, kOnes);
  reduction.add({2, 2}, 1, 1, 1, kOnes);
  reduction.add({4, 1}, 1, 1, 1, kOnes);
  CHECK(reduction.complete());
}

TEST_CASE("nothing is complete before begin, and begin refuses nonsense") {
  const Accelerator accelerator = test::open_host();
  Stream program(accelerator, 0);
  GradientReduction reduction(accelerator, 0, program, 5, false);
  CHECK_FALSE(reduction.complete());
  CHECK(error_of([&] { reduction.add({0, 1}, 1, 1, 1, kOnes); }).status() == Status::kInvalidArgument);
  CHECK(error_of([&] { reduction.begin(-1, 1, in_runs(4, 1, 1), 0); }).status() == Status::kInvalidArgument);
  CHECK(error_of([&] { reduction.begin(4, 0, in_runs(4, 1, 1), 0); }).status() == Status::kInvalidArgument);
  CHECK(error_of([&] { reduction.begin(4, 1, in_runs(4, 1, 2), 2); }).status() == Status::kInvalidArgument);
}

TEST_CASE("begin refuses an assignment that leaves a row out, has one twice or is not by granules") {
  const Accelerator accelerator = test::open_host();
  const auto refused = [&](bool deterministic, std::vector<RowRange> blocks, std::vector<size_t> offsets) {
    Stream program(accelerator, 0);
    GradientReduction reduction(accelerator, 0, program, 5, deterministic);
    const Error error = error_of([&] { reduction.begin(6, 2, {std::move(blocks), std::move(offsets)}, 0); });
    return error.status() == Status::kInvalidArgument &&
           error.message().find("an assignment must have each of 6 rows") == 0;
  };
  for (const bool deterministic : {false, true}) {
    CHECK_FALSE(refused(deterministic, {{0, 2}, {4, 2}, {2, 2}}, {0, 2, 3}));
    CHECK(refused(deterministic, {{0, 2}, {2, 2}}, {0, 1, 2}));
    CHECK(refused(deterministic, {{0, 2}, {4, 2}}, {0, 1, 2}));
    CHECK(refused(deterministic, {{0, 2}, {2, 2}, {2, 2}, {4, 2}}, {0, 2, 4}));
    CHECK(refused(deterministic, {{0, 2}, {2, 2}, {4, 4}}, {0, 2, 3}));
    CHECK(refused(deterministic, {{0, 2}, {2, 0}, {2, 2}, {4, 2}}, {0, 2, 4}));
  }
  CHECK(refused(true, {{0, 4}, {4, 2}}, {0, 1, 2}));
  CHECK_FALSE(refused(false, {{0, 4}, {4, 2}}, {0, 1, 2}));
  CHECK(refused(true, {{4, 2}, {0, 2}, {2, 2}}, {0, 2, 3}));
  CHECK_FALSE(refused(false, {{4, 2}, {0, 2}, {2, 2}}, {0, 2, 3}));
}

TEST_CASE("reduce needs a whole share, the right group and a new begin each time") {
  const Accelerator accelerator = test::open_host();
  test::run_healthy_ranks(accelerator, 1, [&](int32_t, Communicator& communicator, Stream& stream) {
    for (const bool deterministic : {false, true}) {
      Stream program(accelerator, 0);
      GradientReduction reduction(accelerator, 0, program, 5, deterministic);
      const auto status = [&] { return error_of([&] { reduction.reduce(communicator, stream, {}); }).status(); };
      CHECK(status() == Status::kFailedPrecondition);
      reduction.begin(2, 1, in_runs(2, 1, 1), 0);
      reduction.add({0, 1}, 1, 1, 1, kOnes);
      CHECK(status() == Status::kFailedPrecondition);
      reduction.begin(1, 1, in_runs(1, 1, 2), 0);
      reduction.add({0, 1}, 1, 1, 1, kOnes);
      CHECK(status() == Status::kInvalidArgument);
      reduction.begin(1, 1, in_runs(1, 1, 1), 0);
      reduction.add({0, 1}, 1, 1, 1, kOnes);
      CHECK(reduction.reduce(communicator, stream, {}).gradient[4] == 1.0F);
      CHECK(status() == Status::kFailedPrecondition);
    }
  });
}

TEST_CASE("ranks without rows take part and get the whole sum") {
  const Accelerator accelerator = test::open_host();
  test::run_healthy_ranks(accelerator, 4, [&](int32_t rank, Communicator& communicator, Stream& stream) {
    for (const bool deterministic : {false, true}) {
      Stream program(accelerator, 0);
      GradientReduction reduction(accelerator, 0, program, 5, deterministic);
      reduction.begin(3, 2, in_runs(3, 2, 4), rank);
      if (rank == 0) reduction.add({0, 2}, 0.5, 10, ~uint64_t{0}, kOnes);
      if (rank == 1) reduction.add({2, 1}, 0.25, 5, 3, std::vector<float>(5, 2.0F));
      REQUIRE(reduction.complete());
      const ReductionResult result = reduction.reduce(communicator, stream, {});
      REQUIRE(result.gradient.size() == 5);
      for (const float value : result.gradient) CHECK(value == 3.0F);
      CHECK(result.loss_sum == 0.75);
      CHECK(result.loss_tokens == 15);
      CHECK(result.digest == 2);
    }
  });
}

TEST_CASE("a batch without rows and a program without gradient reduce to zero") {
  const Accelerator accelerator = test::open_host();
  test::run_healthy_ranks(accelerator, 2, [&](int32_t rank, Communicator& communicator, Stream& stream) {
    for (const bool deterministic : {false, true}) {
      Stream program(accelerator, 0);
      GradientReduction reduction(accelerator, 0, program, 5, deterministic);
      reduction.begin(0, 2, in_runs(0, 2, 2), rank);
      const ReductionResult none = reduction.reduce(communicator, stream, {});
      CHECK(none.gradient.size() == 5);
      CHECK(none.gradient[0] == 0.0F);
      CHECK(none.loss_tokens == 0);
      GradientReduction empty(accelerator, 0, program, 0, deterministic);
      empty.begin(2, 1, in_runs(2, 1, 2), rank);
      empty.add({rank, 1}, 1.5, 2, 3, {});
      const ReductionResult losses = empty.reduce(communicator, stream, {});
      CHECK(losses.gradient.empty());
      CHECK(losses.loss_sum == 3.0);
    }
  });
}

TEST_CASE("the norms of granules are the same to the bit at every world size") {
  const Accelerator accelerator = test::open_host();
  constexpr int64_t kRows = 7;
  // Row i: gradient (i + 1, 0.1), i + 1 loss tokens. The norm of each is divided by its tokens.
  double expected = 0;
  for (int64_t i = 1; i <= kRows; ++i) {
    const auto n = static_cast<double>(i);
    expected += (n * n + 0.01) / n;
  }
  for (const bool deterministic : {true, false}) {
    std::vector<double> norms;
    for (const int32_t world_size : {1, 2, 3}) {
      test::run_healthy_ranks(accelerator, world_size, [&](int32_t rank, Communicator& communicator, Stream& stream) {
        Stream program(accelerator, 0);
        GradientReduction reduction(accelerator, 0, program, 2, deterministic);
        reduction.measure_parts(true);
        reduction.begin(kRows, 1, in_runs(kRows, 1, world_size), rank);
        const RowRange share = share_of(kRows, 1, world_size, rank);
        for (int64_t row = share.first; row < share.first + share.count; ++row) {
          reduction.add({row, 1}, 0, row + 1, 0, std::vector<float>{static_cast<float>(row + 1), 0.1F});
        }
        const ReductionResult result = reduction.reduce(communicator, stream, {});
        CHECK(result.parts == kRows);
        if (rank == 0) norms.push_back(result.part_norms);
      });
    }
    for (const double norm : norms) {
      CHECK(norm == doctest::Approx(expected));
      if (deterministic) CHECK(norm == norms.front());
    }
  }
}

TEST_CASE("the norm of an addend is that of its parameters' chunks, in one piece and in many") {
  const Accelerator accelerator = test::open_host();
  std::vector<float> gradient(5000);
  for (size_t i = 0; i < gradient.size(); ++i) gradient[i] = 0.1F * static_cast<float>(i % 97);
  const std::vector<uint64_t> parameters{1, 3000, 1999};
  for (const size_t piece : {size_t{1}, size_t{999}, gradient.size()}) {
    test::run_healthy_ranks(accelerator, 1, [&](int32_t, Communicator& communicator, Stream& stream) {
      Stream program(accelerator, 0);
      GradientReduction reduction(accelerator, 0, program, gradient.size(), true);
      reduction.measure_parts(true, parameters);
      reduction.begin(1, 1, in_runs(1, 1, 1), 0);
      for (size_t at = 0; at < gradient.size(); at += piece) {
        const size_t count = std::min(piece, gradient.size() - at);
        reduction.add_piece({0, 1}, {.offset = at, .count = count, .data = gradient.data() + at});
      }
      reduction.add({0, 1}, 0, 1, 0);
      CHECK(reduction.reduce(communicator, stream, {}).part_norms == squared_norm(gradient, parameters));
    });
  }
}

/// The gradient of one row, whose sums over rows and ranks show their order.
std::vector<float> uneven(size_t size, int64_t row) {
  std::vector<float> made(size);
  for (size_t i = 0; i < size; ++i)
    made[i] = 1.0F / static_cast<float>(1 + (i * 7919 + static_cast<size_t>(row) * 104729) % 997);
  return made;
}

/// Hands in a block from its end to its beginning. How many buckets' first one began: 0 or 1.
int add_backward(GradientReduction& reduction, RowRange rows, const std::vector<float>& gradient, size_t width,
                 Communicator& communicator, Stream& stream) {
  int began = 0;
  for (size_t end = gradient.size(); end > 0;) {
    const size_t first = end - std::min(end, width);
    reduction.add_piece(rows, {.offset = first, .count = end - first, .data = gradient.data() + first});
    if (reduction.begin_buckets(communicator, stream)) ++began;
    end = first;
  }
  reduction.add(rows, 1, 1, 1);
  return began;
}

TEST_CASE("buckets that begin before all is there change no bit, whatever other ranks do and wherever pieces end") {
  const Accelerator accelerator = test::open_host();
  constexpr size_t kSize = 5001;
  constexpr int64_t kRanks = 3;
  std::vector<float> expected(kSize);
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    const std::vector<float> one = uneven(kSize, 2 * rank);
    const std::vector<float> other = uneven(kSize, 2 * rank + 1);
    for (size_t i = 0; i < kSize; ++i) expected[i] = rank == 0 ? one[i] + other[i] : expected[i] + (one[i] + other[i]);
  }
  for (const size_t bucket : {size_t{64}, size_t{500}, size_t{2500}, kSize}) {
    for (const size_t width : {size_t{7}, size_t{64}, size_t{640}, kSize}) {
      CAPTURE(bucket);
      CAPTURE(width);
      test::run_healthy_ranks(accelerator, kRanks, [&](int32_t rank, Communicator& communicator, Stream& stream) {
        Stream program(accelerator, 0);
        GradientReduction reduction(accelerator, 0, program, kSize, false);
        reduction.reduce_buckets(bucket);
        reduction.begin(2 * kRanks, 1, in_runs(2 * kRanks, 1, kRanks), rank);
        const std::vector<float> last = uneven(kSize, 2 * rank + 1);
        CHECK(add_backward(reduction, {2 * rank, 1}, uneven(kSize, 2 * rank), width, communicator, stream) == 0);
        CHECK_FALSE(reduction.has_begun());
        if (rank == 1) {
          reduction.add({2 * rank + 1, 1}, 1, 1, 1, last);
        } else {
          const int began = add_backward(reduction, {2 * rank + 1, 1}, last, width, communicator, stream);
          CHECK(began == (width < kSize ? 1 : 0));
          CHECK(reduction.has_begun() == (width < kSize));
        }
        const ReductionResult result = reduction.reduce(communicator, stream, {});
        CHECK(std::equal(result.gradient.begin(), result.gradient.end(), expected.begin()));
        CHECK_FALSE(reduction.has_begun());
      });
    }
  }
}

TEST_CASE("no bucket begins in fixed order, alone, without the end of the gradient, and where none is wanted") {
  const Accelerator accelerator = test::open_host();
  const std::vector<float> gradient(100, 1.0F);
  for (const int32_t world_size : {1, 2}) {
    test::run_healthy_ranks(accelerator, world_size, [&](int32_t rank, Communicator& communicator, Stream& stream) {
      Stream program(accelerator, 0);
      for (const bool deterministic : {false, true}) {
        for (const uint64_t bucket : {0U, 10U}) {
          GradientReduction reduction(accelerator, 0, program, gradient.size(), deterministic);
          CHECK_FALSE(reduction.begin_buckets(communicator, stream));
          reduction.reduce_buckets(bucket);
          CHECK_FALSE(reduction.begin_buckets(communicator, stream));
          reduction.begin(world_size, 1, in_runs(world_size, 1, world_size), rank);
          CHECK_FALSE(reduction.begin_buckets(communicator, stream));
          reduction.add_piece({rank, 1}, {.offset = 0, .count = 60, .data = gradient.data()});
          CHECK_FALSE(reduction.begin_buckets(communicator, stream));
          reduction.add_piece({rank, 1}, {.offset = 89, .count = 11, .data = gradient.data()});
          const bool begins = world_size == 2 && !deterministic && bucket > 0;
          CHECK(reduction.begin_buckets(communicator, stream) == begins);
          CHECK_FALSE(reduction.begin_buckets(communicator, stream));
          reduction.add_piece({rank, 1}, {.offset = 60, .count = 29, .data = gradient.data()});
          CHECK_FALSE(reduction.begin_buckets(communicator, stream));
          reduction.add({rank, 1}, 1, 1, 1);
          const ReductionResult result = reduction.reduce(communicator, stream, {});
          const auto sum = static_cast<float>(world_size);
          CHECK(std::all_of(result.gradient.begin(), result.gradient.end(), [&](float one) { return one == sum; }));
        }
      }
    });
  }
}

TEST_CASE("a rank's own sum that overflows is noticed in whichever bucket it is, and by that rank alone") {
  const Accelerator accelerator = test::open_host();
  for (const size_t place : {size_t{0}, size_t{50}, size_t{99}}) {
    for (const bool is_early : {false, true}) {
      test::run_healthy_ranks(accelerator, 2, [&](int32_t rank, Communicator& communicator, Stream& stream) {
        Stream program(accelerator, 0);
        std::vector<float> gradient(100, 1.0F);
        if (rank == 1) gradient[place] = std::numeric_limits<float>::max();
        GradientReduction reduction(accelerator, 0, program, gradient.size(), false);
        reduction.look_for_not_finite(true);
        reduction.reduce_buckets(is_early ? 10 : 0);
        reduction.begin(4, 1, in_runs(4, 1, 2), rank);
        for (const int64_t row : {2 * rank, 2 * rank + 1})
          add_backward(reduction, {row, 1}, gradient, 7, communicator, stream);
        const ReductionResult result = reduction.reduce(communicator, stream, {});
        CHECK_FALSE(result.finite);
        CHECK(result.own_sum_overflows == (rank == 1));
        CHECK(result.not_finite.empty());
      });
    }
  }
}

TEST_CASE("where a rank is lost while buckets are on their way reduce says so, and dropped ones leave nothing behind") {
  const Accelerator accelerator = test::open_host();
  const std::vector<float> gradient(300000, 1.0F);
  std::vector<Stream> programs;
  std::vector<Stream> streams;
  std::vector<GradientReduction> reductions;
  for (int rank = 0; rank < 3; ++rank) {
    programs.emplace_back(accelerator, 0);
    streams.emplace_back(accelerator, 0);
  }
  for (Stream& program : programs) {
    reductions.emplace_back(accelerator, 0, program, gradient.size(), false);
    reductions.back().reduce_buckets(50000);
  }
  std::latch begun(3);
  test::run_healthy_ranks(accelerator, 3, [&](int32_t rank, Communicator& communicator, Stream&) {
    GradientReduction& reduction = reductions[static_cast<size_t>(rank)];
    Stream& stream = streams[static_cast<size_t>(rank)];
    reduction.begin(3, 1, in_runs(3, 1, 3), rank);
    if (rank == 2) {
      begun.arrive_and_wait();
      return communicator.abort();
    }
    reduction.add_piece({rank, 1}, {.offset = 100000, .count = 200000, .data = gradient.data()});
    CHECK(reduction.begin_buckets(communicator, stream));
    begun.arrive_and_wait();
    if (rank == 0) {
      communicator.abort();
      reduction.drop_buckets(stream);
      CHECK_FALSE(reduction.has_begun());
      return;
    }
    communicator.abort();
    reduction.add_piece({rank, 1}, {.offset = 50000, .count = 50000, .data = gradient.data()});
    CHECK_FALSE(reduction.begin_buckets(communicator, stream));
    reduction.add_piece({rank, 1}, {.offset = 0, .count = 50000, .data = gradient.data()});
    reduction.add({rank, 1}, 1, 1, 1);
    const Error error = error_of([&] { reduction.reduce(communicator, stream, {}); });
    CHECK((error.status() == Status::kAborted || error.status() == Status::kPeerLost));
    CHECK_FALSE(reduction.has_begun());
  });
  test::run_healthy_ranks(accelerator, 2, [&](int32_t rank, Communicator& communicator, Stream&) {
    GradientReduction& reduction = reductions[static_cast<size_t>(rank)];
    reduction.begin(2, 1, in_runs(2, 1, 2), rank);
    Stream& stream = streams[static_cast<size_t>(rank)];
    CHECK(add_backward(reduction, {rank, 1}, gradient, 70000, communicator, stream) == 1);
    const ReductionResult result = reduction.reduce(communicator, stream, {});
    CHECK(std::all_of(result.gradient.begin(), result.gradient.end(), [](float value) { return value == 2.0F; }));
  });
}

TEST_CASE("midway is called once on every rank") {
  const Accelerator accelerator = test::open_host();
  for (const bool deterministic : {false, true}) {
    for (const int32_t world_size : {1, 3}) {
      std::atomic<int> calls{0};
      test::run_healthy_ranks(accelerator, world_size, [&](int32_t rank, Communicator& communicator, Stream& stream) {
        const std::vector<float> gradient(500000, 1.0F);
        Stream program(accelerator, 0);
        GradientReduction reduction(accelerator, 0, program, gradient.size(), deterministic);
        reduction.begin(world_size, 1, in_runs(world_size, 1, world_size), rank);
        reduction.add({rank, 1}, 1, 1, 1, gradient);
        reduction.reduce(communicator, stream, [&] { ++calls; });
      });
      CHECK(calls == world_size);
    }
  }
}

TEST_CASE("when a rank leaves half way the others are told, and the step can begin again in a new group") {
  const Accelerator accelerator = test::open_host();
  for (const bool deterministic : {false, true}) {
    std::vector<Stream> programs;
    std::vector<GradientReduction> reductions;
    for (int rank = 0; rank < 3; ++rank) programs.emplace_back(accelerator, 0);
    for (Stream& program : programs) reductions.emplace_back(accelerator, 0, program, 500000, deterministic);
    const std::vector<float> gradient(500000, 1.0F);
    const auto outcome = test::run_ranks(accelerator, 3, [&](int32_t rank, Communicator& communicator, Stream& stream) {
      GradientReduction& reduction = reductions[static_cast<size_t>(rank)];
      reduction.begin(6, 2, in_runs(6, 2, 3), rank);
      reduction.add({2 * rank, 2}, 1, 1, 1, gradient);
      reduction.reduce(communicator, stream, [&] {
        if (rank == 2) throw Error(Status::kInternal, "rank 2 leaves");
      });
    });
    for (size_t rank = 0; rank < 3; ++rank) {
      CAPTURE(rank);
      REQUIRE(outcome[rank]);
      const Error error = error_of([&] { std::rethrow_exception(outcome[rank]); });
      const bool told = error.status() == Status::kPeerLost || error.status() == Status::kAborted;
      CHECK((rank == 2 ? error.message() == "rank 2 leaves" : told));
    }
    test::run_healthy_ranks(accelerator, 2, [&](int32_t rank, Communicator& communicator, Stream& stream) {
      GradientReduction& reduction = reductions[static_cast<size_t>(rank)];
      reduction.begin(6, 2, in_runs(6, 2, 2), rank);
      const RowRange share = share_of(6, 2, 2, rank);
      for (const RowRange& rows : micro_batches(share, 2)) reduction.add(rows, 1, 1, 1, gradient);
      const ReductionResult result = reduction.reduce(communicator, stream, {});
      CHECK(result.gradient[499999] == 3.0F);
      CHECK(result.loss_tokens == 3);
    });
  }
}

}  // namespace
}  // namespace pliant::elastic
