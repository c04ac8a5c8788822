// What the plugin says when the system gives no more, and that it goes on afterwards.
#include <sys/resource.h>
#include <unistd.h>

#include "testkit/checks/accelerator_checks.hpp"
#include "testkit/ranks.hpp"
#include "testkit/sample_work.hpp"

namespace pliant::testkit {

namespace {

using Slots = pliant_accelerator;

/// A lower limit of this process while it lives.
class Limit {
 public:
  Limit(decltype(RLIMIT_NOFILE) what, uint64_t most) : what_(what) {
    expect(::getrlimit(what_, &before_) == 0, "cannot read the limits of the system");
    struct rlimit lower = before_;
    lower.rlim_cur = most;
    if (most >= before_.rlim_max || ::setrlimit(what_, &lower) != 0) skip("cannot lower the limits of the system");
  }
  ~Limit() { ::setrlimit(what_, &before_); }
  Limit(const Limit&) = delete;
  Limit& operator=(const Limit&) = delete;

 private:
  decltype(RLIMIT_NOFILE) what_;
  struct rlimit before_ {};
};

uint64_t lowest_free_descriptor() {
  const int one = ::dup(STDERR_FILENO);
  if (one < 0) skip("no descriptor is free");
  ::close(one);
  return static_cast<uint64_t>(one);
}

/// True when it worked.
bool in_words(const char* slot, const Outcome& outcome, const std::string& when) {
  expect(outcome.ok() || !outcome.message.empty(),
         std::string(slot) + " returned " + outcome.text() + " " + when + ", without a message");
  return outcome.ok();
}

void make_stream_and_event(const Accelerator& accelerator, const std::string& when) {
  pliant_stream* stream = nullptr;
  if (in_words("stream_create",
               accelerator.call(&Slots::stream_create, 0, PLIANT_STREAM_COMPUTE, PLIANT_PRIORITY_NORMAL, &stream),
               when)) {
    accelerator.slots().stream_destroy(accelerator.self(), stream);
  }
  pliant_event* event = nullptr;
  if (in_words("event_create", accelerator.call(&Slots::event_create, 0, PLIANT_EVENT_TIMING, &event), when)) {
    accelerator.slots().event_destroy(accelerator.self(), event);
  }
}

/// A communicator that the others never join.
void make_communicator(const Accelerator& accelerator, const std::string& when) {
  const pliant_collectives& table = *accelerator.collectives();
  pliant_comm_id id{};
  if (!in_words("comm_id", accelerator.call(&pliant_collectives::comm_id, 2, &id), when)) return;
  pliant_comm* comm = nullptr;
  if (!in_words("comm_create", accelerator.call(&pliant_collectives::comm_create, 0, &id, 0, 2, &comm), when)) return;
  static_cast<void>(in_words("comm_status", accelerator.call(&pliant_collectives::comm_status, comm, 0), when));
  table.comm_abort(accelerator.self(), comm);
  table.comm_destroy(accelerator.self(), comm);
}

void still_works(const Accelerator& accelerator, uint64_t seed) {
  const Stream stream(accelerator);
  const Event event(accelerator);
  const SampleWork work(accelerator, seed);
  work.enqueue(WorkKind::kFill, stream);
  event.record(stream);
  event.wait();
  work.verify(WorkKind::kFill);
}

void files(const Subject& subject) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  skip("the sanitizers of this build look at memory through descriptors of their own");
#endif
  const Accelerator accelerator(subject);
  still_works(accelerator, subject.seed);  // what the first use opens is there
  for (uint64_t spare = 0; spare < 12; ++spare) {
    const std::string when = "with room for " + std::to_string(spare) + " more file descriptors";
    {
      const Limit limit(RLIMIT_NOFILE, lowest_free_descriptor() + spare);
      make_stream_and_event(accelerator, when);
      if (accelerator.collectives() != nullptr) make_communicator(accelerator, when);
    }
    still_works(accelerator, subject.seed);
  }
}

void shared_memory(const Subject& subject) {
  need_collectives(subject);
  const Accelerator accelerator(subject);
  for (const uint64_t most : {uint64_t{0}, uint64_t{4096}, uint64_t{1} << 20U}) {
    {
      const Limit limit(RLIMIT_FSIZE, most);
      make_communicator(accelerator, "with files limited to " + std::to_string(most) + " bytes");
    }
    still_works(accelerator, subject.seed);
    pliant_comm_id id{};
    must("comm_id after a limit on files was lifted", accelerator.call(&pliant_collectives::comm_id, 2, &id));
  }
}

}  // namespace

std::vector<Check> limit_checks() {
  return {
      {"limits.files", "without file descriptors calls work or are refused with a message, and work again later", files,
       60},
      {"limits.shared_memory",
       "communicators in a process with a file size limit work or are refused with a message, and work again later",
       shared_memory, 60},
  };
}

}  // namespace pliant::testkit
