// What is left behind when everything was destroyed.
#include <chrono>
#include <filesystem>
#include <thread>

#include "testkit/checks/accelerator_checks.hpp"
#include "testkit/collective_work.hpp"
#include "testkit/sample_work.hpp"

namespace pliant::testkit {

namespace {

constexpr int kLeakRounds = 10;
constexpr int64_t kSettleNs = 3000000000;

int64_t entries(const char* folder) {
  return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
}

struct Census {
  int64_t files = entries("/proc/self/fd");
  int64_t threads = entries("/proc/self/task");
};

/// A thread that has ended is listed for a moment longer.
void compare(const Census& before, const std::string& after_what) {
  const int64_t end_ns = now_ns() + kSettleNs;
  Census after;
  while ((after.files > before.files || after.threads > before.threads) && now_ns() < end_ns) {
    std::this_thread::yield();
    after = Census();
  }
  const int64_t files = after.files - before.files;
  const int64_t threads = after.threads - before.threads;
  expect(files <= 0, std::to_string(files) + " file descriptors more are open after " + after_what);
  expect(threads <= 0, std::to_string(threads) + " threads more run after " + after_what);
}

void use_everything(const Subject& subject) {
  const Accelerator accelerator(subject);
  const Stream stream(accelerator);
  const Stream other(accelerator, 0, PLIANT_STREAM_SCATTER);
  const Event event(accelerator, PLIANT_EVENT_TIMING);
  const Memory pinned(accelerator, 4096, PLIANT_MEMORY_PINNED);
  const SampleWork work(accelerator, subject.seed);
  for (const WorkKind kind : kWorkKinds) {
    work.enqueue(kind, stream);
    event.record(stream);
    must("stream_wait_event", accelerator.call(&pliant_accelerator::stream_wait_event, other, event));
    stream.wait();
    other.wait();
  }
}

void instances(const Subject& subject) {
  const OpenedPlugin kept(subject.file);  // so that unloading hides nothing
  use_everything(subject);                // what the first use leaves in the process stays
  const Census before;
  for (int i = 0; i < kLeakRounds; ++i) use_everything(subject);
  compare(before, std::to_string(kLeakRounds) + " instances were created and destroyed");
}

void communicators_script(const Rank& rank) {
  const auto once = [&] {
    const Comm comm(rank, rank.id());
    comm.join();
    const Stream stream(rank.accelerator, rank.rank % rank.accelerator.devices());
    const CollectiveWork work(rank, {Collective::kAllReduce, PLIANT_F32, PLIANT_SUM, 1001});
    must("all_reduce", work.enqueue(comm, stream));
    stream.wait();
  };
  once();
  const Census before;
  for (int i = 0; i < kLeakRounds; ++i) once();
  compare(before, std::to_string(kLeakRounds) + " communicators were created and destroyed");
}

void communicators(const Subject& subject) {
  need_collectives(subject);
  Ranks ranks(subject, "communicators", 2);
  for (int i = 0; i <= kLeakRounds; ++i) ranks.carry_id();
  ranks.finish();
}

}  // namespace

std::vector<Script> leak_scripts() {
  return {{"communicators", communicators_script}};
}

std::vector<Check> leak_checks() {
  return {
      {"leaks.instances", "destroyed instances leave no file descriptor open and no thread running", instances},
      {"leaks.communicators", "destroyed communicators leave no file descriptor open and no thread running",
       communicators, 60},
  };
}

}  // namespace pliant::testkit
