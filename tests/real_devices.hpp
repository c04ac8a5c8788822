// Devices of this machine that are no doubles, for tests that run on those, too, where there are any.
#pragma once

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace pliant::test {

struct RealDevices {
  int count = 0;
  bool has_collectives = false;  ///< of the accelerator's own
};

/// What `pliant accel list` says, in this environment, of an accelerator: "cuda", "level_zero". It is asked once, and
/// only where the kernel has any such device.
inline RealDevices real_devices(const std::string& accelerator) {
  static const nlohmann::json kListed = [] {
    constexpr std::array kFiles{"/dev/nvidia0", "/dev/dri", "/dev/dxg"};
    const bool any =
        std::any_of(kFiles.begin(), kFiles.end(), [](const char* file) { return std::filesystem::exists(file); });
    if (!any) return nlohmann::json();
    std::string said;
    const std::string command = "\"" + std::string(PLIANT_BIN_DIR) + "/pliant\" accel list --json 2>/dev/null";
    if (FILE* const words = ::popen(command.c_str(), "r"); words != nullptr) {
      for (int c = 0; (c = std::fgetc(words)) != EOF;) said += static_cast<char>(c);
      ::pclose(words);
    }
    return nlohmann::json::parse(said, nullptr, false);
  }();
  if (!kListed.is_object()) return {};
  for (const nlohmann::json& one : kListed["accelerators"]) {
    if (one["name"] != accelerator || one["status"] != "ok") continue;
    // Somebody else's environment may have a double.
    const bool is_double = one["devices"].dump().find("test double") != std::string::npos;
    return {is_double ? 0 : static_cast<int>(one["devices"].size()), one["collectives"].get<bool>()};
  }
  return {};
}

}  // namespace pliant::test
