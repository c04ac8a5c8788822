// A process that uses the plugin may fork: its child shares nothing, and is nobody's rank.
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "testkit/checks/accelerator_checks.hpp"
#include "testkit/checks/failure_work.hpp"

namespace pliant::testkit {

namespace {

enum class Child { kExits, kExecutes };

/// Nothing but calls that a child of a process with threads may make.
void fork_and_wait(Child way) {
  const pid_t child = ::fork();
  expect(child >= 0, "the system does not allow fork");
  if (child == 0) {
    char name[] = "true";
    char* const words[] = {name, nullptr};
    if (way == Child::kExecutes) ::execv("/bin/true", words);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  expect(WIFEXITED(status), "a forked child that used nothing of the plugin " + words_of(status));
}

void forks_script(const Rank& rank) {
  const Comm comm(rank, rank.id());
  comm.join();
  const Stream stream(rank.accelerator, rank.rank % rank.accelerator.devices());
  for (int i = 0; i < 6; ++i) {
    const CollectiveWork work(rank, {Collective::kAllReduce, PLIANT_F32, PLIANT_SUM, 100003});
    must("all_reduce", work.enqueue(comm, stream));
    if (rank.rank == 0) fork_and_wait(i % 2 == 0 ? Child::kExits : Child::kExecutes);
    stream.wait();
    work.verify();
  }
  must("comm_status after forking", comm.status(0));
}

void forks(const Subject& subject) {
  need_collectives(subject);
  Ranks ranks(subject, "forks", 2);
  ranks.carry_id();
  ranks.finish();
}

/// Rank 0 leaves a child behind and is killed; rank 1 waits for it in a barrier.
void orphan_script(const Rank& rank) {
  const Comm comm(rank, rank.id());
  comm.join();
  const Stream stream(rank.accelerator, rank.rank % rank.accelerator.devices());
  if (rank.rank == 0) {
    const pid_t child = ::fork();
    expect(child >= 0, "the system does not allow fork");
    if (child == 0) {
      pollfd check{kOwnSocket, 0, 0};
      // Lives as long as the check, and no longer: whoever reads what the kit prints would wait for it.
      while (::poll(&check, 1, -1) < 0) continue;
      ::_exit(0);
    }
    rank.tell("has a child");
    rank.hear();  // for ever
  }
  const CollectiveWork work(rank, {});
  must("barrier", work.enqueue(comm, stream));
  rank.tell("waits");
  const Outcome outcome = stream.synchronize();
  rank.tell(outcome.ok() ? "" : outcome.text());
}

void orphan(const Subject& subject) {
  need_collectives(subject);
  Ranks ranks(subject, "orphan", 2);
  ranks.carry_id();
  ranks.hear(0, "child");
  ranks.hear(1, "return of barrier");
  ranks.kill(0);
  bool heard = false;
  std::string said;
  returns_soon("a barrier with a rank that was killed, whose forked child lives on,", [&] {
    said = ranks.hear(1, "end of barrier");
    heard = true;
  });
  expect(heard && !said.empty(), "a barrier ended with PLIANT_OK though a rank was killed before it called it");
  ranks.finish(0);
}

}  // namespace

std::vector<Script> fork_scripts() {
  return {{"forks", forks_script}, {"orphan", orphan_script}};
}

std::vector<Check> fork_checks() {
  return {
      {"forks.harmless", "a forked child that ends or runs another program disturbs no rank", forks, 60},
      {"forks.orphan", "a killed rank is lost even if its forked child lives on", orphan, 60},
  };
}

}  // namespace pliant::testkit
