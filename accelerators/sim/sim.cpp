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
    o.add("memory_bytes", &S::memory_bytes, "Memory that one process may allocate; 0 = all of the machine's.")
        .unit("bytes")
        .at_least(0);
    o.add("chunk_bytes", &S::chunk_bytes,
          "Piece size of collectives; a communicator uses 6 such pieces of shared memory per rank.")
        .unit("bytes")
        .range(4096, 64 * 1024 * 1024);
    o.add("collectives", &S::collectives, "false = like a device without native collectives.");
    o.add("host_visible", &S::host_visible, "false = like a device whose memory the CPU cannot access.");
    o.add("exchange", &S::exchange, "false = like a device whose memory other processes cannot map.");
    o.add("shared_memory", &S::shared_memory, "false = like a device without memory shared with the CPU.");
    o.add("windows", &S::windows, "false = like a device without window memory.");
    o.add("stream_memory", &S::stream_memory, "false = like a device without native stream-ordered memory.");
    o.add("optimizer", &S::optimizer, "false = like a device without native AdamW and squared norms.");
    o.add("registers", &S::registers, "false = like a device that cannot pin memory of the program.");
    o.add("spends", &S::spends, "false = like a device whose streams cannot be kept busy for a given time.");
    o.add("aligned", &S::aligned, "false = like a device that cannot align memory on request.");
  }

  static void fault_options(Table& o) {
    o.add("seed", &S::seed, "Seed of all injected faults.");
    o.add("max_delay_us", &S::max_delay_us,
          "Most delay before each piece of work starts; with clock = \"virtual\" in virtual time only.")
        .unit("us")
        .range(0, 1000000);
    o.add("reorder", &S::reorder,
          "Run work of different streams in random order, one piece at a time; host functions, collectives and pure "
          "delays run beside it.");
    o.add("fail_alloc_at", &S::fail_alloc_at, "Numbers of allocations that fail with out of memory, counted from 1.")
        .at_least(1);
    o.add("fail_alloc_probability", &S::fail_alloc_probability, "Probability that any other allocation fails.")
        .range(0.0, 1.0);
    o.add("lose_device_at", &S::lose_device_at,
          "Number of the copy, computation or collective of this instance, counted from 1 as enqueued, at which the "
          "device is lost: after it every call except freeing and destroying is refused (PLIANT_FAILED_PRECONDITION), "
          "and host functions still run; 0 = never.")
        .at_least(0);
    o.add("lost_rank", &S::lost_rank, "Rank that vanishes from its communicator; -1 = none.").at_least(-1);
    o.add("lost_at", &S::lost_at, "Collective at which the rank vanishes, counted from 1.").at_least(1);
    o.add("killed_rank", &S::killed_rank, "Rank whose process is killed by SIGKILL; -1 = none.").at_least(-1);
    o.add("killed_at", &S::killed_at, "Collective at which the rank is killed, counted from 1.").at_least(1);
    o.add("stopped_rank", &S::stopped_rank,
          "Rank whose process is stopped by SIGSTOP until it gets SIGCONT; -1 = none.")
        .at_least(-1);
    o.add("stopped_at", &S::stopped_at, "Collective at which the rank stops, counted from 1.").at_least(1);
    o.add("slow_rank", &S::slow_rank,
          "Rank whose copies and computations are slower once its instance has joined a communicator as that rank; -1 "
          "= none.")
        .at_least(-1);
    o.add("slow_factor", &S::slow_factor, "Factor by which the slow rank's work takes longer.").range(1.0, 1000.0);
  }

  static void clock_options(Table& o) {
    o.add("clock", &S::clock,
          "virtual = event_elapsed returns times of a cost model: engines for compute, gather, scatter and the two "
          "directions of copies run side by side, each one piece at a time; a collective begins when its last rank is "
          "ready; time that a stream spends passes on this clock only. The times depend only on the calls, not on the "
          "machine.")
        .choices({"real", "virtual"});
    o.add("launch_us", &S::launch_us,
          "Virtual clock: fixed time of a copy or computation, regardless of its size, and of a stream-ordered "
          "allocation that freed memory cannot serve.")
        .unit("us")
        .range(0.0, 1e6);
    const auto rate = [&o](const char* key, double S::*member, const char* doc) {
      o.add(key, member, doc).unit("GB/s").range(0.001, 1e6);
    };
    rate("to_device_gbps", &S::to_device_gbps, "Virtual clock: speed of copies on streams to the device.");
    rate("to_host_gbps", &S::to_host_gbps, "Virtual clock: speed of copies on streams to the host.");
    rate("memory_gbps", &S::memory_gbps,
         "Virtual clock: speed of all other copies and computations, counting bytes read and written.");
    o.add("collective_us", &S::collective_us,
          "Virtual clock: fixed time of a collective or message, regardless of its size.")
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
