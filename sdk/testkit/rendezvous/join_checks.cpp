// Each generation against the rules of pliant/sdk/rendezvous_rules.hpp, which hosts use, too, and what two nodes agree
// on.
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "testkit/rendezvous/checks.hpp"
#include "testkit/rendezvous/node.hpp"

namespace pliant::testkit {

namespace {

/// Another one each time, so that nothing of an earlier run is met.
std::string drawn_run(const Subject& subject, uint64_t where) {
  Draws draws(subject.seed, (where << 20U) + 5);
  return "check-" + std::to_string(::getpid()) + "-" + std::to_string(draws.below(UINT64_MAX));
}

void rising_generations(const Subject& subject) {
  const OpenedPlugin plugin(subject.file);
  const std::string run = drawn_run(subject, 0);
  Node node(plugin, subject);
  Draws draws(subject.seed, 6);
  int64_t last = 0;
  for (int i = 0; i < 8; ++i) {
    const auto workers = static_cast<int32_t>(i == 1 ? 0 : i == 2 ? 9 : draws.between(1, 9));
    const Joined made = node.join(run, workers);
    expect(made.ok(), "a join of " + std::to_string(workers) + " workers returned " + made.told.text());
    const std::string fault = sdk::generation_fault(made.generation, last, workers);
    expect(fault.empty(),
           "at join number " + std::to_string(i + 1) + " of " + std::to_string(workers) + " workers, " + fault);
    last = made.generation.generation;
  }
}

void generation_fields(const Subject& subject) {
  const OpenedPlugin plugin(subject.file);
  Node node(plugin, subject);
  const Joined made = node.join(drawn_run(subject, 1), 5, 0x7F);
  expect(made.ok(), "join returned " + made.told.text());
  expect(made.spilled.empty(), made.spilled);
  constexpr int32_t kGarbage = 0x7F7F7F7F;
  const pliant_generation& one = made.generation;
  for (const int32_t field : {one.group_rank, one.node_count, one.first_rank, one.world_size, one.master_port}) {
    expect(field != kGarbage, "a field of the generation is not written");
  }
  expect(one.generation != 0x7F7F7F7F7F7F7F7F, "the number of the generation is not written");
  expect(one.master_addr[0] != 0x7F, "the master address is not written");
}

bool can_bind(const pliant_generation& made, std::string& why) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int resolved = ::getaddrinfo(made.master_addr, std::to_string(made.master_port).c_str(), &hints, &found);
  if (resolved != 0) {
    why = ::gai_strerror(resolved);
    return false;
  }
  const int socket = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool bound = socket >= 0 && ::bind(socket, found->ai_addr, found->ai_addrlen) == 0;
  if (!bound) why = std::strerror(errno);
  if (socket >= 0) ::close(socket);
  ::freeaddrinfo(found);
  return bound;
}

/// Another program may take a port as soon as it is free: one of several is enough.
void free_port(const Subject& subject) {
  const OpenedPlugin plugin(subject.file);
  Node node(plugin, subject);
  const std::string run = drawn_run(subject, 2);
  std::string taken;
  for (int i = 0; i < 5; ++i) {
    const Joined made = node.join(run, 2);
    expect(made.ok(), "join returned " + made.told.text());
    if (!made.is_alone()) skip("another node has the port");
    std::string why;
    if (can_bind(made.generation, why)) return;
    taken = "port " + std::to_string(made.generation.master_port) + " of '" + made.generation.master_addr +
            "' is not free, and neither were those before it: " + why;
  }
  fail(taken);
}

/// Two nodes of one run, the second of which comes when the first has its generation.
class TwoNodes {
 public:
  TwoNodes(const Subject& subject, uint64_t where)
      : plugin_(subject.file), run_(drawn_run(subject, where)), first_(plugin_, subject), second_(plugin_, subject) {
    one_ = first_.join(run_, 2);
    expect(one_.ok(), "join returned " + one_.told.text());
    coming_ = std::async(std::launch::async, [this] { return second_.join(run_, 3); });
  }
  Node& first() { return first_; }
  Node& second() { return second_; }
  /// Until the first one is to join again. Skips the check where nodes do not meet; where the second one is not
  /// announced, too, which is_judged says to fail.
  void meet(bool is_judged = false) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < end) {
      if (first_.watch(20).changed == 1) return;
      if (coming_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) continue;
      two_ = coming_.get();
      if (two_.is_alone()) skip("it joins no nodes: two nodes of a run get a generation each");
      fail("join of a new node returned before the other node joined again: " +
           (two_.ok() ? std::to_string(two_.generation.node_count) + " nodes" : two_.told.text()));
    }
    if (is_judged) fail("watch reports no change after another node joins");
    skip("watch reports no change after another node joins");
  }
  /// Both join.
  void join() {
    one_ = first_.join(run_, 2);
    two_ = in_time(coming_, "the join of the second of two nodes");
    expect(one_.ok() && two_.ok(), "join returned " + (one_.ok() ? two_ : one_).told.text());
  }
  /// The second is still in its join.
  Joined leave_second() {
    second_.leave();
    return in_time(coming_, "a join whose node leaves");
  }
  void rejoin_first() { one_ = first_.join(run_, 2); }
  [[nodiscard]] const Joined& one() const { return one_; }
  [[nodiscard]] const Joined& two() const { return two_; }

 private:
  const OpenedPlugin plugin_;
  const std::string run_;
  Node first_;
  Node second_;
  Joined one_;
  Joined two_;
  std::future<Joined> coming_;
};

