// Waiting for a change, and the end of it.
#include "testkit/rendezvous/checks.hpp"
#include "testkit/rendezvous/node.hpp"

namespace pliant::testkit {

namespace {

const char* const kRun = "check";

void watch_times(const Subject& subject) {
  const OpenedPlugin plugin(subject.file);
  Node node(plugin, subject);
  expect(node.join(kRun, 1).ok(), "join failed");
  for (const int32_t timeout_ms : {0, 1, 30}) {
    auto watching = std::async(std::launch::async, [&] { return node.watch(timeout_ms); });
    const std::string call = "watch for " + std::to_string(timeout_ms) + " ms";
    const Watched watched = in_time(watching, call);
    expect(watched.told.ok(), call + " returned " + watched.told.text());
    expect(watched.changed == 0 || watched.changed == 1,
           call + (watched.changed == Node::kUnwritten
                       ? " did not write *changed"
                       : " wrote " + std::to_string(watched.changed) + " to *changed; it is 0 or 1"));
  }
}

/// leave is called again and again: a node cannot know whether the other thread is in its call already.
void left_in_watch(const Subject& subject) {
  const OpenedPlugin plugin(subject.file);
  Node node(plugin, subject);
  expect(node.join(kRun, 1).ok(), "join failed");
  constexpr int32_t kLongMs = 600000;
  auto watching = std::async(std::launch::async, [&] { return node.watch(kLongMs); });
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (watching.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready) {
    if (std::chrono::steady_clock::now() > end) fail("leave does not end a watch");
    node.leave();
  }
  const Watched watched = watching.get();
  expect(watched.told.status == PLIANT_ABORTED,
         "a watch whose node leaves returned " + (watched.told.ok() ? std::string("PLIANT_OK") : watched.told.text()) +
             ", not PLIANT_ABORTED");
}

void node_refusals(const Subject& subject) {
  const OpenedPlugin plugin(subject.file);
  Node node(plugin, subject);
  expect(node.join(kRun, 1).ok(), "join failed");
  auto watching = std::async(std::launch::async, [&] {
    std::string fault;
    for (int i = 0; i < 4 && fault.empty(); ++i) fault = node.watch(200).told.fault;  // every other one is older
    return fault;
  });
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (watching.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready) {
    if (std::chrono::steady_clock::now() > end) skip("leave does not end a watch");
    node.leave();
  }
  const std::string fault = watching.get();
  expect(fault.empty(), fault);
}

}  // namespace

std::vector<Check> leave_checks() {
  return {
      {"watch.times", "watch returns after its timeout and reports whether something changed", watch_times},
      {"watch.left", "leave ends a waiting watch with PLIANT_ABORTED", left_in_watch},
      {"watch.refusals", "an error has a message and names no unknown option", node_refusals},
  };
}

}  // namespace pliant::testkit
