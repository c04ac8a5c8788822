// Asks the accelerator.
#include "accel/seen.hpp"

#include "accelerator/state.hpp"
#include "base/inside.hpp"

namespace pliant::cli {

DeviceSeen see_device(const Accelerator& accelerator, int32_t device) {
  const collectives::CollectivesOf& collectives = detail::inside(accelerator).collectives;
  return {accelerator.properties(device), collectives.are_native(), collectives.are_there()};
}

bool has_native_collectives(const Accelerator& accelerator) {
  return detail::inside(accelerator).collectives.are_native();
}

std::string version_of(const Accelerator& accelerator) {
  return detail::inside(accelerator).instance.plugin().record().version;
}

}  // namespace pliant::cli
