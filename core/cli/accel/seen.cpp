// Asks the accelerator.
#include "accel/seen.hpp"

#include <array>

#include "accelerator/state.hpp"

namespace pliant::cli {

DeviceSeen see_device(const Accelerator& accelerator, int32_t device) {
  const detail::CollectivesOf& collectives = accelerator.state()->collectives;
  return {accelerator.properties(device), collectives.are_own(), collectives.are_there()};
}

bool has_own_collectives(const Accelerator& accelerator) {
  return accelerator.state()->collectives.are_own();
}

std::string why_no_devices(const Accelerator& accelerator) {
  const pliant_accelerator& slots = accelerator.state()->table();
  if (slots.why_no_devices == nullptr) return "";
  std::array<char, 512> text{};
  accelerator.state()->call(slots.why_no_devices, text.data(), uint64_t{text.size()});
  text.back() = '\0';
  return text.data();
}

std::string version_of(const Accelerator& accelerator) {
  return accelerator.state()->instance.plugin().record().version;
}

}  // namespace pliant::cli
