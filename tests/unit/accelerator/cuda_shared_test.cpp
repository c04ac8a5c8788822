// Which collectives serve the ranks of the accelerator cuda: NCCL's where each has a device, the generic ones where
// some share one; on the software runtime and NCCL. As the embedding API finds them.
#include <array>
#include <chrono>
#include <functional>
#include <future>
#include <latch>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "collectives/generic_collectives.hpp"
#include "collectives/peers/called.hpp"
#include "config/instances.hpp"
#include "cuda_device.hpp"
#include "pliant/communicator.hpp"
#include "pliant/config.hpp"
#include "pliant/error.hpp"
#include "pliant/sdk/collectives.hpp"
#include "ranks.hpp"

using namespace pliant_test;

namespace {

using A = pliant_accelerator;
using C = pliant_collectives;
using Generic = pliant::collectives::GenericCollectives;
using Way = Generic::Way;

pliant::Config config_of(const std::string& accelerator) {
  const pliant::ConfigNeeds needs{"accelerator"};
  pliant::ConfigOverrides overrides;
  overrides.read_environment = false;
  overrides.plugin_dirs = {PLIANT_PLUGIN_DIR, PLIANT_TESTKIT_PLUGIN_DIR};
  return pliant::Config::parse("config_version = 1\n[accelerator]\n" + accelerator, needs, overrides);
}
pliant::plugin::Instance instance_of(const std::string& accelerator) {
  return pliant::or_throw(pliant::config::instantiate(config_of(accelerator), "accelerator"));
}

std::string cuda_with(const std::string& nccl, const std::string& collectives = "auto") {
  return "use = \"cuda\"\n[accelerator.cuda]\ncollectives = \"" + collectives + "\"\nnccl = \"" + nccl + "\"\n";
}

pliant::sdk::Calls<C> own_of(const pliant::plugin::Instance& device) {
  const pliant::sdk::Calls<C> own = pliant::collectives::Called(device).collectives;
  return own.has(&C::device_key) ? own : pliant::sdk::Calls<C>{};
}

struct Instances {
  explicit Instances(const std::string& accelerator)
      : device(instance_of(accelerator)), generic{{device, instance_of("use = \"host\"\n"), own_of(device)}} {}
  pliant::plugin::Instance device;
  pliant::sdk::detail::Plain<Generic> generic;
};

/// As core puts an accelerator and its collectives together.
class Joint : private Instances, public Device {
 public:
  explicit Joint(const std::string& accelerator)
      : Instances(accelerator),
        Device(Instances::device.plugin().record(), Instances::device.self(), {Generic::table(), &generic}) {}
  [[nodiscard]] Outcome synchronize(pliant_stream* stream) const override {
    Outcome outcome = Device::synchronize(stream);
    try {
      const_cast<Generic&>(generic.plugin).throw_failure(stream, outcome.status);
    } catch (const pliant::sdk::Failure& failure) {
      return pliant::sdk::Answer{failure.status(), failure.what(), failure.options(), failure.rank(), failure.device()};
    }
    return outcome;
  }
};

/// A communicator on any device.
class JointComm {
 public:
  JointComm(const Device& device, const pliant_comm_id& id, int32_t on, int32_t rank, int32_t world_size)
      : handle_(device.collective_calls()) {
    const Outcome made = device.call(&C::comm_create, on, &id, rank, world_size, handle_.out());
    if (!made.ok()) throw std::runtime_error(made.text());
  }
  operator pliant_comm*() const { return handle_; }
  [[nodiscard]] pliant_comm* handle() const { return handle_; }
  /// After a collective.
  [[nodiscard]] Way way() const { return Generic::way(*reinterpret_cast<Generic::Comm*>(handle_.get())); }

