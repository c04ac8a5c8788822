// The collectives that core builds for an accelerator without any, against the plain reference, and when ranks die.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <list>

#include "accelerator/generic_collectives.hpp"
#include "collective_cases.hpp"
#include "handles.hpp"
#include "pliant/config.hpp"
#include "pliant/error.hpp"
#include "pliant/sdk/collectives.hpp"

using namespace pliant_test;

namespace {

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
    pliant::ConfigNeeds needs;
    needs.accelerator = true;
    pliant::ConfigOverrides overrides;
    overrides.read_environment = false;
    overrides.plugin_dirs = {PLIANT_PLUGIN_DIR, PLIANT_TESTKIT_PLUGIN_DIR};
    const auto config = pliant::Config::open(folder_ / name, needs, overrides);
    return pliant::or_throw(pliant::plugin::instantiate(config, "accelerator"));
  }

 private:
  std::filesystem::path folder_;
};

struct Instances {
  explicit Instances(const Configs& configs)
      : device(configs.instance("device.toml")), generic{{device, configs.instance("carrier.toml")}} {}
  pliant::plugin::Instance device;
  pliant::sdk::detail::Plain<pliant::detail::GenericCollectives> generic;
};

/// The simulator without collectives of its own, with the generic ones.
class GenericDevice : private Instances, public Device {
 public:
  explicit GenericDevice(const Configs& configs)
      : Instances(configs),
        Device(Instances::device.plugin().record(), Instances::device.self(),
               pliant::detail::GenericCollectives::table(), &generic) {}
  [[nodiscard]] Outcome synchronize(pliant_stream* stream) const override {
    Outcome outcome = Device::synchronize(stream);
    if (!outcome.ok()) return outcome;
    try {
      const_cast<pliant::detail::GenericCollectives&>(generic.plugin).throw_failure(stream);
    } catch (const pliant::sdk::Failure& failure) {
      return {failure.status(), failure.what()};
    }
    return outcome;
  }
};

const std::string kDirect = "use = \"sim\"\n[accelerator.sim]\ncollectives = false\n";
const std::string kDevices = kDirect + "host_visible = false\n";
const std::string kStaged = kDevices + "exchange = false\n";
#ifdef PLIANT_SOFT_LEVEL_ZERO
const std::string kLevelZero = "use = \"level_zero\"\n[accelerator.level_zero]\nstaging_bytes = 131072\n";
#endif
#ifdef PLIANT_SOFT_CUDA
const std::string kCuda = "use = \"cuda\"\n[accelerator.cuda]\ncollectives = \"generic\"\nstaging_bytes = 131072\n";
#endif
using Way = pliant::detail::GenericCollectives::Way;

