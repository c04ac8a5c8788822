// A device with the collectives that core makes, in each way that its ranks may exchange.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "collective_cases.hpp"
#include "collectives/generic_collectives.hpp"
#include "config/instances.hpp"
#include "pliant/config.hpp"
#include "pliant/error.hpp"
#include "pliant/sdk/collectives.hpp"

namespace pliant_test {

/// A folder with two configs: of the device, and of the carrier. Written before any rank starts.
class Configs {
 public:
  explicit Configs(const std::string& device) {
    static int count = 0;
    folder_ = std::filesystem::temp_directory_path() /
              ("pliant-generic-" + std::to_string(::getpid()) + "-" + std::to_string(count++));
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ / "device.toml") << "config_version = 1\n[accelerator]\n" << device;
    std::ofstream(folder_ / "carrier.toml")
        << "config_version = 1\n[accelerator]\nuse = \"host\"\n[accelerator.host]\nchunk_bytes = 4096\n";
  }
  ~Configs() { std::filesystem::remove_all(folder_); }
  Configs(const Configs&) = delete;
  Configs& operator=(const Configs&) = delete;
  [[nodiscard]] pliant::plugin::Instance instance(const char* name) const {
    const pliant::ConfigNeeds needs{"accelerator"};
    pliant::ConfigOverrides overrides;
    overrides.read_environment = false;
    overrides.plugin_dirs = {PLIANT_PLUGIN_DIR, PLIANT_TESTKIT_PLUGIN_DIR};
    const auto config = pliant::Config::open(folder_ / name, needs, overrides);
    return pliant::or_throw(pliant::config::instantiate(config, "accelerator"));
  }

 private:
  std::filesystem::path folder_;
};

struct Instances {
  explicit Instances(const Configs& configs)
      : device(configs.instance("device.toml")), generic{{device, configs.instance("carrier.toml")}} {}
  pliant::plugin::Instance device;
  pliant::sdk::detail::Plain<pliant::collectives::GenericCollectives> generic;
};

/// The simulator without collectives of its own, with the generic ones.
class GenericDevice : private Instances, public Device {
 public:
  explicit GenericDevice(const Configs& configs)
      : Instances(configs),
        Device(Instances::device.plugin().record(), Instances::device.self(),
               {pliant::collectives::GenericCollectives::table(), &generic}) {}
  [[nodiscard]] Outcome synchronize(pliant_stream* stream) const override {
    Outcome outcome = Device::synchronize(stream);
    if (!outcome.ok()) return outcome;
    try {
      const_cast<pliant::collectives::GenericCollectives&>(generic.plugin).throw_failure(stream, PLIANT_OK);
    } catch (const pliant::sdk::Failure& failure) {
      return pliant::sdk::Answer{failure.status(), failure.what(), failure.options(), failure.rank(), failure.device()};
    }
    return outcome;
  }
};

inline const std::string kDirect = "use = \"sim\"\n[accelerator.sim]\ncollectives = false\n";
inline const std::string kDevices = kDirect + "host_visible = false\n";
inline const std::string kStaged = kDevices + "exchange = false\n";
#ifdef PLIANT_SOFT_LEVEL_ZERO
inline const std::string kLevelZero = "use = \"level_zero\"\n[accelerator.level_zero]\nstaging_bytes = 131072\n";
#endif
#ifdef PLIANT_SOFT_CUDA
inline const std::string kCuda =
    "use = \"cuda\"\n[accelerator.cuda]\ncollectives = \"generic\"\nstaging_bytes = 131072\n";
#endif
using Way = pliant::collectives::GenericCollectives::Way;

/// "" when the ranks of `comm`, which has ended a collective, exchange in this way.
inline std::string goes(const Comm& comm, Way way) {
  pliant_comm* const handle = comm;
  const Way gone = pliant::collectives::GenericCollectives::way(
      *reinterpret_cast<pliant::collectives::GenericCollectives::Comm*>(handle));
  return gone == way ? "" : "the ranks exchange in way " + std::to_string(static_cast<int>(gone));
}

/// A device, and the way that its ranks go.
struct Setup {
  std::string name;
  std::string options;
  Way way;
  std::string delays;                                                 ///< options that make work late
  std::vector<std::pair<std::string, std::string>> environment = {};  ///< while the ranks run
  std::vector<std::pair<std::string, std::string>> delaying = {};     ///< and what makes work late
};

inline std::vector<Setup> every_setup() {
  const std::string late = "max_delay_us = 300\n";
  std::vector<Setup> all{{"sim, direct", kDirect, Way::kDirect, late},
                         {"sim, staged", kStaged, Way::kStaged, late},
                         {"sim, devices", kDevices, Way::kPeer, late}};
#ifdef PLIANT_SOFT_LEVEL_ZERO
  use_software_driver();
  const std::vector<std::pair<std::string, std::string>> slow{{"PLIANT_SOFT_ZE_SEED", "7"},
                                                              {"PLIANT_SOFT_ZE_MAX_DELAY_US", "20"}};
  all.push_back({"level_zero, staged", kLevelZero, Way::kStaged, "", {{"PLIANT_SOFT_ZE_IPC", "0"}}, slow});
  all.push_back({"level_zero, devices", kLevelZero, Way::kPeer, "", {}, slow});
#endif
#ifdef PLIANT_SOFT_CUDA
  use_software_cuda();
  const std::vector<std::pair<std::string, std::string>> late_gpu{{"PLIANT_SOFT_CUDA_SEED", "7"},
                                                                  {"PLIANT_SOFT_CUDA_MAX_DELAY_US", "20"}};
  all.push_back({"cuda, staged", kCuda, Way::kStaged, "", {{"PLIANT_SOFT_CUDA_NO_IPC", "1"}}, late_gpu});
  all.push_back({"cuda, devices", kCuda, Way::kPeer, "", {}, late_gpu});
#endif
  return all;
}

/// What the ranks return; of the software driver of Level Zero also which rule was broken first.
inline std::vector<RankEnd> ends_of(const Setup& setup, int32_t world_size, const RankBody& body, bool late = false) {
  const Configs configs(setup.options + (late ? setup.delays : ""));
  std::list<Setting> settings;
  for (const auto& [name, value] : setup.environment) settings.emplace_back(name, value);
  for (const auto& [name, value] : setup.delaying) {
    if (late) settings.emplace_back(name, value);
  }
  const auto checked = [&body](const Rank& self) {
    std::string text = body(self);
#ifdef PLIANT_SOFT_LEVEL_ZERO
    if (text.empty()) text = software_driver_counts().first_violation;
#endif
#ifdef PLIANT_SOFT_CUDA
    if (text.empty()) text = software_cuda_counts().first_violation;
#endif
    return text;
  };
  Processes processes(world_size, checked, [&](int32_t) { return std::make_unique<GenericDevice>(configs); });
  return processes.ends();
}

}  // namespace pliant_test
