// Asks the accelerator.
#include "accel/seen.hpp"

#include <array>

#include "accelerator/state.hpp"
#include "base/inside.hpp"

namespace pliant::cli {

DeviceSeen see_device(const Accelerator& accelerator, int32_t device) {
  const detail::CollectivesOf& collectives = detail::inside(accelerator).collectives;
  return {accelerator.properties(device), collectives.are_own(), collectives.are_there()};
}

bool has_own_collectives(const Accelerator& accelerator) {
  return detail::inside(accelerator).collectives.are_own();
}

std::string why_no_devices(const Accelerator& accelerator) {
  const Accelerator::State& inside = detail::inside(accelerator);
  if (!inside.slots().has(&pliant_accelerator::why_no_devices)) return "";
  std::array<char, 512> text{};
  inside.call(&pliant_accelerator::why_no_devices, text.data(), text.size());
  text.back() = '\0';
  return text.data();
}

std::string version_of(const Accelerator& accelerator) {
  return detail::inside(accelerator).instance.plugin().record().version;
}

}  // namespace pliant::cli
