// What the tests of the embedding API share: accelerators from a config file, and errors.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "pliant/accelerator.hpp"
#include "pliant/communicator.hpp"
#include "pliant/error.hpp"

namespace pliant::test {

/// A config file that lives as long as this.
class ConfigFile {
 public:
  explicit ConfigFile(const std::string& accelerator) {
    static int count = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("pliant-accelerator-" + std::to_string(::getpid()) + "-" + std::to_string(count++) + ".toml");
    std::ofstream(path_) << "config_version = 1\n[accelerator]\n" << accelerator;
  }
  ~ConfigFile() { std::filesystem::remove(path_); }
  ConfigFile(const ConfigFile&) = delete;
  ConfigFile& operator=(const ConfigFile&) = delete;
  [[nodiscard]] Config open() const {
    const ConfigNeeds needs{"accelerator"};
    ConfigOverrides overrides;
    overrides.read_environment = false;
    overrides.plugin_dirs = {PLIANT_PLUGIN_DIR, PLIANT_TESTKIT_PLUGIN_DIR};
    return Config::open(path_, needs, overrides);
  }

 private:
  std::filesystem::path path_;
};

inline Accelerator host(const std::string& options = "") {
  return Accelerator(ConfigFile("use = \"host\"\n[accelerator.host]\n" + options).open());
}

inline Accelerator sim(const std::string& options) {
  return Accelerator(ConfigFile("use = \"sim\"\n[accelerator.sim]\n" + options).open());
}

/// One whose collectives are generic. Ranks that are threads share the memory that they exchange; the order between
/// them goes by way of memory that each maps for itself, which TSan cannot see.
inline Accelerator generic() {
  std::string options = "collectives = false\nhost_visible = false\n";
#ifdef __SANITIZE_THREAD__
  options += "exchange = false\n";
#endif
  return sim(options);
}

/// Holds a stream until let go: it waits in a barrier for a rank that comes late.
class Held {
 public:
  Held(const Accelerator& accelerator, Stream& stream)
      : accelerator_(accelerator), id_(accelerator.make_comm_id(2)), comm_(accelerator, 0, id_, 0, 2) {
    comm_.barrier(stream);
  }
  void let_go() {
    Communicator late(accelerator_, 0, id_, 1, 2);
    Stream stream(accelerator_, 0);
    late.barrier(stream);
    stream.synchronize();
  }

 private:
  const Accelerator& accelerator_;
  CommId id_;
  Communicator comm_;
};

template <class Body>
std::optional<Error> error_of(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

}  // namespace pliant::test
