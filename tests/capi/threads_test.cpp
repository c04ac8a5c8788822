// Each function refuses the threads that its word in pliant.h excludes.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "every_call.hpp"
#include "handle.hpp"
#include "recorded_job.hpp"
#include "sharded_handle.hpp"
#include "thread_words.hpp"

using namespace pliant::test;
using pliant::capi::Tag;

namespace {

/// One real handle of every kind whose calls are [serial], but for a sharded model, which has no session here.
struct SerialHandles {
  SerialHandles() : job(folder), record(job.begin()), accelerator(host()), stream(stream_on(accelerator)) {
    balancer =
        made_by<OwnedBalancer>([&](auto to, auto error) { return pliant_balancer_make(job.config.get(), to, error); });
    rate = made_by<OwnedRate>(
        [&](auto to, auto error) { return pliant_learning_rate_make(job.config.get(), nullptr, to, error); });
    event =
        made_by<OwnedEvent>([&](auto to, auto error) { return pliant_event_make(accelerator.get(), 0, to, error); });
    std::array<uint8_t, PLIANT_COMMUNICATOR_ID_BYTES> id{};
    REQUIRE(pliant_communicator_make_id(accelerator.get(), 1, id.data(), nullptr) == PLIANT_OK);
    communicator = made_by<OwnedCommunicator>([&](auto to, auto error) {
      return pliant_communicator_make(accelerator.get(), 0, id.data(), 0, 1, to, error);
    });
  }
  [[nodiscard]] std::vector<void*> all() const {
    return {job.batches.get(), record.get(), stream.get(), balancer.get(), rate.get(), event.get(), communicator.get()};
  }
  /// As while a call of another thread is under way. What a handle begins with is the same for every kind.
  void set_busy(bool is_busy) const {
    for (void* const handle : all()) static_cast<pliant::capi::SerialHandle<Tag::kBatches>*>(handle)->is_busy = is_busy;
  }

  ScratchFolder folder;
  RecordedJob job;
  OwnedRecord record;
  OwnedAccelerator accelerator;
  OwnedStream stream;
  OwnedBalancer balancer;
  OwnedRate rate;
  OwnedEvent event;
  OwnedCommunicator communicator;
};

/// In place of a session, which only a job has: nothing behind its head may be looked at.
struct SessionHead : pliant::capi::MakerHandle<Tag::kSession> {
  std::array<std::byte, 4096> behind{};
};

/// "pliant_batches_next" of "batches_next", "pliant_batches_make" of "batches_make of a plan".
std::string function_of(const Call& call) {
  const std::string name = call.name;
  return "pliant_" + name.substr(0, name.find(' '));
}

std::vector<Call> calls_and_frees(EveryCall& calls) {
  std::vector<Call> all = calls.all();
  for (const Call& free : EveryCall::frees()) all.push_back(free);
  return all;
}

struct Answer {
  int32_t status = PLIANT_OK;
  std::string message;  ///< empty where it did not fail
};

Answer answer_of(const Call& call, void* handle) {
  const int32_t status = call.call(handle);
  return {status, status == PLIANT_OK ? std::string() : last_message()};
}

bool is_of_other_kind(const Answer& answer) {
  return answer.status == PLIANT_INVALID_ARGUMENT && answer.message.find("this is no ") == 0;
}

bool is_busy_refusal(const Answer& answer) {
  return answer.status == PLIANT_FAILED_PRECONDITION && answer.message.find("is under way") != std::string::npos;
}

}  // namespace

TEST_CASE("a call on a busy handle is refused by every function that is [serial], and by no function that is [any]") {
  const std::map<std::string, std::string> words = thread_words();
  const SerialHandles handles;
  const auto core = std::make_shared<pliant::capi::ShardedCore>();
  pliant_sharded_t model(core);
  std::thread::id other;
  std::thread([&] { other = std::this_thread::get_id(); }).join();
  core->caller = other;
  std::vector<void*> busy = handles.all();
  busy.push_back(&model);
  const CJob job;  // of what the calls are given beside the handle
  EveryCall calls(job);
  handles.set_busy(true);
  for (const Call& call : calls_and_frees(calls)) {
    CAPTURE(call.name);
    REQUIRE(words.count(function_of(call)) == 1);
    const std::string word = words.at(function_of(call));
    int asked = 0;
    for (void* const handle : busy) {
      const Answer answer = answer_of(call, handle);
      if (is_of_other_kind(answer)) continue;
      ++asked;
      CAPTURE(answer.message);
      CHECK(is_busy_refusal(answer) ==
            (word != "any"));  // [maker] refuses as well: a sharded model is freed by its own
    }
    if (word == "serial" && std::string(call.name) != "record_open")
      CHECK(asked == 1);  // which is asked as "of batches"
  }
  handles.set_busy(false);
  core->caller = std::thread::id{};
}

TEST_CASE(
    "another thread than the maker's is refused by every function that is [maker], and by none that is [serial]") {
  const std::map<std::string, std::string> words = thread_words();
  SessionHead session;
  const auto core = std::make_shared<pliant::capi::ShardedCore>();
  pliant_sharded_t model(core);
  const CJob job;
  EveryCall calls(job);
  const std::vector<Call> all = calls_and_frees(calls);
  std::map<const Call*, std::vector<Answer>> answers;  // of functions that know one of the two
  std::thread([&] {
    for (const Call& call : all) {
      for (void* const handle : {static_cast<void*>(&session), static_cast<void*>(&model)}) {
        const Answer answer = answer_of(call, handle);
        if (!is_of_other_kind(answer)) answers[&call].push_back(answer);
      }
    }
  }).join();
  int makers = 0;
  for (const Call& call : all) {
    CAPTURE(call.name);
    const bool is_makers = words.at(function_of(call)) == "maker";
    if (is_makers) ++makers;
    CHECK((!is_makers || answers.count(&call) == 1));
    for (const Answer& answer : answers[&call]) {
      CAPTURE(answer.message);
      CHECK(answer.status == PLIANT_FAILED_PRECONDITION);
      CHECK((answer.message.find("is called by the thread that made it") != std::string::npos) == is_makers);
    }
  }
  CHECK(makers == std::count_if(words.begin(), words.end(), [](const auto& one) { return one.second == "maker"; }));
}
