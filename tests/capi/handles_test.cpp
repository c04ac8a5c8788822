// NULL, handles of another kind and memory that is none are refused by every function that takes a handle.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <regex>
#include <set>
#include <thread>

#include "every_call.hpp"
#include "handle.hpp"
#include "scratch_folder.hpp"
#include "sharded_handle.hpp"

using namespace pliant::test;

namespace {

struct Slow : pliant::capi::SerialHandle<pliant::capi::Tag::kBalancer> {
  static constexpr const char* kName = "balancer";
};

struct Own : pliant::capi::MakerHandle<pliant::capi::Tag::kSession> {
  static constexpr const char* kName = "session";
};

}  // namespace

TEST_CASE("no function with a handle is left out below") {
  const CJob job;
  EveryCall calls(job);
  std::set<std::string> named;
  for (const auto& all : {calls.all(), EveryCall::frees()}) {
    for (const Call& call : all) named.insert(std::string(call.name).substr(0, std::string(call.name).find(' ')));
  }
  const std::string text = read_all(std::string(PLIANT_SOURCE_DIR) + "/tests/capi/signatures.h");
  const std::regex takes_handle(R"(pliant_(\w+)\((?:const )?(pliant_\w+_t)\* )");
  const std::set<std::string> structs{"pliant_lengths_t", "pliant_sharing_t", "pliant_adamw_t"};
  for (std::sregex_iterator at(text.begin(), text.end(), takes_handle), end; at != end; ++at) {
    if (structs.count((*at)[2]) > 0) continue;
    CAPTURE((*at)[1].str());
    CHECK(named.count((*at)[1]) == 1);
  }
}

TEST_CASE("every function refuses NULL for its handle") {
  const CJob job;
  EveryCall calls(job);
  for (const Call& call : calls.all()) {
    CAPTURE(call.name);
    CHECK(call.call(nullptr) == PLIANT_INVALID_ARGUMENT);
    CHECK(last_message().find("is NULL") != std::string::npos);
  }
}

TEST_CASE("every function refuses a handle of another kind and memory that is no handle, and frees neither") {
  const CJob job;
  EveryCall calls(job);
  const auto balancer =
      made_by<OwnedBalancer>([&](auto to, auto error) { return pliant_balancer_make(job.config.get(), to, error); });
  const OwnedPlan plan = plan_of(job.config.get());
  alignas(8) std::array<uint64_t, 64> zeros{};
  std::vector<Call> all = calls.all();
  for (const Call& free : EveryCall::frees()) all.push_back(free);
  for (const Call& call : all) {
    CAPTURE(call.name);
    const bool is_of_balancers =
        std::strncmp(call.name, "balancer_", 9) == 0 && std::strcmp(call.name, "balancer_make") != 0;
    void* const other = is_of_balancers ? static_cast<void*>(plan.get()) : balancer.get();
    CHECK(call.call(other) == PLIANT_INVALID_ARGUMENT);
    CHECK(last_message().find("this is no ") != std::string::npos);
    CHECK(call.call(zeros.data()) == PLIANT_INVALID_ARGUMENT);
    CHECK(call.call(reinterpret_cast<char*>(zeros.data()) + 3) == PLIANT_INVALID_ARGUMENT);
  }
}

TEST_CASE("every function that hands a handle out refuses NULL for its place, and leaves NULL there where it fails") {
  const OwnedConfig config = config_of(kJob);
  CHECK(pliant_planner_make(config.get(), nullptr, nullptr) == PLIANT_INVALID_ARGUMENT);
  auto* planner = reinterpret_cast<pliant_planner_t*>(8);
  CHECK(pliant_planner_make(nullptr, &planner, nullptr) == PLIANT_INVALID_ARGUMENT);
  CHECK(planner == nullptr);
}

TEST_CASE("the free functions take NULL") {
  for (const Call& free : EveryCall::frees()) {
    CAPTURE(free.name);
    CHECK(free.call(nullptr) == PLIANT_OK);
  }
}

TEST_CASE("a call on a handle while another one is under way is refused, and so is freeing it") {
  auto* const slow = new Slow;
  {
    const pliant::capi::Turn turn(slow);
    CHECK_THROWS_WITH(pliant::capi::Turn<Slow>{slow}, "another thread's call on this balancer is under way");
  }
  CHECK_NOTHROW(pliant::capi::Turn<Slow>{slow});
  delete slow;
}

TEST_CASE("a handle that only its maker calls refuses every other thread") {
  Own own;
  CHECK(&pliant::capi::makers(&own) == &own);
  std::string refused;
  std::thread([&] {
    try {
      static_cast<void>(pliant::capi::makers(&own));
    } catch (const pliant::Error& error) {
      refused = error.message();
    }
  }).join();
  CHECK(refused == "this session is called by the thread that made it, and by no other");
}

TEST_CASE("a process that was forked is refused what only the maker of a handle calls, and frees nothing of it") {
  const Own own;
  const auto core = std::make_shared<pliant::capi::ShardedCore>();
  pliant_sharded_t model(core);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const auto is_refused = [](auto&& call) {
      try {
        call();
        return false;
      } catch (const pliant::Error& error) {
        return error.message().find("is the parent's: a process that was forked has none") != std::string::npos;
      }
    };
    const bool all = is_refused([&] { static_cast<void>(pliant::capi::makers(&own)); }) &&
                     is_refused([&] { pliant::capi::ShardedTurn{&model}; }) &&
                     pliant_sharded_free(&model) == PLIANT_FAILED_PRECONDITION;
    ::_exit(all ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("a sharded model refuses calls of other threads while one is under way, and takes those of its callbacks") {
  const auto core = std::make_shared<pliant::capi::ShardedCore>();
  pliant_sharded_t model(core);
  // Without a session there is no model; that is found after the threads are.
  CHECK(pliant_sharded_end_pass(&model, nullptr) == PLIANT_FAILED_PRECONDITION);
  CHECK(last_message() == "the session of this sharded model was freed");
  core->caller = std::this_thread::get_id();
  CHECK(pliant_sharded_end_pass(&model, nullptr) == PLIANT_FAILED_PRECONDITION);
  CHECK(last_message() == "the session of this sharded model was freed");
  CHECK(pliant_sharded_free(&model) == PLIANT_FAILED_PRECONDITION);
  CHECK(last_message() == "this sharded model is not freed: a call on the sharded model is under way");
  std::string refused;
  std::thread([&] {
    CHECK(pliant_sharded_end_pass(&model, nullptr) == PLIANT_FAILED_PRECONDITION);
    refused = last_message();
  }).join();
  CHECK(refused == "another thread's call on this sharded model is under way");
  core->caller = std::thread::id{};
}

TEST_CASE("a session outside of a job is refused with exit code 2") {
  pliant_session_t* session = nullptr;
  pliant_error_t error = PLIANT_INIT(pliant_error_t);
  CHECK(pliant_session_attach(&session, &error) == PLIANT_FAILED_PRECONDITION);
  CHECK(error.exit_code == 2);
  CHECK(session == nullptr);
}
