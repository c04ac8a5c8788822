// Calling one instance of a sampler, epoch after epoch.
#include "data/epoch_planner.hpp"

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace pliant::data {

EpochPlanner::EpochPlanner(plugin::Instance instance) : instance_(std::move(instance)) {
  sampler_.name = fmt::format("sampler '{}'", instance_.plugin().record().name);
  sampler_.slots = &instance_.table<pliant_batch_sampler>();
  sampler_.self = instance_.self();
  sampler_.refusal = [this](int32_t status, const pliant_error& error) {
    return plugin::to_error(instance_.plugin(), status, error);
  };
}

Result<std::unique_ptr<EpochPlanner>> EpochPlanner::make(plugin::Instance instance, bool streams) {
  std::unique_ptr<EpochPlanner> made(new EpochPlanner(std::move(instance)));
  if (!streams) return made;
  const Result<const pliant_row_stream*> stream = made->instance_.extension<pliant_row_stream>(PLIANT_ROW_STREAM);
  if (!stream) return tl::unexpected<Error>(stream.error());
  made->sampler_.stream = *stream;
  made->sampler_.save = [self = made.get()] { return self->instance_.save(); };
  made->sampler_.load = [self = made.get()](std::string_view saved) { return self->instance_.load(saved); };
  return made;
}

Result<> EpochPlanner::plan(EpochInputs inputs) {
  plan_.reset();  // the sampler holds one epoch at a time
  Result<EpochPlan> made = EpochPlan::make(sampler_, std::move(inputs));
  if (!made) return failed(std::move(made));
  plan_ = std::move(*made);
  return {};
}

}  // namespace pliant::data