 private:
  pliant::sdk::OwnedComm handle_;
};

/// Each rank adds rank + 1 in device memory and gathers all ranks in one group; "" when both are right.
std::string sums(const Rank& self, pliant_comm* comm, const Stream& stream, int32_t on) {
  void* memory = nullptr;
  const auto ranks = static_cast<uint64_t>(self.world_size);
  const uint64_t bytes = (2 + ranks) * sizeof(int32_t);
  Outcome outcome = self.device.call(&A::alloc, on, PLIANT_MEMORY_DEVICE, bytes, &memory);
  if (!outcome.ok()) return outcome.text();
  auto* const words = static_cast<int32_t*>(memory);
  std::vector<int32_t> values(2 + ranks, self.rank + 1);
  const auto keep = [&outcome](const Outcome& one) {
    if (outcome.ok()) outcome = one;
  };
  keep(self.device.call(&A::copy_async, memory, values.data(), bytes, stream));
  keep(self.device.call(&C::all_reduce, comm, words, words + 1, 1, PLIANT_I32, PLIANT_SUM, stream));
  keep(self.device.call(&C::group_begin, comm));
  keep(self.device.call(&C::all_gather, comm, words, words + 2, 1, PLIANT_I32, stream));
  keep(self.device.call(&C::group_end, comm));
  keep(self.device.call(&C::barrier, comm, stream));
  keep(self.device.call(&A::copy_async, values.data(), memory, bytes, stream));
  keep(stream.synchronize());
  self.device.slots().free(self.device.self(), on, PLIANT_MEMORY_DEVICE, memory);
  if (!outcome.ok()) return outcome.text();
  if (values[1] != self.world_size * (self.world_size + 1) / 2) return "the sum is " + std::to_string(values[1]);
  for (int32_t r = 0; r < self.world_size; ++r) {
    if (values[2 + static_cast<size_t>(r)] != r + 1) return "what was gathered is not in rank order";
  }
  return "";
}

/// Twice: calls before the ranks have agreed, and after.
std::string exchange(const Rank& self, int32_t on, Way way) {
  const JointComm comm(self.device, self.id(), on, self.rank, self.world_size);
  const Stream stream(self.device, PLIANT_STREAM_COMPUTE, on);
  std::string fault = sums(self, comm, stream, on);
  const Outcome ready = self.device.call(&C::comm_status, comm.handle(), -1);
  if (fault.empty() && !ready.ok()) fault = ready.text();
  if (fault.empty()) fault = sums(self, comm, stream, on);
  if (fault.empty() && comm.way() != way)
    fault = "they exchange in way " + std::to_string(static_cast<int>(comm.way()));
  return fault.empty() ? software_cuda_counts().first_violation : fault;
}

void expect(
    int32_t ranks, int32_t devices, Way way,
    const std::function<std::string(int32_t rank)>& options = [](int32_t) { return cuda_with(PLIANT_SOFT_NCCL); }) {
  const Setting many("PLIANT_SOFT_CUDA_DEVICES", std::to_string(devices));
  use_software_cuda();
  Processes processes(
      ranks, [&](const Rank& self) { return exchange(self, self.rank % devices, way); },
      [&](int32_t rank) { return std::make_unique<Joint>(options(rank)); });
  const std::vector<RankEnd> ends = processes.ends();
  for (size_t r = 0; r < ends.size(); ++r) {
    INFO("rank ", r);
    CHECK(ends[r].text == "");
  }
}

}  // namespace

TEST_CASE("ranks that have a device each exchange through NCCL") {
  expect(3, 3, Way::kNative);
  expect(1, 1, Way::kNative);
}

TEST_CASE("ranks of which two share a device exchange from device to device, all of them") {
  expect(2, 1, Way::kPeer);
  expect(4, 1, Way::kPeer);
  expect(3, 2, Way::kPeer);
}

TEST_CASE("ranks that share a device whose memory does not pass between processes go through pinned memory") {
  const Setting none("PLIANT_SOFT_CUDA_NO_IPC", "1");
  expect(2, 1, Way::kStaged);
}

TEST_CASE("ranks on devices that do not reach each other go through pinned memory without NCCL") {
  const Setting none("PLIANT_SOFT_CUDA_NO_PEERS", "1");
  expect(2, 2, Way::kStaged, [](int32_t) { return cuda_with(PLIANT_SOFT_NCCL, "generic"); });
}

TEST_CASE("ranks of which one has no NCCL exchange without it, all of them") {
  expect(3, 3, Way::kPeer,
         [](int32_t rank) { return cuda_with(rank == 1 ? "libnccl_that_is_not_there.so.2" : PLIANT_SOFT_NCCL); });
}

