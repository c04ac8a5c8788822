// The host function of a gate.
#include "testkit/gate.hpp"

#include <chrono>

namespace pliant::testkit {

void Gate::stand(void* context) {
  const std::unique_ptr<std::shared_ptr<State>> own(static_cast<std::shared_ptr<State>*>(context));
  State& state = **own;
  std::unique_lock lock(state.mutex);
  state.reached = true;
  state.changed.notify_all();
  state.changed.wait(lock, [&] { return state.open; });
}

void Gate::hold(const Accelerator& accelerator, const Stream& stream) {
  auto context = std::make_unique<std::shared_ptr<State>>(state_);
  // A plugin that runs the function on the calling thread never comes back.
  returns_soon("host_function", [&] {
    must("host_function",
         accelerator.call(&pliant_accelerator::host_function, &stand, static_cast<void*>(context.release()), stream));
  });
  std::unique_lock lock(state_->mutex);
  const bool reached =
      state_->changed.wait_for(lock, std::chrono::milliseconds(kReturnMs), [&] { return state_->reached; });
  expect(reached, "a host function has not run after " + std::to_string(kReturnMs / 1000) + " seconds");
}

void Gate::open() {
  const std::lock_guard lock(state_->mutex);
  state_->open = true;
  state_->changed.notify_all();
}

}  // namespace pliant::testkit
