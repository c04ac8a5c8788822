// OneCaller: two calls of a sharded model at once are refused, and what nests in one thread is not.
#include "sharded/one_caller.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <latch>
#include <string>
#include <thread>

#include "pliant/error.hpp"

using namespace pliant;
using sharded::OneCaller;

namespace {

/// A call that calls the program back.
void update(OneCaller& calls, const std::function<void()>& each) {
  const OneCaller::Call call(calls, "update");
  each();
}
void enter(OneCaller& calls) {
  const OneCaller::Call call(calls, "enter");
}
void data(const OneCaller& calls) {
  calls.require_no_other("data");
}

/// The message of the kFailedPrecondition that `work` throws; empty: none.
std::string refusal(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    CHECK(error.status() == Status::kFailedPrecondition);
    return error.message();
  }
  return "";
}

}  // namespace

TEST_CASE("a call from another thread while one is under way is refused by both names, and the first goes on") {
  OneCaller calls;
  std::latch is_inside(1);
  std::latch was_refused(1);
  int finished = 0;
  std::thread first([&] {
    update(calls, [&] {
      is_inside.count_down();
      was_refused.wait();
      enter(calls);
      ++finished;
    });
  });
  is_inside.wait();
  const std::string entered = refusal([&] { enter(calls); });
  const std::string again = refusal([&] { enter(calls); });  // one that was refused has left nothing
  const std::string looked = refusal([&] { data(calls); });
  was_refused.count_down();
  first.join();
  CHECK(entered.find(
            "ShardedModel::enter did nothing because ShardedModel::update is still running in another thread") == 0);
  CHECK(entered.find("make one call at a time, in the same order on every rank") != std::string::npos);
  CHECK(again == entered);
  CHECK(looked.find("ShardedModel::data did nothing because ShardedModel::update is still running") == 0);
  CHECK(finished == 1);
  CHECK(refusal([&] { enter(calls); }).empty());
}

TEST_CASE("calls of one thread nest, the outermost keeps others out until it returns, also by an exception") {
  OneCaller calls;
  std::string other;
  const auto nested = [&] {
    enter(calls);
    update(calls, [&] { data(calls); });
    std::thread([&] { other = refusal([&] { enter(calls); }); }).join();
    throw 1;
  };
  CHECK_THROWS_AS(update(calls, nested), int);
  CHECK(other.find("ShardedModel::enter did nothing because ShardedModel::update is still running") == 0);
  std::thread([&] { other = refusal([&] { update(calls, [&] { enter(calls); }); }); }).join();
  CHECK(other.empty());
}