TEST_CASE(
    "a rank frees no memory that a peer reads late, and does not wait for ever for one that keeps its communicator") {
  use_software_cuda();
  for (const bool keeps : {false, true}) {
    CAPTURE(keeps);
    Processes processes(2, [keeps](const Rank& self) -> std::string {
      std::string fault;
      {
        const Joint device(cuda_with(PLIANT_SOFT_NCCL, "generic"));
        const Rank own{self.rank, self.world_size, self.board, device};
        {
          const JointComm comm(device, own.id(), 0, own.rank, own.world_size);
          const Stream stream(device, PLIANT_STREAM_COMPUTE, 0);
          fault = sums(own, comm, stream, 0);
          if (own.rank == 1) self.board.flags[keeps ? 1 : 0].wait();
          if (own.rank == 1 && !keeps) std::this_thread::sleep_for(std::chrono::milliseconds(50));  // how late it is
        }
        self.board.flags[0].raise();
      }
      self.board.flags[1].raise();
      const std::string violation = software_cuda_counts().first_violation;
      return !fault.empty() || (keeps && self.rank == 0) ? fault : violation;
    });
    expect_all_well(processes);
  }
}

TEST_CASE("abort ends the waits of ranks that have agreed on NCCL, and of those that still ask") {
  const Setting many("PLIANT_SOFT_CUDA_DEVICES", "2");
  use_software_cuda();
  Processes processes(
      2,
      [](const Rank& self) -> std::string {
        const JointComm comm(self.device, self.id(), self.rank, self.rank, 2);
        const Stream stream(self.device, PLIANT_STREAM_COMPUTE, self.rank);
        const std::string fault = sums(self, comm, stream, self.rank);
        if (self.rank == 1) {
          self.board.flags[1].raise();
          self.board.flags[0].wait();
          return fault;
        }
        self.board.flags[1].wait();  // the sums of both have ended
        if (!fault.empty()) self.board.flags[0].raise();
        if (!fault.empty()) return fault;
        if (!self.device.call(&C::barrier, comm.handle(), stream).ok()) return "barrier";
        self.device.collective_calls()->comm_abort(self.device.collective_calls().self(), comm);
        const Outcome ended = stream.synchronize();
        pliant_comm_id id{};
        if (!self.device.call(&C::comm_id, 2, &id).ok()) return "comm_id";
        const JointComm alone(self.device, id, 0, 0, 2);
        if (!self.device.call(&C::barrier, alone.handle(), stream).ok()) return "barrier";
        const Outcome early = self.device.call(&C::comm_status, alone.handle(), 0);
        self.device.collective_calls()->comm_abort(self.device.collective_calls().self(), alone);
        const Outcome asked = stream.synchronize();
        self.board.flags[0].raise();
        if (early.status != PLIANT_DEADLINE_EXCEEDED) return "early: " + early.text();
        for (const Outcome& one : {ended, asked}) {
          if (one.status != PLIANT_ABORTED) return one.text();
        }
        return "";
      },
      [&](int32_t) { return std::make_unique<Joint>(cuda_with(PLIANT_SOFT_NCCL)); });
  for (const RankEnd& end : processes.ends()) CHECK(end.text == "");
}

