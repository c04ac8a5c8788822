// Asks the accelerator.
#include "accel/seen.hpp"

#include <string_view>

#include "accelerator/state.hpp"
#include "pliant/error.hpp"

namespace pliant::cli {

DeviceSeen see_device(const Accelerator& accelerator, int32_t device) {
  const detail::CollectivesOf& collectives = accelerator.state()->collectives;
  return {accelerator.properties(device), collectives.are_own(), collectives.are_there()};
}

bool has_own_collectives(const Accelerator& accelerator) {
  return accelerator.state()->collectives.are_own();
}

std::string why_no_devices(const Accelerator& accelerator) {
  try {
    static_cast<void>(accelerator.properties(0));
    return "";
  } catch (const Error& error) {
    const std::string& told = error.message();
    constexpr std::string_view kBefore = "devices: 0: ";  // the SDK's words
    const size_t at = told.find(kBefore);
    return at == std::string::npos ? "" : told.substr(at + kBefore.size());
  }
}

std::string version_of(const Accelerator& accelerator) {
  return accelerator.state()->instance.plugin().record().version;
}

}  // namespace pliant::cli
