// The `sim` accelerator: a TEST DOUBLE. It is the host device with faults injected from a seed and, where asked, a
// clock of its own; it is never installed with the plugins and no job should name it.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/cpu_device/device.hpp"
#include "injection.hpp"
#include "pliant/sdk/collectives.hpp"
#include "pliant/sdk/ipc.hpp"
#include "pliant/sdk/optimizer.hpp"
#include "pliant/sdk/stream_memory.hpp"
#include "stream_pool.hpp"

namespace {

using pliant::accelerator::CostModel;
using pliant::accelerator::Device;
using pliant::accelerator::Injection;
using pliant::accelerator::Mark;
using pliant::accelerator::StreamPool;
using pliant::accelerator::VirtualClock;
using pliant::accelerator::WorkKind;

class SimAccelerator : public Device {
 public:
  int64_t memory_bytes = 0;
  int64_t chunk_bytes = 256 * 1024;
  int64_t seed = 1;
  int64_t max_delay_us = 0;
  bool reorder = false;
  std::vector<int64_t> fail_alloc_at;
  double fail_alloc_probability = 0;
  int64_t lose_device_at = 0;
  int64_t lost_rank = -1;
  int64_t lost_at = 1;
  int64_t killed_rank = -1;
  int64_t killed_at = 1;
  int64_t stopped_rank = -1;
  int64_t stopped_at = 1;
  int64_t slow_rank = -1;
  double slow_factor = 2;
  bool collectives = true;
  bool host_visible = true;
  bool exchange = true;
  bool shared_memory = true;
  bool windows = true;
  bool stream_memory = true;
  bool optimizer = true;
  bool aligned = true;
  bool spends = true;
  bool registers = true;
  std::string clock = "real";
  double launch_us = 5;
  double to_device_gbps = 25;
  double to_host_gbps = 25;
  double memory_gbps = 1000;
  double collective_us = 20;
  double collective_gbps = 10;

  static void options(pliant::sdk::Options<SimAccelerator>& o) {
    device_options(o);
    fault_options(o);
    clock_options(o);
  }

  const void* extension(const char* id) const {
    if (std::strcmp(id, PLIANT_IPC) == 0) return exchange ? pliant::sdk::ipc_table<SimAccelerator>() : nullptr;
    if (std::strcmp(id, PLIANT_STREAM_MEMORY) == 0) {
      return stream_memory ? pliant::sdk::stream_memory_table<SimAccelerator>() : nullptr;
    }
    if (std::strcmp(id, PLIANT_OPTIMIZER) == 0) {
      return optimizer ? pliant::sdk::optimizer_table<SimAccelerator>() : nullptr;
    }
    const bool has = collectives && std::strcmp(id, PLIANT_COLLECTIVES) == 0;
    return has ? pliant::sdk::collectives_table<SimAccelerator>() : nullptr;
  }
  pliant::sdk::DeviceProperties device_properties(int32_t device) {
    pliant::sdk::DeviceProperties made = Device::device_properties(device);
    if (!host_visible) made.capabilities &= ~uint32_t{PLIANT_CAP_HOST_VISIBLE};
    if (!exchange) made.capabilities &= ~uint32_t{PLIANT_CAP_EXCHANGE_MEMORY};
    if (shared_memory) made.capabilities |= PLIANT_CAP_SHARED_MEMORY;
    if (!windows) made.capabilities &= ~uint32_t{PLIANT_CAP_WINDOW_MEMORY};
    return made;
  }

  std::unique_ptr<Event> make_exported_event(int32_t device) {
    if (exchange) return Device::make_exported_event(device);
    throw pliant::sdk::Failure(PLIANT_UNIMPLEMENTED, "with exchange = false no event passes between processes");
  }
  void* alloc(int32_t device, pliant::sdk::Memory kind, uint64_t bytes) {
    if (bytes > memory().left()) stream_pool_.trim(0);
    return Device::alloc(device, kind, bytes);
  }
  void* alloc_aligned(int32_t device, pliant::sdk::Memory kind, uint64_t bytes, uint64_t alignment) {
    if (!aligned) throw pliant::sdk::Failure(PLIANT_UNIMPLEMENTED, "with aligned = false memory has no alignment");
    if (bytes > memory().left()) stream_pool_.trim(0);
    return Device::alloc_aligned(device, kind, bytes, alignment);
  }
  void* alloc_async(int32_t, uint64_t bytes, Stream& stream) {
    injection_->before_call();
    injection_->before_alloc(bytes);
    bool is_new = false;
    const auto wait = [this](const Mark& mark) {
      if (virtual_clock()) virtual_clock()->host_waits(mark.moment());
      mark.wait();
    };
    void* const made = stream_pool_.alloc(bytes, stream, wait, is_new);
    if (is_new) stream.enqueue([] {}, {.kind = WorkKind::kAllocation});
    return made;
  }
  void free_async(int32_t, void* pointer, Stream& stream) { stream_pool_.free(pointer, stream); }
  void trim(int32_t, uint64_t keep_bytes) {
    injection_->before_call();
    stream_pool_.trim(keep_bytes);
  }