TEST_CASE("kill -9 of a rank, or its abort, ends what others wait for in an NCCL that does not notice, by number") {
  const Setting many("PLIANT_SOFT_CUDA_DEVICES", "3");
  const Setting deaf("PLIANT_SOFT_NCCL_DEAF", "1");
  use_software_cuda();
  for (const bool dies : {true, false}) {
    for (const bool at_first : {true, false}) {  // before the ranks know that they take NCCL
      INFO(std::string(dies ? "dies" : "aborts"), at_first);
      Processes processes(
          3,
          [=](const Rank& self) -> std::string {
            const JointComm comm(self.device, self.id(), self.rank, self.rank, 3);
            const Stream stream(self.device, PLIANT_STREAM_COMPUTE, self.rank);
            const Outcome ready = at_first ? Outcome{} : self.device.call(&C::comm_status, comm.handle(), -1);
            if (!ready.ok()) return "not ready: " + ready.text();
            if (self.rank == 1) {
              self.board.flags[2].raise();  // it has joined: who never comes is not missed
              self.board.flags[0].wait(2);
              if (dies) self.board.flags[7].wait();  // never raised: killed here
              self.device.collective_calls()->comm_abort(self.device.collective_calls().self(), comm);
              self.board.flags[1].wait(2);
              return "";
            }
            if (!self.device.call(&C::barrier, comm.handle(), stream).ok()) return "barrier";
            self.board.flags[0].add();
            const std::string on_stream = stream.synchronize().text();
            const std::string of_comm = self.device.call(&C::comm_status, comm.handle(), -1).text();
            self.board.flags[1].add();
            return on_stream == of_comm ? on_stream : on_stream + ", but " + of_comm;
          },
          [&](int32_t) { return std::make_unique<Joint>(cuda_with(PLIANT_SOFT_NCCL)); });
      processes.board().flags[0].wait(2);
      processes.board().flags[2].wait();
      if (dies) processes.kill(1);
      for (const int32_t survivor : {0, 2}) {
        const std::string text = processes.end_of(survivor).text;
        INFO(text);
        CHECK(starts_with(text, dies ? with_status(PLIANT_PEER_LOST, "rank 1 is lost: its process (pid ")
                                     : with_status(PLIANT_ABORTED, "rank 1 aborted the communicator")));
        CHECK(text.find(", but ") == std::string::npos);
      }
      CHECK(processes.end_of(1).killed() == dies);
    }
  }
}

TEST_CASE("a rank that destroys its communicator is missed by those whose calls need it, and by nobody else") {
  const Setting many("PLIANT_SOFT_CUDA_DEVICES", "3");
  const Setting deaf("PLIANT_SOFT_NCCL_DEAF", "1");
  use_software_cuda();
  for (const char* needs :
       {"a collective", "a message from it", "a message to it", "a collective that it began", "its word"}) {
    INFO(needs);
    const std::string call = needs;
    Processes processes(
        3,
        [=](const Rank& self) -> std::string {
          auto comm = std::make_unique<JointComm>(self.device, self.id(), self.rank, self.rank, 3);
          const Stream stream(self.device, PLIANT_STREAM_COMPUTE, self.rank);
          void* at = nullptr;
          if (!self.device.call(&A::alloc, self.rank, PLIANT_MEMORY_DEVICE, uint64_t{4}, &at).ok()) return "alloc";
          const auto message = [&](int32_t from, int32_t to) {
            if (self.rank == from) {
              return self.device.call(&C::send, comm->handle(), static_cast<const void*>(at), uint64_t{1}, PLIANT_I32,
                                      to, stream);
            }
            return self.device.call(&C::recv, comm->handle(), at, uint64_t{1}, PLIANT_I32, from, stream);
          };
          if (!self.device.call(&C::barrier, comm->handle(), stream).ok()) return "barrier";
          if (self.rank == 1) {  // its last message is as good as any
            if (const Outcome sent = message(1, 0); !sent.ok()) return sent.text();
            if (const Outcome ended = stream.synchronize(); !ended.ok()) return ended.text();
            self.board.flags[2].wait(2);
            if (call == "a collective that it began") self.device.call(&C::barrier, comm->handle(), stream);
            if (call == "its word")
              self.device.collective_calls()->comm_abort(self.device.collective_calls().self(), *comm);
            comm.reset();
            self.board.flags[0].raise();
            self.board.flags[1].wait(2);  // alive until the others have seen it
            return "";
          }
          if (self.rank == 0) {
            if (const Outcome received = message(1, 0); !received.ok()) return received.text();
          }
          if (const Outcome ended = stream.synchronize(); !ended.ok()) return "before: " + ended.text();
          self.board.flags[2].add();
          self.board.flags[0].wait();
          if (call != "a collective that it began" && call != "its word") {  // which nobody can go on after
            const Outcome enqueued = message(0, 2);
            const Outcome passed = enqueued.ok() ? stream.synchronize() : enqueued;
            if (!passed.ok()) return "after: " + passed.text();
            self.board.flags[3].add();
            self.board.flags[3].wait(2);
          }
          const Outcome enqueued = call == "a message from it" ? message(1, self.rank)
                                   : call == "a message to it" ? message(self.rank, 1)
                                                               : self.device.call(&C::barrier, comm->handle(), stream);
          const Outcome ended = enqueued.ok() ? stream.synchronize() : enqueued;
          self.board.flags[1].add();
          return ended.text();
        },
        [&](int32_t) { return std::make_unique<Joint>(cuda_with(PLIANT_SOFT_NCCL)); });
    const std::vector<RankEnd> ends = processes.ends();
    CHECK(ends[1].text == "");
    for (const size_t other : {size_t{0}, size_t{2}}) {
      INFO(ends[other].text);
      const std::string wanted =
          call == "its word" ? with_status(PLIANT_ABORTED, "rank 1 aborted the communicator")
                             : with_status(PLIANT_PEER_LOST, "rank 1 is lost: it destroyed the communicator while ");
      CHECK(starts_with(ends[other].text, wanted));
    }
  }
}

