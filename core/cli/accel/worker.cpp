// Answers the questions of a benchmark: opens the device, joins the other ranks, times.
#include "accel/worker.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "pliant/error.hpp"

namespace pliant::cli {

using Json = Worker::Json;

Bench::Bench(Link link, int32_t device)
    : link_(std::move(link)), device_(device), streams_{link_.make_stream(device), link_.make_stream(device)} {}

void* Bench::memory(int32_t kind, size_t index, uint64_t bytes) {
  Memory& memory = memories_[{kind, index}];
  if (memory.bytes() < bytes || memory.pointer() == nullptr) {
    memory = Memory();  // before the new one: two might not fit
    memory = Memory(link_, device_, kind, bytes);
    if (kind == PLIANT_MEMORY_PINNED) {
      std::memset(memory.pointer(), kFill, bytes);
    } else {
      link_.call(&pliant_accelerator::fill_async, memory.pointer(), kFill, bytes, stream().get());
      synchronize();
    }
  }
  return memory.pointer();
}

void Bench::copy(void* to, const void* from, uint64_t bytes, const Owned<pliant_stream>& stream) const {
  link_.call(&pliant_accelerator::copy_async, to, from, bytes, stream.get());
}

void Bench::read_back(void* to, const void* buffer, uint64_t size, uint64_t bytes) const {
  copy(to, static_cast<const std::byte*>(buffer) + size - bytes, bytes, stream());
  synchronize();
}

Json Worker::answer(const Json& question) {
  const auto wanted = question.at("do").get<std::string>();
  if (wanted == "open") return open(question);
  if (wanted == "join") return join(question);
  if (wanted == "time") return time(question);
  pliant_comm_id id{};
  bench_->link().call(&pliant_collectives::comm_id, ranks_, &id);
  return {{"id", std::vector<int>(std::begin(id.bytes), std::end(id.bytes))}};
}

Json Worker::open(const Json& question) {
  Link link(config_);
  const int32_t devices = link.device_count();
  const auto device = question.at("device").get<int32_t>();
  Json seen{{"devices", devices}};
  if (devices < 1) {
    seen["missing"] = link.why_no_devices();
    return seen;
  }
  if (device >= devices) return seen;  // the asker complains
  const DeviceSeen properties = link.device(device);
  seen["name"] = properties.name;
  seen["memory_bytes"] = properties.memory_bytes;
  seen["host_visible"] = properties.host_visible;
  seen["fixed_order"] = properties.fixed_order;
  seen["shared_memory"] = properties.shared_memory;
  seen["exchange_memory"] = properties.exchange_memory;
  seen["own_collectives"] = properties.own_collectives;
  seen["collectives"] = properties.collectives;
  seen["version"] = link.plugin().record().version;
  // Ranks take the devices in turn, from the one named on.
  bench_ = std::make_unique<Bench>(std::move(link), (device + rank_) % devices);
  return seen;
}

Json Worker::join(const Json& question) {
  const auto bytes = question.at("id").get<std::vector<int>>();
  pliant_comm_id id{};
  for (size_t i = 0; i < bytes.size(); ++i) id.bytes[i] = static_cast<uint8_t>(bytes[i]);
  team_.emplace(Team{bench_->link().join(bench_->device(), id, rank_, ranks_), rank_, ranks_});
  return Json::object();
}

void Worker::begin_together() {
  bench_->link().call(&pliant_collectives::barrier, team_->comm.get(), bench_->stream().get());
  bench_->synchronize();
}

Json Worker::time(const Json& question) {
  using Clock = std::chrono::steady_clock;
  const auto what = question.at("what").get<std::string>();
  const auto bytes = question.at("bytes").get<uint64_t>();
  const auto repetitions = question.at("repetitions").get<int64_t>();
  const Work work = team_ ? work_together(*bench_, *team_, what, bytes, question.at("calls").get<int64_t>())
                          : work_alone(*bench_, what, bytes);
  const auto ns = [](Clock::duration time) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
  };
  std::vector<int64_t> begins_ns;
  std::vector<int64_t> times_ns;
  for (int64_t i = -question.at("warm").get<int64_t>(); i < repetitions; ++i) {
    if (team_) begin_together();
    const auto begin = Clock::now();
    work.run();
    const auto end = Clock::now();
    if (work.settle) work.settle();
    if (i < 0) continue;
    begins_ns.push_back(ns(begin.time_since_epoch()));
    times_ns.push_back(ns(end - begin));
  }
  if (work.check) work.check();
  return {{"bytes", work.bytes},
          {"moved", work.moved},
          {"calls", work.calls},
          {"begins_ns", begins_ns},
          {"times_ns", times_ns}};
}

}  // namespace pliant::cli