  void register_host(void* pointer, uint64_t bytes) {
    if (!registers) throw pliant::sdk::Failure(PLIANT_UNIMPLEMENTED, "with registers = false no memory is pinned");
    Device::register_host(pointer, bytes);
  }
  void spend(uint64_t nanoseconds, Stream& stream) {
    if (!spends) throw pliant::sdk::Failure(PLIANT_UNIMPLEMENTED, "with spends = false no time is spent");
    Device::spend(nanoseconds, stream);
  }

  // With a virtual clock, what the host knows to be done lies before what it enqueues later.
  void synchronize(Stream& stream) {
    if (virtual_clock()) virtual_clock()->host_waits(stream.last_moment());
    Device::synchronize(stream);
  }
  void synchronize(Event& event) {
    if (virtual_clock()) virtual_clock()->host_waits(event.moment());
    Device::synchronize(event);
  }
  bool query(Stream& stream) {
    const auto last = stream.last_moment();
    const bool done = Device::query(stream);
    if (done && virtual_clock()) virtual_clock()->host_waits(last);
    return done;
  }
  bool query(Event& event) {
    const auto recorded = event.moment();
    const bool done = Device::query(event);
    if (done && virtual_clock()) virtual_clock()->host_waits(recorded);
    return done;
  }
  double elapsed(Event& begin, Event& end) {
    const double real = Device::elapsed(begin, end);  // throws where there is none
    if (!virtual_clock()) return real;
    const auto from = static_cast<int64_t>(virtual_clock()->end_ns(*begin.moment()));
    const auto to = static_cast<int64_t>(virtual_clock()->end_ns(*end.moment()));
    return static_cast<double>(to - from) * 1e-9;
  }

  void start(const pliant::sdk::Host&) {
    pliant::accelerator::InjectionPlan plan;
    plan.seed = static_cast<uint64_t>(seed);
    plan.max_delay_us = max_delay_us;
    plan.reorder = reorder;
    plan.fail_alloc_at = fail_alloc_at;
    plan.fail_alloc_probability = fail_alloc_probability;
    plan.lose_device_at = lose_device_at;
    plan.lost = {lost_rank, lost_at};
    plan.killed = {killed_rank, killed_at};
    plan.stopped = {stopped_rank, stopped_at};
    plan.slow_rank = slow_rank;
    plan.slow_factor = slow_factor;
    if (clock == "virtual") {
      plan.virtual_clock = CostModel{std::llround(launch_us * 1000),     to_device_gbps, to_host_gbps, memory_gbps,
                                     std::llround(collective_us * 1000), collective_gbps};
    }
    injection_ = std::make_shared<Injection>(plan);
    configure(
        {"sim (test double)", static_cast<uint64_t>(memory_bytes), static_cast<uint64_t>(chunk_bytes), injection_});
  }

 private:
  using S = SimAccelerator;
  using Table = pliant::sdk::Options<SimAccelerator>;

  static void device_options(Table& o) {
    o.add("memory_bytes", &S::memory_bytes, "Memory that one process may allocate; 0 is all of the machine's.")
        .unit("bytes")
        .at_least(0);
    o.add("chunk_bytes", &S::chunk_bytes,
          "Piece in which collectives move; a communicator takes 6 such pieces of shared memory for each of its ranks.")
        .unit("bytes")
        .range(4096, 64 * 1024 * 1024);
    o.add("collectives", &S::collectives, "false = as a device without collectives of its own.");
    o.add("host_visible", &S::host_visible, "false = as a device whose memory the processors may not touch.");
    o.add("exchange", &S::exchange, "false = as a device whose memory other processes cannot map.");
    o.add("shared_memory", &S::shared_memory, "false = as a device without memory at one address for it and the CPU.");
    o.add("windows", &S::windows, "false = as a device without memory that communicators know as windows.");
    o.add("stream_memory", &S::stream_memory, "false = as a device without memory in stream order of its own.");
    o.add("optimizer", &S::optimizer, "false = as a device without AdamW and squared norms of its own.");
    o.add("registers", &S::registers, "false = as a device that pins no memory of the program's own.");
    o.add("spends", &S::spends, "false = as a device whose streams are not busy for as long as they are told.");
    o.add("aligned", &S::aligned, "false = as a device that aligns no memory to what is asked for.");
  }