TEST_CASE("who aborted is told, and not who left because of that") {
  const Setting many("PLIANT_SOFT_CUDA_DEVICES", "3");
  use_software_cuda();
  for (const char* deaf : {"0", "1"}) {
    INFO(deaf);
    const Setting hears("PLIANT_SOFT_NCCL_DEAF", deaf);
    Processes processes(
        3,
        [](const Rank& self) -> std::string {
          auto comm = std::make_unique<JointComm>(self.device, self.id(), self.rank, self.rank, 3);
          const Stream stream(self.device, PLIANT_STREAM_COMPUTE, self.rank);
          const Outcome ready = self.device.call(&C::comm_status, comm->handle(), -1);
          if (!ready.ok()) return "not ready: " + ready.text();
          if (self.rank == 1) {
            self.board.flags[0].wait(2);
            self.device.collective_calls()->comm_abort(self.device.collective_calls().self(), *comm);
            self.board.flags[1].wait();
            self.board.flags[2].wait();
            return "";
          }
          if (!self.device.call(&C::barrier, comm->handle(), stream).ok()) return "barrier";
          self.board.flags[0].add();
          if (self.rank == 2) {
            const std::string text = stream.synchronize().text();
            comm.reset();
            self.board.flags[1].raise();
            self.board.flags[2].wait();
            return text;
          }
          self.board.flags[1].wait();
          const std::string text = self.device.call(&C::comm_status, comm->handle(), -1).text();
          self.board.flags[2].raise();
          return text;
        },
        [&](int32_t) { return std::make_unique<Joint>(cuda_with(PLIANT_SOFT_NCCL)); });
    const std::vector<RankEnd> ends = processes.ends();
    CHECK(ends[0].text == with_status(PLIANT_ABORTED, "rank 1 aborted the communicator"));
    CHECK(ends[1].text == "");
    // NCCL tells of a peer, not of an abort.
    const bool is_told = starts_with(ends[2].text, std::to_string(PLIANT_ABORTED)) ||
                         starts_with(ends[2].text, std::to_string(PLIANT_PEER_LOST));
    INFO(ends[2].text);
    CHECK(is_told);
  }
}

// From here on CUDA is opened in this process, and no rank can be forked from it.
TEST_CASE("ranks that are told to take NCCL do not ask each other, nor do those of several machines") {
  use_software_cuda();
  CHECK(own_of(instance_of(cuda_with(PLIANT_SOFT_NCCL))));
  CHECK_FALSE(own_of(instance_of(cuda_with(PLIANT_SOFT_NCCL, "nccl"))));
  const Setting all("WORLD_SIZE", "8");
  const Setting here("LOCAL_WORLD_SIZE", "4");
  CHECK_FALSE(own_of(instance_of(cuda_with(PLIANT_SOFT_NCCL))));
}