/// "" when the ranks of `comm`, which has ended a collective, exchange in this way.
std::string goes(const Comm& comm, Way way) {
  pliant_comm* const handle = comm;
  const Way gone =
      pliant::detail::GenericCollectives::way(*reinterpret_cast<pliant::detail::GenericCollectives::Comm*>(handle));
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

std::vector<Setup> every_setup() {
  const std::string late = "max_delay_us = 300\n";
  std::vector<Setup> all{{"sim, direct", kDirect, Way::kDirect, late},
                         {"sim, staged", kStaged, Way::kStaged, late},
                         {"sim, devices", kDevices, Way::kDevices, late}};
#ifdef PLIANT_SOFT_LEVEL_ZERO
  use_software_driver();
  const std::vector<std::pair<std::string, std::string>> slow{{"PLIANT_SOFT_ZE_SEED", "7"},
                                                              {"PLIANT_SOFT_ZE_MAX_DELAY_US", "20"}};
  all.push_back({"level_zero, staged", kLevelZero, Way::kStaged, "", {{"PLIANT_SOFT_ZE_IPC", "0"}}, slow});
  all.push_back({"level_zero, devices", kLevelZero, Way::kDevices, "", {}, slow});
#endif
#ifdef PLIANT_SOFT_CUDA
  use_software_cuda();
  const std::vector<std::pair<std::string, std::string>> late_gpu{{"PLIANT_SOFT_CUDA_SEED", "7"},
                                                                  {"PLIANT_SOFT_CUDA_MAX_DELAY_US", "20"}};
  all.push_back({"cuda, staged", kCuda, Way::kStaged, "", {{"PLIANT_SOFT_CUDA_NO_IPC", "1"}}, late_gpu});
  all.push_back({"cuda, devices", kCuda, Way::kDevices, "", {}, late_gpu});
#endif
  return all;
}

/// What the ranks return; of the software driver of Level Zero also which rule was broken first.
std::vector<RankEnd> ends_of(const Setup& setup, int32_t world_size, const RankBody& body, bool late = false) {
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

void expect_all_well(const std::vector<RankEnd>& ends) {
  for (size_t r = 0; r < ends.size(); ++r) {
    INFO("rank ", r);
    CHECK(ends[r].text == "");
  }
}

bool starts_with(const std::string& text, const std::string& head) {
  return text.rfind(head, 0) == 0;
}

}  // namespace

TEST_CASE("generic collectives equal the reference bit by bit at 1, 2, 3, 4 and 7 ranks, in each way") {
  for (const Setup& setup : every_setup()) {
    for (const int32_t world_size : {1, 2, 3, 4, 7}) {
      INFO(setup.name, ", world size ", world_size);
      expect_all_well(ends_of(setup, world_size, every_type));
    }
  }
}

TEST_CASE("ranks go the way that all of them can") {
  for (const Setup& setup : every_setup()) {
    INFO(setup.name);
    expect_all_well(ends_of(setup, 3, [way = setup.way](const Rank& self) -> std::string {
      Comm comm(self.device, self.id(), self.rank, self.world_size);
      const Stream stream(self.device);
      const std::string fault = run_case<float>(self.device, comm, stream, Kind::kAllReduce, self.rank, 3, 1000);
      return fault.empty() ? goes(comm, way) : fault;
    }));
  }
}

TEST_CASE("ranks of which one has no memory that others map are staged, all of them") {
  const Configs able(kDevices);
  const Configs unable(kStaged);
  Processes processes(
      3,
      [](const Rank& self) -> std::string {
        Comm comm(self.device, self.id(), self.rank, self.world_size);
        const Stream stream(self.device);
        const std::string fault = all_cases<float>(self, comm, stream, {0, 5, 20011});
        return fault.empty() ? goes(comm, Way::kStaged) : fault;
      },
      [&](int32_t rank) { return std::make_unique<GenericDevice>(rank == 1 ? unable : able); });
  expect_all_well(processes.ends());
}

// TSan sees no order that ranks of one process make through memory of `host` that each has mapped for itself.
#ifndef __SANITIZE_THREAD__
TEST_CASE("ranks that are threads of one process read each other's device memory, too") {
  const Configs configs(kDevices);
  const GenericDevice device(configs);
  const std::vector<std::string> faults = run_threads(device, 3, [](const Rank& self) -> std::string {
    Comm comm(self.device, self.id(), self.rank, self.world_size);
    const Stream stream(self.device);
    const std::string fault = all_cases<float>(self, comm, stream, {0, 5, 20011});
    return fault.empty() ? goes(comm, Way::kDevices) : fault;
  });
  for (const std::string& fault : faults) CHECK(fault == "");
}
#endif

TEST_CASE("generic collectives of more than a stage holds go through it in pieces") {
  for (const Setup& setup : every_setup()) {
    INFO(setup.name);
    expect_all_well(ends_of(setup, 3, [](const Rank& self) -> std::string {
      Comm comm(self.device, self.id(), self.rank, self.world_size);
      const Stream stream(self.device);
      std::string fault;
      for (const Kind kind : kKinds) {
        const uint64_t stage = uint64_t{1} << 19U;  // doubles
        for (const uint64_t count : {stage, stage + 1}) {
          if (fault.empty()) fault = run_case<double>(self.device, comm, stream, kind, self.rank, 3, count);
        }
      }
      return fault;
    }));
  }
}

TEST_CASE("generic collectives on two streams keep the order of the calls under delays") {
  for (const Setup& setup : every_setup()) {
    INFO(setup.name);
    const auto both = [](const Rank& self) -> std::string {
      Comm comm(self.device, self.id(), self.rank, self.world_size);
      const Stream first(self.device);
      const Stream second(self.device);
      std::vector<Case<float>> cases;
      for (uint64_t i = 0; i < 60; ++i) {
        cases.emplace_back(kind_of(i), self.rank, self.world_size, i * 91, PLIANT_SUM, false);
      }
      // A call on one stream uses nothing that one on the other stream makes.
      for (size_t i = 0; i < cases.size(); ++i) {
        const Outcome started = cases[i].start(self.device, comm, i % 3 == 0 ? first : second);
        if (!started.ok()) return started.text();
      }
      for (const Stream* stream : {&first, &second}) {
        if (const Outcome done = stream->synchronize(); !done.ok()) return done.text();
      }
      for (const Case<float>& one : cases) {
        if (std::string fault = one.check(); !fault.empty()) return fault;
      }
      return "";
    };
    expect_all_well(ends_of(setup, 3, both, true));
  }
}

TEST_CASE("kill -9 of a rank in the middle of any generic collective wakes all survivors with its number") {
  for (const Setup& setup : every_setup()) {
    for (const Kind kind : kKinds) {
      INFO(setup.name, ", ", name_of(kind));
      const std::vector<RankEnd> ends = ends_of(setup, 3, [kind](const Rank& self) -> std::string {
        Comm comm(self.device, self.id(), self.rank, self.world_size);
        const Stream stream(self.device);
        Flag& rounds = self.board.flags[0];
        std::thread death;
        if (self.rank == 1) {
          death = std::thread([&] {
            rounds.wait(30);
            self.board.killed_at_us.store(now_us());
            ::kill(::getpid(), SIGKILL);
          });
        }
        std::string text = repeat_until_failure(self, kind, comm, stream, rounds);
        if (death.joinable()) death.join();
        return text;
      });
      CHECK(ends[1].killed());
      for (const size_t survivor : {size_t{0}, size_t{2}}) {
        INFO(ends[survivor].text);
        CHECK(starts_with(ends[survivor].text, std::to_string(PLIANT_PEER_LOST) + ": rank 1 is lost"));
      }
    }
  }
}

TEST_CASE("abort and destroy end generic collectives that wait, and what is enqueued behind them") {
  for (const Setup& setup : every_setup()) {
    for (const bool destroys : {false, true}) {
      INFO(setup.name, destroys ? ", destroyed" : ", aborted");
      // The other rank of two never comes.
      expect_all_well(ends_of(setup, 1, [destroys](const Rank& self) -> std::string {
        pliant_comm_id id{};
        if (!self.device.call(&pliant_collectives::comm_id, 2, &id).ok()) return "comm_id";
        const Stream stream(self.device);
        const Stream other(self.device);
        Comm comm(self.device, id, 0, 2);
        std::vector<float> values(10);
        for (int i = 0; i < 3; ++i) {
          const Outcome made = self.device.call(&pliant_collectives::all_reduce, comm, values.data(), values.data(), 10,
                                                PLIANT_F32, PLIANT_SUM, stream);
          if (!made.ok()) return made.text();
        }
        if (!self.device.call(&pliant_collectives::barrier, comm, other).ok()) return "barrier";
        if (destroys) {
          comm.destroy();
        } else {
          comm.abort();
          comm.abort();
        }
        for (const Stream* one : {&stream, &other}) {
          const Outcome ended = one->synchronize();
          if (ended.status != PLIANT_ABORTED) return "a stream ended with " + ended.text();
        }
        if (!stream.synchronize().ok()) return "a failure was told twice";
        if (destroys) return "";
        const std::string status = comm.status(0).text();
        if (status != std::to_string(PLIANT_ABORTED) + ": this rank aborted the communicator") return status;
        if (!self.device.call(&pliant_collectives::barrier, comm, stream).ok()) return "a barrier after the abort";
        return stream.synchronize().status == PLIANT_ABORTED ? "" : "a barrier went on after the abort";
      }));
    }
  }
}

namespace {

/// Descriptors and mappings when the communicators before are gone: what a peer may have had open longer goes when the
/// next one is made.
int64_t held_beside_a_lone_communicator(const Device& device) {
  pliant_comm_id id{};
  if (!device.call(&pliant_collectives::comm_id, 1, &id).ok()) throw std::runtime_error("comm_id");
  { const Comm lone(device, id, 0, 1); }
  return open_descriptors() + shared_mappings();
}

std::string rounds_of_communicators(const Rank& self) {
  const Stream stream(self.device);
  const auto once = [&](const pliant_comm_id& id) -> std::string {
    Comm comm(self.device, id, self.rank, self.world_size);
    const std::string fault = run_case<float>(self.device, comm, stream, Kind::kAllReduce, self.rank, 3, 1000);
    return fault.empty() ? goes(comm, Way::kDevices) : fault;
  };
  constexpr uint32_t kRounds = 12;
  Flag& made = self.board.flags[0];
  Flag& read = self.board.flags[1];
  held_beside_a_lone_communicator(self.device);  // what the first one opens stays
  const int64_t before = held_beside_a_lone_communicator(self.device);
  for (uint32_t round = 0; round < kRounds; ++round) {
    // Rank 0 makes an id when all have ended the round before.
    if (self.rank == 0) {
      read.wait(3 * round);
      const Outcome id = self.device.call(&pliant_collectives::comm_id, self.world_size, &self.board.id);
      if (!id.ok()) return id.text();
      made.raise(round + 1);
    }
    made.wait(round + 1);
    const std::string fault = once(pliant_comm_id(self.board.id));
    if (!fault.empty()) return fault;
    read.add();
  }
  read.wait(3 * kRounds);
  // The last thread of a communicator may still be on its way out.
  const int64_t end_us = now_us() + 10000000;
  int64_t after = held_beside_a_lone_communicator(self.device);
  while (after != before && now_us() < end_us) after = held_beside_a_lone_communicator(self.device);
  return after == before ? ""
                         : std::to_string(after) + " descriptors and mappings after " + std::to_string(kRounds) +
                               " communicators, " + std::to_string(before) + " before";
}

}  // namespace

TEST_CASE("communicators of device memory leave no descriptor, mapping or thread behind") {
  for (const Setup& setup : every_setup()) {
    if (setup.way != Way::kDevices) continue;
    INFO(setup.name);
    expect_all_well(ends_of(setup, 3, rounds_of_communicators));
  }
}

TEST_CASE("ranks whose calls differ are told so, also through generic collectives") {
  for (const Setup& setup : every_setup()) {
    INFO(setup.name);
    const std::vector<RankEnd> ends = ends_of(setup, 2, [](const Rank& self) {
      Comm comm(self.device, self.id(), self.rank, self.world_size);
      const Stream stream(self.device);
      std::vector<float> values(10);
      self.device.call(&pliant_collectives::all_reduce, comm, values.data(), values.data(), self.rank + 5, PLIANT_F32,
                       PLIANT_SUM, stream);
      return stream.synchronize().text();
    });
    for (const RankEnd& end : ends) {
      INFO(end.text);
      CHECK(starts_with(end.text, std::to_string(PLIANT_INVALID_ARGUMENT) + ": "));
    }
  }
}

#ifdef PLIANT_SOFT_LEVEL_ZERO
namespace {

/// Device memory, which the processors of the software driver may not touch.
std::string sum_on_devices(const Rank& self) {
  use_software_driver();
  Comm comm(self.device, self.id(), self.rank, self.world_size);
  const Stream stream(self.device);
  constexpr uint64_t kCount = 50021;
  constexpr uint64_t kBytes = kCount * sizeof(float);
  void* memory = nullptr;
  const Outcome made = self.device.call(&pliant_accelerator::alloc, 0, PLIANT_MEMORY_DEVICE, kBytes, &memory);
  if (!made.ok()) return made.text();
  std::vector<float> values(kCount);
  for (uint64_t i = 0; i < kCount; ++i) values[i] = input<float>(self.rank, i);
  using A = pliant_accelerator;
  Outcome outcome;
  const auto keep = [&outcome](const Outcome& one) {
    if (outcome.ok()) outcome = one;
  };
  keep(self.device.call(&A::copy_async, memory, values.data(), kBytes, stream));
  keep(self.device.call(&pliant_collectives::all_reduce, comm, memory, memory, kCount, PLIANT_F32, PLIANT_SUM, stream));
  keep(self.device.call(&A::copy_async, values.data(), memory, kBytes, stream));
  keep(stream.synchronize());
  self.device.slots().free(self.device.self(), 0, PLIANT_MEMORY_DEVICE, memory);
  if (!outcome.ok()) return outcome.text();
  for (uint64_t i = 0; i < kCount; ++i) {
    const float wanted = reduced<float>(self.world_size, PLIANT_SUM, i);
    if (std::memcmp(&values[i], &wanted, sizeof(float)) != 0) return "element " + std::to_string(i) + " is wrong";
  }
  return software_driver_counts().first_violation;
}

}  // namespace

TEST_CASE("Level Zero sums what lies in device memory, which the CPU cannot touch, in each way") {
  for (const Setup& setup : every_setup()) {
    if (setup.options != kLevelZero) continue;
    for (const int32_t world_size : {1, 3}) {
      INFO(setup.name, ", world size ", world_size);
      expect_all_well(ends_of(setup, world_size, sum_on_devices));
    }
  }
}
#endif