  static void fault_options(Table& o) {
    o.add("seed", &S::seed, "What all injected faults are drawn from.");
    o.add("max_delay_us", &S::max_delay_us,
          "Each piece of work starts late by up to that much; with clock = \"virtual\" by that clock only.")
        .unit("us")
        .range(0, 1000000);
    o.add("reorder", &S::reorder,
          "Work of different streams runs in a drawn order, one piece at a time; host functions, collectives and what "
          "only spends time run beside it.");
    o.add("fail_alloc_at", &S::fail_alloc_at, "Allocations that fail for want of memory, counted from 1.").at_least(1);
    o.add("fail_alloc_probability", &S::fail_alloc_probability, "How likely each other allocation fails.")
        .range(0.0, 1.0);
    o.add("lose_device_at", &S::lose_device_at,
          "The copy, computation or collective of this instance, counted from 1 as enqueued, at which the device is "
          "lost: from then on every call is refused (PLIANT_FAILED_PRECONDITION) but those that free and destroy, and "
          "host functions still run; 0 is never.")
        .at_least(0);
    o.add("lost_rank", &S::lost_rank, "Rank that vanishes from its communicator; -1 is none.").at_least(-1);
    o.add("lost_at", &S::lost_at, "The collective at which it vanishes, counted from 1.").at_least(1);
    o.add("killed_rank", &S::killed_rank, "Rank whose process ends by SIGKILL; -1 is none.").at_least(-1);
    o.add("killed_at", &S::killed_at, "The collective at which it is killed, counted from 1.").at_least(1);
    o.add("stopped_rank", &S::stopped_rank,
          "Rank whose process stops by SIGSTOP until somebody lets it go on; -1 is none.")
        .at_least(-1);
    o.add("stopped_at", &S::stopped_at, "The collective at which it stops, counted from 1.").at_least(1);
    o.add("slow_rank", &S::slow_rank,
          "Rank whose copies and computations take longer, from the moment its instance joins a communicator as that "
          "rank; -1 is none.")
        .at_least(-1);
    o.add("slow_factor", &S::slow_factor, "How many times as long they take.").range(1.0, 1000.0);
  }

  static void clock_options(Table& o) {
    o.add(
         "clock", &S::clock,
         "virtual = event_elapsed tells what a cost model says: engines for compute, gather, scatter and the two "
         "directions of copies each do one thing at a time, side by side; a collective begins when its last rank "
         "could; time that a stream spends passes by this clock alone. The times depend on the calls alone, not on the "
         "machine.")
        .choices({"real", "virtual"});
    o.add("launch_us", &S::launch_us,
          "Virtual clock: what any copy or computation takes, whatever its size, and memory that is taken in stream "
          "order where none that was given back serves.")
        .unit("us")
        .range(0.0, 1e6);
    const auto rate = [&o](const char* key, double S::*member, const char* doc) {
      o.add(key, member, doc).unit("GB/s").range(0.001, 1e6);
    };
    rate("to_device_gbps", &S::to_device_gbps, "Virtual clock: speed of copies on streams to the device.");
    rate("to_host_gbps", &S::to_host_gbps, "Virtual clock: speed of copies on streams to the host.");
    rate("memory_gbps", &S::memory_gbps,
         "Virtual clock: speed at which all other copies and computations read and write, both counted.");
    o.add("collective_us", &S::collective_us, "Virtual clock: what any collective or message takes, whatever its size.")
        .unit("us")
        .range(0.0, 1e6);
    rate("collective_gbps", &S::collective_gbps,
         "Virtual clock: speed of collectives, in bytes of the larger buffer of a rank, and of messages.");
  }

  [[nodiscard]] VirtualClock* virtual_clock() const { return injection_->clock(); }

  std::shared_ptr<Injection> injection_;
  StreamPool stream_pool_{memory()};
};

}  // namespace

PLIANT_ACCELERATOR(SimAccelerator, "sim", "0.1.0",
                   "Test double: the host device with delays, reordering, losses and a virtual clock")