namespace {

/// Ranks that have made a communicator of an older one in this NCCL.
int64_t renewals_of(const char* nccl) {
  void* library = ::dlopen(nccl, RTLD_NOW);
  const auto ask = reinterpret_cast<int64_t (*)()>(::dlsym(library, "pliant_soft_nccl_renewals"));
  if (ask == nullptr) throw std::runtime_error("not the software NCCL");
  return ask();
}

/// The sum of the ranks, counted from 1, in device memory.
int32_t sum_of(const pliant::Accelerator& accelerator, int32_t device, pliant::Communicator& comm) {
  pliant::Stream stream(accelerator, device);
  const pliant::Buffer word(accelerator, device, sizeof(int32_t));
  const int32_t own = comm.rank() + 1;
  int32_t sum = 0;
  stream.copy(word.pointer(), &own, sizeof(own));
  comm.all_reduce(word.pointer(), word.pointer(), 1, pliant::DType::kI32, pliant::ReduceOp::kSum, stream);
  stream.copy(&sum, word.pointer(), sizeof(own));
  stream.synchronize();
  return sum;
}

void on_threads(int32_t count, const std::function<void(int32_t)>& body) {
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < count; ++rank) threads.emplace_back([&body, rank] { body(rank); });
  for (std::thread& thread : threads) thread.join();
}

/// An option of the accelerator, the NCCL that it opens, and how many ranks that makes new communicators of old ones
/// for.
struct Renewing {
  const char* collectives;
  const char* nccl;
  int64_t renewals;
};
const std::array<Renewing, 5> kRenewing{{{"nccl", PLIANT_SOFT_NCCL, 2},
                                         {"nccl", PLIANT_SOFT_OLD_NCCL, 0},
                                         {"auto", PLIANT_SOFT_NCCL, 2},
                                         {"auto", PLIANT_SOFT_OLD_NCCL, 0},
                                         {"generic", PLIANT_SOFT_NCCL, 0}}};

}  // namespace

TEST_CASE("a communicator of the embedding API grows from 2 to 4 ranks, by NCCL where that can") {
  const Setting many("PLIANT_SOFT_CUDA_DEVICES", "4");
  use_software_cuda();
  for (const Renewing& one : kRenewing) {
    INFO(one.collectives, " with ", one.nccl);
    const int64_t before_all = renewals_of(one.nccl);
    const pliant::Accelerator accelerator(config_of(cuda_with(one.nccl, one.collectives)));
    const pliant::CommId first = accelerator.make_comm_id(2);
    std::promise<pliant::CommId> next;
    const std::shared_future<pliant::CommId> told = next.get_future().share();
    std::array<int32_t, 4> sums{};
    std::latch joined(2);
    on_threads(4, [&](int32_t rank) {
      std::optional<pliant::Communicator> comm;
      if (rank < 2) {
        pliant::Communicator before(accelerator, rank, first, rank, 2);
        before.wait_ready();
        joined.arrive_and_wait();  // where there is no grow the old one is aborted
        if (rank == 1) next.set_value(before.make_grow_id(4));
        comm = before.grow(told.get(), 4);
      } else {
        comm = pliant::Communicator::join(accelerator, rank, told.get(), rank, 4);
      }
      comm->wait_ready();
      sums[static_cast<size_t>(rank)] = sum_of(accelerator, rank, *comm);
    });
    CHECK(sums == std::array<int32_t, 4>{10, 10, 10, 10});
    CHECK(renewals_of(one.nccl) - before_all == one.renewals);
  }
}

TEST_CASE("survivors shrink a communicator of the embedding API, by NCCL where that can") {
  const Setting many("PLIANT_SOFT_CUDA_DEVICES", "3");
  use_software_cuda();
  for (const Renewing& one : kRenewing) {
    INFO(one.collectives, " with ", one.nccl);
    const int64_t before_all = renewals_of(one.nccl);
    const pliant::Accelerator accelerator(config_of(cuda_with(one.nccl, one.collectives)));
    const pliant::CommId first = accelerator.make_comm_id(3);
    const pliant::CommId next = accelerator.make_comm_id(2);
    std::array<int32_t, 3> sums{};
    std::latch summed(3);
    on_threads(3, [&](int32_t rank) {
      pliant::Communicator before(accelerator, rank, first, rank, 3);
      before.wait_ready();
      CHECK(sum_of(accelerator, rank, before) == 6);
      summed.arrive_and_wait();
      if (rank == 1) return;
      const std::array<int32_t, 1> without{1};
      pliant::Communicator comm = before.shrink(without, next);
      comm.wait_ready();
      sums[static_cast<size_t>(rank)] = sum_of(accelerator, rank, comm);
    });
    CHECK(sums == std::array<int32_t, 3>{3, 0, 3});
    CHECK(renewals_of(one.nccl) - before_all == one.renewals);
  }
}
