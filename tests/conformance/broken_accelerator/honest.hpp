// Honest<T>: the host accelerator's device with nothing wrong. The plugins of this folder each break one promise of it,
// to see that the kit notices. TEST ONLY: never installed, never in a plugin folder.
#pragma once

#include <cstring>

#include "kernel/device.hpp"
#include "pliant/sdk/collectives.hpp"

namespace pliant::broken {

using accelerator::Device;

template <class T>
class Honest : public Device {
 public:
  const void* extension(const char* id) const {
    return std::strcmp(id, PLIANT_COLLECTIVES) == 0 ? sdk::collectives_table<T>() : nullptr;
  }
  void start(const sdk::Host&) { configure({"broken on purpose", 0, 256 * 1024, nullptr}); }
};

}  // namespace pliant::broken

#define PLIANT_BROKEN(Type, name) PLIANT_ACCELERATOR(Type, name, "0.0.1", "Broken on purpose, to test the kit")
