// Events of one process in another: rank 0 creates them, rank 1 imports them.
#include <atomic>
#include <thread>

#include "testkit/checks/accelerator_checks.hpp"
#include "testkit/checks/ipc_pair.hpp"
#include "testkit/checks/order_work.hpp"
#include "testkit/gate.hpp"
#include "testkit/process.hpp"

namespace pliant::testkit {

namespace {

using Slots = pliant_accelerator;
constexpr int kEventRounds = 20;
constexpr double kPromisedMs = 100;

/// The event that the other rank hands over.
Event taken_event(const Rank& rank, const HandlePost& post) {
  const pliant_ipc_handle handle = take(rank, post);
  Event made(rank.accelerator, handle);
  close_descriptor(handle);
  return made;
}

pliant_ipc_handle exported(const Accelerator& accelerator, const Event& event) {
  pliant_ipc_handle handle{};
  must("export_event", accelerator.call(&pliant_ipc::export_event, static_cast<pliant_event*>(event), &handle));
  return handle;
}

void order_script(const Rank& rank) {
  const Accelerator& accelerator = rank.accelerator;
  const HandlePost post = post_of(rank);
  constexpr uint64_t kBytes = 300007;
  const Bytes wanted = pattern(kBytes, rank.seed);
  if (rank.rank == 0) {
    const Memory memory(accelerator, kBytes, PLIANT_MEMORY_EXCHANGE);
    accelerator.write(memory.at(), Bytes(kBytes).data(), kBytes);
    const Event event(accelerator, PLIANT_EVENT_EXPORTED);
    hand_over(rank, post, exported(accelerator, memory.at()));
    hand_over(rank, post, exported(accelerator, event));
    const Stream stream(accelerator);
    Gate gate;
    gate.hold(accelerator, stream);
    must("copy_async",
         accelerator.call(&Slots::copy_async, static_cast<void*>(memory.at()), wanted.data(), kBytes, stream));
    event.record(stream);
    meet(rank);
    meet(rank);
    gate.open();
    stream.wait();
    return end(rank);
  }
  const pliant_ipc_handle to_memory = take(rank, post);
  sdk::ImportedMemory memory = imported(accelerator, to_memory);
  close_descriptor(to_memory);
  const Event event = taken_event(rank, post);
  meet(rank);
  Bytes got(kBytes);
  const Stream stream(accelerator);
  stream.wait_for(event);
  must("copy_async",
       accelerator.call(&Slots::copy_async, got.data(), static_cast<const void*>(memory.get()), kBytes, stream));
  let_run(accelerator);
  expect(!stream.done(), "a stream that waits for an event of another process is done before that was reached");
  meet(rank);
  stream.wait();
  expect(got == wanted, "a stream that waited for an event of another process does not see what was written before it");
  memory.reset();
  end(rank);
}

/// This rank waits while the other holds its recording.
void see_recording(const Rank& rank, const Event& event) {
  const Accelerator& accelerator = rank.accelerator;
  meet(rank);  // recorded
  expect(!event.done(), "event_query reports an event as done that another process has not reached");
  std::atomic<bool> back{false};
  Outcome outcome;
  std::thread waits([&] {
    outcome = event.synchronize();
    back = true;
  });
  let_run(accelerator);
  expect(!back, "event_synchronize returned before another process reached its recording");
  meet(rank);  // to be let go
  returns_soon("event_synchronize of an event that another process has reached", [&] { waits.join(); });
  must("event_synchronize", outcome);
  expect(event.done(), "event_query reports an event that the host has waited for as not done");
  meet(rank);  // seen
}
void make_recording(const Rank& rank, const Event& event, const Stream& stream) {
  Gate gate;
  gate.hold(rank.accelerator, stream);
  event.record(stream);
  meet(rank);
  meet(rank);
  gate.open();
  stream.wait();
  meet(rank);
}

void states_script(const Rank& rank) {
  const Accelerator& accelerator = rank.accelerator;
  const HandlePost post = post_of(rank);
  const Stream stream(accelerator);
  const auto rounds = [&](const Event& event, bool records) {
    for (int i = 0; i < 2; ++i) {
      if (records) {
        make_recording(rank, event, stream);
      } else {
        see_recording(rank, event);
      }
    }
  };
  if (rank.rank == 0) {
    const Event event(accelerator, PLIANT_EVENT_EXPORTED);
    hand_over(rank, post, exported(accelerator, event));
    meet(rank);
    rounds(event, true);
    rounds(event, false);
    return end(rank);
  }
  const Event event = taken_event(rank, post);
  expect(event.done(), "an imported event that was never recorded does not count as done");
  returns_soon("event_synchronize of an imported event that was never recorded",
               [&] { must("event_synchronize", event.synchronize()); });
  meet(rank);
  rounds(event, false);
  rounds(event, true);
  end(rank);
}

void rerecorded_script(const Rank& rank) {
  const Accelerator& accelerator = rank.accelerator;
  const HandlePost post = post_of(rank);
  if (rank.rank == 0) {
    const Event event(accelerator, PLIANT_EVENT_EXPORTED);
    hand_over(rank, post, exported(accelerator, event));
    const Stream held(accelerator);
    const Stream idle(accelerator);
    Gate gate;
    gate.hold(accelerator, held);
    event.record(held);
    meet(rank);
    meet(rank);
    event.record(idle);
    idle.wait();
    meet(rank);
    meet(rank);
    gate.open();
    held.wait();
    return end(rank);
  }
  const Event event = taken_event(rank, post);
  const Stream first(accelerator);
  const Stream second(accelerator);
  meet(rank);
  first.wait_for(event);
  meet(rank);
  meet(rank);
  second.wait_for(event);
  returns_soon("a stream that waits for the later of two recordings by another process,", [&] { second.wait(); });
  let_run(accelerator);
  expect(!first.done(), "recording an event again released a stream of another process that waits for the earlier one");
  meet(rank);
  first.wait();
  end(rank);
}

/// The check kills rank 0 when rank 1 has told it to.
void killed_script(const Rank& rank) {
  const Accelerator& accelerator = rank.accelerator;
  const HandlePost post = post_of(rank);
  if (rank.rank == 0) {
    const Event event(accelerator, PLIANT_EVENT_EXPORTED);
    hand_over(rank, post, exported(accelerator, event));
    const Stream stream(accelerator);
    Gate gate;
    gate.hold(accelerator, stream);
    event.record(stream);
    meet(rank);
    for (;;) rank.hear();
  }
  const Event event = taken_event(rank, post);
  meet(rank);
  const Stream stream(accelerator);
  stream.wait_for(event);
  const auto told = [](const char* what, const Outcome& outcome) {
    expect(outcome.status == PLIANT_ABORTED, std::string(what) + " whose recording process was killed returned " +
                                                 outcome.text() + ", not PLIANT_ABORTED");
  };
  Outcome of_host;
  std::thread waits([&] { of_host = event.synchronize(); });
  rank.tell("kill");
  const Outcome of_stream = stream.synchronize();
  waits.join();
  const int64_t back_ns = now_ns();
  told("stream_synchronize of a stream that waits for an event", of_stream);
  told("event_synchronize", of_host);
  expect(event.done(), "event_query reports an event whose process was killed as not done");
  rank.tell(std::to_string(back_ns));
  rank.hear();
}

void lasts_script(const Rank& rank) {
  const Accelerator& accelerator = rank.accelerator;
  const HandlePost post = post_of(rank);
  if (rank.rank == 0) {
    auto event = std::make_unique<Event>(accelerator, PLIANT_EVENT_EXPORTED);
    hand_over(rank, post, exported(accelerator, *event));
    const Stream stream(accelerator);
    Gate gate;
    gate.hold(accelerator, stream);
    event->record(stream);
    meet(rank);
    meet(rank);
    event.reset();
    meet(rank);
    meet(rank);
    gate.open();
    stream.wait();
    return end(rank);
  }
  auto event = std::make_unique<Event>(taken_event(rank, post));
  const Stream stream(accelerator);
  meet(rank);
  stream.wait_for(*event);
  meet(rank);
  meet(rank);  // destroyed there
  event.reset();
  let_run(accelerator);
  expect(!stream.done(), "a stream continued when the event that it waits for was destroyed in both processes");
  meet(rank);
  stream.wait();
  end(rank);
}

void destroyed_script(const Rank& rank) {
  const Accelerator& accelerator = rank.accelerator;
  const HandlePost post = post_of(rank);
  if (rank.rank == 0) {
    pliant_ipc_handle old{};
    {
      const Event event(accelerator, PLIANT_EVENT_EXPORTED);
      old = exported(accelerator, event);
    }
    const Event event(accelerator, PLIANT_EVENT_EXPORTED);
    const pliant_ipc_handle handle = exported(accelerator, event);
    expect(std::memcmp(old.bytes, handle.bytes, sizeof(old.bytes)) != 0,
           "an event has the handle of one that was destroyed");
    hand_over(rank, post, old);
    hand_over(rank, post, handle);
    return end(rank);
  }
  const pliant_ipc_handle old = take(rank, post);
  pliant_event* refused = nullptr;
  refused_as("import_event of an event that its process has destroyed",
             accelerator.call(&pliant_ipc::import_event, 0, &old, &refused), PLIANT_FAILED_PRECONDITION);
  expect(refused == nullptr, "an import that was refused gave an event");
  close_descriptor(old);
  const Event event = taken_event(rank, post);
  pliant_ipc_handle again{};
  refused_as("export_event of an imported event",
             accelerator.call(&pliant_ipc::export_event, static_cast<pliant_event*>(event), &again),
             PLIANT_INVALID_ARGUMENT);
  end(rank);
}

void events_leak_script(const Rank& rank) {
  const Accelerator& accelerator = rank.accelerator;
  const HandlePost post = post_of(rank);
  const Stream stream(accelerator);
  int64_t before = 0;
  for (int round = 0; round <= kEventRounds; ++round) {
    if (rank.rank == 0) {
      const Event event(accelerator, PLIANT_EVENT_EXPORTED);
      event.record(stream);
      hand_over(rank, post, exported(accelerator, event));
      hand_over(rank, post, exported(accelerator, event));
      stream.wait();  // what is enqueued may hold the event
      meet(rank);
    } else {
      const Event first = taken_event(rank, post);
      const Event second = taken_event(rank, post);
      stream.wait_for(first);
      stream.wait_for(second);
      stream.wait();
      meet(rank);
    }
    if (round == 0) before = open_descriptors();  // what the first use leaves open stays
  }
  const int64_t more = open_descriptors() - before;
  expect(more <= 0, std::to_string(more) + " file descriptors more are open after " + std::to_string(kEventRounds) +
                        (rank.rank == 0 ? " events were exported and destroyed" : " events were imported twice each"));
  end(rank);
}

/// Skips the check where events do not pass between processes.
void need_events(const Subject& subject) {
  need_ipc(subject);
  const Accelerator accelerator(subject);
  const pliant_ipc* table = accelerator.ipc();
  const bool there = table->export_event != nullptr && table->import_event != nullptr;
  sdk::OwnedEvent event(accelerator.calls<Slots>());
  const Outcome made = accelerator.call(&Slots::event_create, 0, PLIANT_EVENT_EXPORTED, event.out());
  if (made.status == PLIANT_UNIMPLEMENTED) skip("its events do not pass between processes: " + made.message);
  must("event_create", made);
  expect(there,
         "it creates events with PLIANT_EVENT_EXPORTED, and its " PLIANT_IPC " lacks export_event or import_event");
}

void refused_events(const Subject& subject) {
  need_events(subject);
  const Accelerator accelerator(subject);
  pliant_ipc_handle handle{};
  const Event plain(accelerator);
  refused_as("export_event of an event without PLIANT_EVENT_EXPORTED",
             accelerator.call(&pliant_ipc::export_event, static_cast<pliant_event*>(plain), &handle),
             PLIANT_INVALID_ARGUMENT);
  const Event event(accelerator, PLIANT_EVENT_EXPORTED);
  handle = exported(accelerator, event);
  pliant_event* own = nullptr;
  refused_as("import_event of this process's own event", accelerator.call(&pliant_ipc::import_event, 0, &handle, &own),
             PLIANT_FAILED_PRECONDITION);
  close_descriptor(handle);
}

void pair(const Subject& subject, const char* script) {
  need_events(subject);
  run_pair(subject, script);
}
void order(const Subject& s) {
  pair(s, "ipc_event_order");
}
void states(const Subject& s) {
  pair(s, "ipc_event_states");
}
void rerecorded(const Subject& s) {
  pair(s, "ipc_event_rerecorded");
}
void lasts(const Subject& s) {
  pair(s, "ipc_event_lasts");
}
void destroyed_events(const Subject& s) {
  pair(s, "ipc_event_destroyed");
}
void event_leaks(const Subject& s) {
  pair(s, "ipc_event_leaks");
}

void killed(const Subject& subject) {
  need_events(subject);
  Ranks ranks(subject, "ipc_event_killed", 2);
  conduct(ranks);
  const int64_t death_ns = now_ns();
  ranks.kill(0);
  const int64_t back_ns = std::stoll(ranks.hear(1, "end of the wait for an event of a process that was killed"));
  const auto late_ms = static_cast<double>(back_ns - death_ns) * 1e-6;
  if (late_ms > kPromisedMs) {
    warn("waiting for an event of a killed process ended after " + std::to_string(late_ms) +
         " ms; 100 ms are promised");
  }
  ranks.tell(1);
  ranks.finish(0);
}

}  // namespace

std::vector<Script> ipc_event_scripts() {
  return {{"ipc_event_order", order_script},           {"ipc_event_states", states_script},
          {"ipc_event_rerecorded", rerecorded_script}, {"ipc_event_killed", killed_script},
          {"ipc_event_lasts", lasts_script},           {"ipc_event_destroyed", destroyed_script},
          {"ipc_event_leaks", events_leak_script}};
}

std::vector<Check> ipc_event_checks() {
  return {
      {"ipc.event_order", "a stream waits for an event that another process recorded, and sees what came before it",
       order},
      {"ipc.event_states", "event_query and event_synchronize see every recording of another process", states},
      {"ipc.event_rerecorded", "a later recording releases no process that waits for an earlier one", rerecorded},
      {"ipc.event_killed", "waiting for an event whose process is killed fails with an error", killed},
      {"ipc.event_lasts", "a recording is reached in other processes even after the event is destroyed", lasts},
      {"ipc.event_destroyed", "a destroyed event cannot be imported, and an imported one cannot be exported",
       destroyed_events},
      {"ipc.event_refused", "only events created for it can be exported, and no process imports its own",
       refused_events},
      {"ipc.event_leaks", "exported and imported events leave no file descriptor open", event_leaks},
  };
}

}  // namespace pliant::testkit
