// What ranks of one machine know of each other beside NCCL: pages, the calls that they show, and why one of them ended.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "cuda/peers.hpp"

using namespace pliant;
using namespace pliant::cuda;
using accelerator::CallKind;
using accelerator::FailureCause;

namespace {

CallNote gather_of(uint64_t count) {
  return {CallKind::kAllGather, sdk::DType::kF32, sdk::ReduceOp::kSum, 0, count};
}
CallNote message(CallKind kind, int32_t peer, uint64_t count) {
  return {kind, sdk::DType::kF32, sdk::ReduceOp::kSum, peer, count};
}

/// Ranks that have met, all in this process.
struct Machine {
  explicit Machine(int32_t ranks) {
    std::vector<PageName> names;
    for (int32_t r = 0; r < ranks; ++r) {
      peers.push_back(std::make_shared<Peers>(r));
      names.push_back(peers.back()->name());
    }
    for (const auto& one : peers) one->meet(names, watch);
  }
  accelerator::ProcessWatch watch;
  std::vector<std::shared_ptr<Peers>> peers;
};

/// The rank of the error; -1: none, or about no rank.
int32_t blamed(Peers& peers, const std::vector<CallNote>& calls) {
  try {
    peers.note(calls);
  } catch (const sdk::Failure& failure) {
    CHECK(failure.status() == PLIANT_INVALID_ARGUMENT);
    return failure.rank();
  }
  return -1;
}

}  // namespace

TEST_CASE("a page that is not there, is another's or is no page is not opened") {
  const PeerPage page;
  PageName name = page.name();
  CHECK(PeerPage::open(name));
  ++name.nonce;
  CHECK(!PeerPage::open(name));
  name = page.name();
  name.descriptor = 1 << 20;
  CHECK(!PeerPage::open(name));
  name.descriptor = STDERR_FILENO;
  CHECK(!PeerPage::open(name));
  const pid_t gone = ::fork();
  if (gone == 0) ::_exit(0);
  ::waitpid(gone, nullptr, 0);
  name = page.name();
  name.process = accelerator::ProcessId{gone, 1}.packed();
  CHECK(!PeerPage::open(name));
}

TEST_CASE("ranks of other machines and ranks without a page are nobody's peers") {
  const auto first = std::make_shared<Peers>(0);
  const auto second = std::make_shared<Peers>(1);
  accelerator::ProcessWatch watch;
  std::vector<PageName> names{first->name(), second->name(), PageName{}};
  ++names[1].pid_space;
  first->meet(names, watch);
  CHECK(!first->has_any());
  CHECK(blamed(*first, {gather_of(4)}) == -1);
}

TEST_CASE("a ring gives the calls that it keeps, and no others") {
  PeerPage page;
  CallRing& ring = page.words().collectives;
  CHECK(!ring.at(0));
  for (uint64_t i = 0; i <= CallRing::kKept; ++i) CHECK(ring.post(gather_of(i)) == i);
  CHECK(!ring.at(0));
  CHECK(!ring.at(CallRing::kKept + 1));
  const auto last = ring.at(CallRing::kKept);
  REQUIRE(last);
  CHECK(last->note == gather_of(CallRing::kKept));
}

TEST_CASE("whoever calls later is told the rank that calls something else, and the others are told that it was so") {
  Machine machine(3);
  CHECK(blamed(*machine.peers[0], {gather_of(4)}) == -1);
  CHECK(blamed(*machine.peers[2], {gather_of(4)}) == -1);
  CHECK(blamed(*machine.peers[1], {gather_of(5)}) != -1);
  for (const int32_t r : {0, 2}) {
    const auto told = machine.peers[static_cast<size_t>(r)]->found(false);
    REQUIRE(told);
    CHECK(told->status() == PLIANT_INVALID_ARGUMENT);
    CHECK(told->rank() != r);
  }
}

TEST_CASE("calls that are equal are told apart by those before them that are no longer kept") {
  Machine machine(2);
  CHECK(blamed(*machine.peers[0], {gather_of(1)}) == -1);
  for (uint64_t i = 1; i < CallRing::kKept; ++i) CHECK(blamed(*machine.peers[0], {gather_of(4)}) == -1);
  CHECK(blamed(*machine.peers[1], {gather_of(2)}) == -1);
  CHECK(blamed(*machine.peers[1], {gather_of(4)}) == 0);
}

TEST_CASE("messages are compared pair by pair, whichever side comes first") {
  Machine machine(3);
  CHECK(blamed(*machine.peers[0], {message(CallKind::kSend, 1, 8), message(CallKind::kSend, 2, 9)}) == -1);
  CHECK(blamed(*machine.peers[1], {message(CallKind::kRecv, 0, 8)}) == -1);
  CHECK(blamed(*machine.peers[2], {message(CallKind::kRecv, 0, 8)}) == 0);
  CHECK(blamed(*machine.peers[1], {message(CallKind::kRecv, 2, 3)}) == -1);
  CHECK(blamed(*machine.peers[2], {message(CallKind::kSend, 1, 4)}) == 1);
}

TEST_CASE("the death of a process is a loss unless its rank had left or had failed itself") {
  Machine machine(4);
  const accelerator::ProcessId here = accelerator::ProcessId::self();
  Peers& own = *machine.peers[0];
  machine.peers[2]->leave();
  machine.peers[3]->tell(sdk::Failure(PLIANT_INTERNAL, "out of order"), FailureCause::kNone);
  CHECK(!own.found(false));
  own.ended(here);
  const auto told = own.found(false);
  REQUIRE(told);
  CHECK(told->status() == PLIANT_PEER_LOST);
  CHECK(told->rank() == 1);
}

TEST_CASE("a rank that left when nothing ran is named to those whom NCCL failed, and to no others") {
  Machine machine(2);
  machine.peers[1]->leave();
  CHECK(!machine.peers[0]->found(false));
  const auto told = machine.peers[0]->found(true);
  REQUIRE(told);
  CHECK(told->status() == PLIANT_PEER_LOST);
  CHECK(told->rank() == 1);
}

TEST_CASE("a rank that gave the communicator up is named to those whom NCCL failed, and to no others") {
  Machine machine(2);
  machine.peers[1]->tell(sdk::Failure(PLIANT_ABORTED, "aborted"), FailureCause::kAborted);
  CHECK(!machine.peers[0]->found(false));
  const auto told = machine.peers[0]->found(true);
  REQUIRE(told);
  CHECK(told->rank() == 1);
}
