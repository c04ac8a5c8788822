// The host function of a gate.
#include "testkit/gate.hpp"

#include <chrono>
#include <deque>

namespace pliant::testkit {

Gate::State& Gate::lasting_state() {
  static std::mutex mutex;
  static auto* const kStates = new std::deque<State>;
  const std::lock_guard lock(mutex);
  return kStates->emplace_back();
}

void Gate::stand(void* context) {
  State& state = *static_cast<State*>(context);
  std::unique_lock lock(state.mutex);
  state.reached = true;
  state.changed.notify_all();
  state.changed.wait(lock, [&] { return state.open; });
}

void Gate::hold(const Accelerator& accelerator, const Stream& stream) {
  // A plugin that runs the function on the calling thread never comes back.
  returns_soon("host_function", [&] {
    must("host_function",
         accelerator.call(&pliant_accelerator::host_function, &stand, static_cast<void*>(&state_), stream));
  });
  std::unique_lock lock(state_.mutex);
  const bool reached =
      state_.changed.wait_for(lock, std::chrono::milliseconds(kReturnMs), [&] { return state_.reached; });
  expect(reached, "a host function has not run after " + std::to_string(kReturnMs / 1000) + " seconds");
}

void Gate::open() {
  const std::lock_guard lock(state_.mutex);
  state_.open = true;
  state_.changed.notify_all();
}

}  // namespace pliant::testkit
