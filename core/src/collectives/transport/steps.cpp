// A step is a host function in its stream.
#include "collectives/transport/steps.hpp"

#include <memory>
#include <utility>

namespace pliant::collectives {

using sdk::Failure;

struct Steps::Step {
  Steps& steps;
  pliant_stream* stream;
  uint64_t number;
  CarrierComm::Exchange exchange;
  std::function<void()> after;
};

void Steps::step(pliant_stream* stream, CarrierComm::Exchange exchange, std::function<void()> after) {
  auto made = std::make_unique<Step>(Step{*this, stream, count_, std::move(exchange), std::move(after)});
  ++pending_;
  try {
    device_.slots.must(&pliant_accelerator::host_function, &Steps::run, static_cast<void*>(made.get()), stream);
  } catch (...) {
    --pending_;
    throw;
  }
  ++count_;
  static_cast<void>(made.release());  // run() deletes it
}

void Steps::run(void* context) {
  Steps* steps = nullptr;
  {
    const std::unique_ptr<Step> step(static_cast<Step*>(context));
    steps = &step->steps;
    try {
      steps->turns_.await(step->number);
      steps->comm_.run(step->exchange);
      if (step->after) step->after();
    } catch (const Failure& failure) {
      steps->failed_(failure, step->stream);
    }
    steps->turns_.end(step->number);
  }
  --steps->pending_;  // from here on it may be gone
}

void Steps::copy(const std::vector<pliant_copy>& copies, pliant_stream* stream) const {
  device_.slots.must(&pliant_accelerator::copy_batch_async, copies.data(), copies.size(), stream);
}

}  // namespace pliant::collectives