void agreed_nodes(const Subject& subject) {
  TwoNodes pair(subject, 3);
  const int64_t before = pair.one().generation.generation;
  pair.meet();
  pair.join();
  const pliant_generation& one = pair.one().generation;
  const pliant_generation& two = pair.two().generation;
  for (const Joined* joined : {&pair.one(), &pair.two()}) {
    const std::string fault = sdk::generation_fault(joined->generation, before, joined->workers);
    expect(fault.empty(), "one of two nodes got a wrong generation: " + fault);
  }
  const auto alike = [](int64_t a, int64_t b, const char* what) {
    expect(a == b, std::string("two nodes do not agree on the ") + what + ": " + std::to_string(a) + " and " +
                       std::to_string(b));
  };
  alike(one.generation, two.generation, "generation");
  alike(one.node_count, two.node_count, "number of nodes");
  alike(one.world_size, two.world_size, "world size");
  alike(one.master_port, two.master_port, "master port");
  expect(std::string(one.master_addr) == two.master_addr, "two nodes do not agree on the master address");
  expect(one.node_count == 2 && one.world_size == 5, "2 nodes with 2 and 3 workers are " +
                                                         std::to_string(one.node_count) + " nodes with " +
                                                         std::to_string(one.world_size));
  expect(one.group_rank != two.group_rank, "two nodes have the same group rank");
  const bool ordered = one.group_rank < two.group_rank;
  expect(ordered ? one.first_rank == 0 && two.first_rank == 2 : two.first_rank == 0 && one.first_rank == 3,
         "the ranks of two nodes begin at " + std::to_string(one.first_rank) + " and " +
             std::to_string(two.first_rank) + "; they must be consecutive, in the order of the group ranks");
}

void node_comes(const Subject& subject) {
  TwoNodes pair(subject, 8);
  pair.meet(true);
  pair.join();
}

void node_gone(const Subject& subject) {
  TwoNodes pair(subject, 4);
  pair.meet();
  pair.join();
  const int64_t before = pair.one().generation.generation;
  pair.second().leave();
  expect_changed(pair.first(), "the other node left");
  pair.rejoin_first();
  expect(pair.one().ok(), "join returned " + pair.one().told.text());
  const std::string fault = sdk::generation_fault(pair.one().generation, before, 2);
  expect(fault.empty(), "after the other node left, " + fault);
  expect(pair.one().is_alone(), "a node that left is still counted");
}

void left_in_join(const Subject& subject) {
  TwoNodes pair(subject, 5);
  pair.meet();
  const Joined joined = pair.leave_second();
  expect(joined.told.status == PLIANT_ABORTED, "a join whose node leaves returned " +
                                                   (joined.ok() ? std::string("PLIANT_OK") : joined.told.text()) +
                                                   ", not PLIANT_ABORTED");
}

void runs_apart(const Subject& subject) {
  const OpenedPlugin plugin(subject.file);
  Node one(plugin, subject);
  Node other(plugin, subject);
  expect(one.join(drawn_run(subject, 6), 2).ok(), "join failed");
  auto coming = std::async(std::launch::async, [&] { return other.join(drawn_run(subject, 7), 3); });
  const Joined joined = in_time(coming, "the join of a node of another run");
  expect(joined.is_alone(),
         "a node of another run is counted: " + std::to_string(joined.generation.node_count) + " nodes");
}

}  // namespace

std::vector<Check> join_checks() {
  return {
      {"join.generation", "generation numbers rise; ranks, workers, address and port are consistent",
       rising_generations, 60},
      {"join.fields", "join writes every field of a generation, and nothing else", generation_fields},
      {"join.port", "the master port is free when join returns", free_port},
      {"join.agreed", "two nodes of a run get the same generation and consecutive ranks", agreed_nodes, 60},
      {"join.comes", "watch reports a node that joins", node_comes, 60},
      {"join.gone", "watch reports a node that leaves, and the next generation does not count it", node_gone, 60},
      {"join.left", "leave ends a waiting join with PLIANT_ABORTED", left_in_join, 60},
      {"join.runs", "nodes of another run are not counted", runs_apart, 60},
  };
}

}  // namespace pliant::testkit
