// Starts, conducts and plays ranks.
#include "testkit/ranks.hpp"

#include <sys/wait.h>

#include <algorithm>
#include <csignal>

namespace pliant::testkit {

namespace {
constexpr const char* kEnd = "end";
}

Ranks::Ranks(const Subject& subject, const std::string& script, int32_t world_size,
             const std::vector<int64_t>& numbers) {
  std::string list;
  for (const int64_t number : numbers) list += std::to_string(number) + ",";
  for (int32_t r = 0; r < world_size; ++r) {
    std::vector<std::string> words = words_for(subject);
    for (const std::string& word : {std::string("--script"), script, std::string("--rank"), std::to_string(r),
                                    std::string("--world-size"), std::to_string(world_size)}) {
      words.push_back(word);
    }
    if (!list.empty()) words.insert(words.end(), {"--numbers", list});
    processes_.emplace_back(words);
  }
}

std::string Ranks::name(int32_t rank) const {
  return "rank " + std::to_string(rank) + " of " + std::to_string(count());
}

void Ranks::tell(int32_t rank, const std::string& text) {
  static_cast<void>(send_message(processes_[static_cast<size_t>(rank)].socket(), text));
}

void Ranks::tell_all(const std::string& text) {
  for (int32_t r = 0; r < count(); ++r) tell(r, text);
}

std::string Ranks::hear(int32_t rank, const std::string& awaited) {
  Process& process = processes_[static_cast<size_t>(rank)];
  for (;;) {
    bool gone = false;
    const auto message = receive_message(process.socket(), kAnswerMs, gone);
    if (gone) fail(name(rank) + " " + words_of(process.wait_status(kAnswerMs).value_or(0)) + " before " + awaited);
    if (!message) {
      fail(name(rank) + " hung: no " + awaited + " after " + std::to_string(kAnswerMs / 1000) + " seconds");
    }
    std::string text = message->substr(1);
    if ((*message)[0] == kAnswer) return text;
    if ((*message)[0] == kPassed) return kEnd;
    if ((*message)[0] == kSkipped) skip(text);
    if ((*message)[0] == kFailed) fail(name(rank) + ": " + text);
    warn(name(rank) + ": " + text);
  }
}

void Ranks::hear_all(const std::string& awaited) {
  for (int32_t r = 0; r < count(); ++r) hear(r, awaited);
}

void Ranks::carry_id() {
  const std::string id = hear(0, "communicator id");
  for (int32_t r = 1; r < count(); ++r) tell(r, id);
}

void Ranks::finish(int32_t except) {
  for (int32_t r = 0; r < count(); ++r) {
    if (r == except) continue;
    const std::string said = hear(r, "end of the rank");
    expect(said == kEnd, name(r) + " said '" + said + "' instead of ending");
    const auto status = processes_[static_cast<size_t>(r)].wait_status(kAnswerMs);
    expect(status.has_value(), name(r) + " hung: its process has not ended");
    expect(*status == 0, name(r) + " " + words_of(*status) + " after its work");
  }
}

std::string Ranks::crash_of(int32_t rank) {
  Process& process = processes_[static_cast<size_t>(rank)];
  bool gone = false;
  const auto message = receive_message(process.socket(), kAnswerMs, gone);
  if (message && (*message)[0] == kFailed) fail(message->substr(1));
  if (message && (*message)[0] == kSkipped) skip(message->substr(1));
  expect(message || gone, "it hung: no end after " + std::to_string(kAnswerMs / 1000) + " seconds");
  const auto status = process.wait_status(kAnswerMs);
  expect(status.has_value(), "it hung: the process has not ended");
  return *status == 0 ? "" : words_of(*status);
}

void Ranks::kill(int32_t rank) {
  processes_[static_cast<size_t>(rank)].send_signal(SIGKILL);
}

void Ranks::stop(int32_t rank) {
  Process& process = processes_[static_cast<size_t>(rank)];
  process.send_signal(SIGSTOP);
  siginfo_t stopped{};
  ::waitid(P_PID, static_cast<id_t>(process.pid()), &stopped, WSTOPPED);
}

void Ranks::resume(int32_t rank) {
  processes_[static_cast<size_t>(rank)].send_signal(SIGCONT);
}

void Rank::tell(const std::string& text) const {
  static_cast<void>(send_message(kOwnSocket, kAnswer + text));
}

std::string Rank::hear() const {
  bool gone = false;
  const auto message = receive_message(kOwnSocket, -1, gone);
  if (!message) fail("the check has ended");
  return *message;
}

pliant_comm_id Rank::id() const {
  pliant_comm_id made{};
  if (rank == 0) {
    must("comm_id", accelerator.call(&pliant_collectives::comm_id, world_size, &made));
    tell(std::string(reinterpret_cast<const char*>(made.bytes), sizeof(made.bytes)));
  } else {
    const std::string carried = hear();
    std::memcpy(made.bytes, carried.data(), std::min(carried.size(), sizeof(made.bytes)));
  }
  return made;
}

Comm::Comm(const Rank& rank, const pliant_comm_id& id) : handle_(rank.accelerator.calls<pliant_collectives>()) {
  const int32_t device = rank.rank % rank.accelerator.devices();
  if (rank.world_size > rank.accelerator.devices() && handle_.calls().has(&pliant_collectives::device_key)) {
    skip("its collectives have device_key: " + std::to_string(rank.world_size) + " ranks do not share " +
         std::to_string(rank.accelerator.devices()) + " devices");
  }
  const Outcome made =
      handle_.calls().ask(&pliant_collectives::comm_create, device, &id, rank.rank, rank.world_size, handle_.out());
  if (made.status == PLIANT_UNIMPLEMENTED && rank.world_size > rank.accelerator.devices()) {
    skip(std::to_string(rank.world_size) + " ranks do not share " + std::to_string(rank.accelerator.devices()) +
         " devices: " + made.message);
  }
  must("comm_create", made);
  expect(handle_.get() != nullptr, "comm_create returned OK and created nothing");
}

Outcome Comm::status(int32_t timeout_ms) const {
  return handle_.calls().ask(&pliant_collectives::comm_status, handle_, timeout_ms);
}

void Comm::join() const {
  must("comm_status", status(-1));
}

void Comm::abort() const {
  handle_.calls()->comm_abort(handle_.calls().self(), handle_);
}

void perform_rank(const Arguments& arguments) {
  report_to(kOwnSocket);
  try {
    const Accelerator accelerator(arguments.subject);
    const Rank rank{accelerator, arguments.rank, arguments.world_size, arguments.subject.seed, arguments.numbers};
    for (const auto& part :
         {collective_scripts(), piece_scripts(), failure_scripts(), loss_scripts(), renewal_scripts(), window_scripts(),
          lifetime_scripts(), fork_scripts(), memory_scripts(), leak_scripts(), ipc_scripts(), ipc_event_scripts()}) {
      for (const Script& script : part) {
        if (arguments.name == script.name) script.run(rank);
      }
    }
  } catch (const std::exception& thrown) {
    fail(thrown.what());
  }
  pass();
}

void need_collectives(const Subject& subject) {
  const Accelerator accelerator(subject);
  const pliant_collectives* table = accelerator.collectives();
  if (table == nullptr) skip("it does not offer the extension " PLIANT_COLLECTIVES);
  if (table->group_end == nullptr) {
    skip("its " PLIANT_COLLECTIVES " is an older draft, without messages and groups; rebuild it");
  }
}

}  // namespace pliant::testkit
