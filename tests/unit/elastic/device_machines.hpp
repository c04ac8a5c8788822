// Software doubles of machines with devices, as accelerators that tests open, and memory of their devices.
#pragma once

#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "accelerator/state.hpp"
#include "base/inside.hpp"
#include "pliant/balancer.hpp"
#include "rank_group.hpp"
#include "real_devices.hpp"
#include "unit/accelerator/cuda_runtime.hpp"
#include "unit/accelerator/level_zero_driver.hpp"
#include "unit/accelerator/wrapper.hpp"

namespace pliant::test {

struct Machine {
  std::string name;
  std::string accelerator;  ///< TOML
};

/// Those whose devices' memory the CPU does not reach, or so they say.
inline std::vector<Machine> machines() {
  std::vector<Machine> all;
#ifdef PLIANT_SOFT_CUDA
  all.push_back(
      {"cuda", "use = \"cuda\"\n[accelerator.cuda]\nruntime = \"" PLIANT_SOFT_CUDA "\"\ncollectives = \"generic\"\n"});
#endif
#ifdef PLIANT_SOFT_LEVEL_ZERO
  all.push_back({"level_zero", "use = \"level_zero\"\n"});
#endif
  all.push_back({"sim", "use = \"sim\"\n[accelerator.sim]\nhost_visible = false\nmax_delay_us = 20\n"});
  return all;
}

inline Accelerator open(const Machine& machine) {
  pliant_test::use_software_driver();
  return Accelerator(ConfigFile(machine.accelerator).open());
}

/// Those, and the devices of this machine that this process can have beside doubles: GPUs of CUDA, and those of Level
/// Zero where there is no double of its driver, since the loader opens one or the others.
inline std::vector<Machine> machines_and_gpus() {
  std::vector<Machine> all;
  if (real_devices("cuda").count > 0) {
    all.push_back({"cuda, GPUs", "use = \"cuda\"\n[accelerator.cuda]\ncollectives = \"generic\"\n"});
    // Opened first: the double has the same name, and whoever asks for that has what is there.
    static_cast<void>(Accelerator(ConfigFile(all.back().accelerator).open()).device_count());
  }
#ifndef PLIANT_SOFT_LEVEL_ZERO
  if (real_devices("level_zero").count > 0) all.push_back({"level_zero, GPUs", "use = \"level_zero\"\n"});
#endif
  for (Machine& machine : machines()) all.push_back(std::move(machine));
  return all;
}

inline void check_doubles_are_clean() {
  pliant_test::check_software_cuda_is_clean();
  pliant_test::check_software_driver_is_clean();
}

/// Holds a stream while it lives; whoever waits for that stream waits until its patience is at an end, and is found
/// out.
class Gate {
 public:
  explicit Gate(Stream& stream, std::chrono::milliseconds patience = std::chrono::seconds(10))
      : stream_(stream), patience_(patience) {
    const auto& held = detail::inside(stream);
    held.accelerator->call(&pliant_accelerator::host_function, &wait, static_cast<void*>(this), held.handle);
  }
  ~Gate() {
    open_.set_value();
    stream_.synchronize();
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  [[nodiscard]] bool was_waited_for() const { return waited_for_; }

 private:
  static void wait(void* context) {
    auto& gate = *static_cast<Gate*>(context);
    gate.waited_for_ = gate.opened_.wait_for(gate.patience_) != std::future_status::ready;
  }
  Stream& stream_;
  std::chrono::milliseconds patience_;
  std::promise<void> open_;
  std::future<void> opened_ = open_.get_future();
  std::atomic<bool> waited_for_{false};
};

/// Memory of device 0 with that many equal elements.
template <class Number>
Buffer full_of(Number value, const Accelerator& accelerator, Stream& stream, size_t count) {
  const std::vector<Number> values(count, value);
  Buffer made(accelerator, 0, count * sizeof(Number));
  stream.copy(made.pointer(), values.data(), made.bytes());
  stream.synchronize();
  return made;
}

inline std::vector<float> on_host(std::span<const float> there, Stream& stream) {
  std::vector<float> values(there.size());
  stream.copy(values.data(), there.data(), there.size_bytes());
  stream.synchronize();
  return values;
}

/// All rows on one rank, in granules of one.
inline Assignment alone(int64_t rows) {
  return share_out(rows, {.world_size = 1, .granule = 1, .deterministic = true});
}

}  // namespace pliant::test
