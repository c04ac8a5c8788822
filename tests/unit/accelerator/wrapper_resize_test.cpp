// Communicators of the embedding API that shrink and grow.
#include <doctest/doctest.h>

#include <array>
#include <functional>
#include <latch>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "pliant/communicator.hpp"
#include "wrapper.hpp"

using pliant::test::error_of;
using pliant::test::host;

namespace {

/// Runs body(rank) on a thread for each of the ranks.
void on_ranks(const std::vector<int32_t>& ranks, const std::function<void(int32_t)>& body) {
  std::vector<std::thread> threads;
  threads.reserve(ranks.size());
  for (const int32_t rank : ranks) threads.emplace_back([&body, rank] { body(rank); });
  for (std::thread& thread : threads) thread.join();
}

/// The sum of one number of each rank.
int32_t sum_of(const pliant::Accelerator& accelerator, pliant::Communicator& comm, int32_t own) {
  pliant::Stream stream(accelerator, 0);
  int32_t sum = 0;
  comm.all_reduce(&own, &sum, 1, pliant::DType::kI32, pliant::ReduceOp::kSum, stream);
  stream.synchronize();
  return sum;
}

std::vector<pliant::Accelerator> accelerators() {
  return {host(), pliant::test::generic()};
}

}  // namespace

TEST_CASE("a communicator shrinks to the ranks that stay, while a collective waits for one that is gone") {
  for (const pliant::Accelerator& accelerator : accelerators()) {
    const pliant::CommId id = accelerator.make_comm_id(4);
    const pliant::CommId next = accelerator.make_comm_id(2);
    std::array<int32_t, 4> sums{};
    std::array<int32_t, 4> ranks{};
    std::latch joined(4);
    on_ranks({0, 1, 2, 3}, [&](int32_t rank) {
      const auto at = static_cast<size_t>(rank);
      pliant::Communicator comm(accelerator, 0, id, rank, 4);
      comm.wait_ready();
      joined.arrive_and_wait();
      if (rank == 0 || rank == 2) return;  // gone
      pliant::Stream stream(accelerator, 0);
      comm.barrier(stream);
      const std::vector<int32_t> without = {0, 2};
      pliant::Communicator smaller = comm.shrink(without, next);
      CHECK(error_of([&] { stream.synchronize(); }));
      CHECK(smaller.world_size() == 2);
      ranks[at] = smaller.rank();
      sums[at] = sum_of(accelerator, smaller, 10 + rank);
    });
    CHECK(sums == std::array<int32_t, 4>{0, 24, 0, 24});
    CHECK(ranks == std::array<int32_t, 4>{0, 0, 0, 1});
  }
}

TEST_CASE("a communicator grows by ranks that join, and old ranks keep theirs") {
  for (const pliant::Accelerator& accelerator : accelerators()) {
    const pliant::CommId id = accelerator.make_comm_id(2);
    const pliant::CommId next = accelerator.make_comm_id(3);
    std::array<int32_t, 3> sums{};
    on_ranks({0, 1, 2}, [&](int32_t rank) {
      std::optional<pliant::Communicator> comm;
      if (rank < 2) {
        pliant::Communicator before(accelerator, 0, id, rank, 2);
        CHECK(sum_of(accelerator, before, rank) == 1);
        comm = before.grow(next, 3);
      } else {
        comm = pliant::Communicator::join(accelerator, 0, next, rank, 3);
      }
      CHECK(comm->rank() == rank);
      sums[static_cast<size_t>(rank)] = sum_of(accelerator, *comm, rank + 1);
    });
    CHECK(sums == std::array<int32_t, 3>{6, 6, 6});
  }
}

TEST_CASE("impossible lists of ranks are refused in words, and the communicator goes on") {
  const pliant::Accelerator accelerator = host();
  pliant::Communicator comm(accelerator, 0, accelerator.make_comm_id(1), 0, 1);
  const pliant::CommId id = accelerator.make_comm_id(1);
  const auto told = [&](const std::vector<int32_t>& without) {
    const auto error = error_of([&] { (void)comm.shrink(without, id); });
    REQUIRE(error);
    CHECK(error->status() == pliant::Status::kInvalidArgument);
    return error->message();
  };
  CHECK(told({}).find("the list of leaving ranks is empty") != std::string::npos);
  CHECK(told({1}).find("rank 1, which is to leave, is outside 0..0") != std::string::npos);
  CHECK(told({0}).find("rank 0 cannot leave a communicator and stay in it") != std::string::npos);
  const auto same = error_of([&] { (void)comm.grow(id, 1); });
  REQUIRE(same);
  CHECK(same->message().find("a communicator of 1 ranks cannot grow to 1") != std::string::npos);
  CHECK(sum_of(accelerator, comm, 5) == 5);
}
