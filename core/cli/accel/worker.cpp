// Answers the questions of a benchmark: opens the device, joins the other ranks, times.
#include "accel/worker.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "pliant/error.hpp"

namespace pliant::cli {

namespace {

using Json = Worker::Json;

BenchWork work_in(const Json& json) {
  return {json.at("section").get<std::string>(),
          json.at("name").get<std::string>(),
          json.at("sources").get<int32_t>(),
          static_cast<DType>(json.at("from").get<int32_t>()),
          static_cast<DType>(json.at("to").get<int32_t>()),
          json.at("windows").get<bool>(),
          json.at("spent_ns").get<uint64_t>()};
}

}  // namespace

Json json_of(const BenchWork& what) {
  return {{"section", what.section},
          {"name", what.name},
          {"sources", what.sources},
          {"from", static_cast<int32_t>(what.from)},
          {"to", static_cast<int32_t>(what.to)},
          {"windows", what.windows},
          {"spent_ns", what.spent_ns}};
}

Bench::Bench(const Accelerator& accelerator, int32_t device)
    : accelerator_(accelerator), device_(device), stream_(accelerator, device), other_stream_(accelerator, device) {}

void* Bench::memory(MemoryKind kind, size_t index, uint64_t bytes) {
  Buffer& buffer = buffers_[{kind, index}];
  if (buffer.bytes() < bytes || buffer.pointer() == nullptr) {
    buffer = Buffer();  // before the new one: two might not fit
    buffer = Buffer(accelerator_, device_, bytes, kind);
    if (kind == MemoryKind::kPinned) {
      std::memset(buffer.pointer(), kFill, bytes);
    } else {
      stream_.fill(buffer.pointer(), kFill, bytes);
      stream_.synchronize();
    }
  }
  return buffer.pointer();
}

void Bench::read_back(void* to, const void* buffer, uint64_t size, uint64_t bytes) {
  stream_.copy(to, static_cast<const std::byte*>(buffer) + size - bytes, bytes);
  stream_.synchronize();
}

Json Worker::answer(const Json& question) {
  const auto wanted = question.at("do").get<std::string>();
  if (wanted == "open") return open(question);
  if (wanted == "join") return join(question);
  if (wanted == "time") return time(question);
  const CommId id = bench_->accelerator().make_comm_id(ranks_);
  return {{"id", std::vector<int>(id.begin(), id.end())}};
}

Json Worker::open(const Json& question) {
  const Accelerator accelerator(config_);
  const int32_t devices = accelerator.device_count();
  const auto device = question.at("device").get<int32_t>();
  Json seen{{"devices", devices}};
  if (devices < 1) {
    seen["missing"] = accelerator.why_no_devices();
    return seen;
  }
  if (device >= devices) return seen;  // the asker complains
  const DeviceSeen properties = see_device(accelerator, device);
  seen["name"] = properties.name;
  seen["memory_bytes"] = properties.memory_bytes;
  seen["host_visible"] = properties.host_visible;
  seen["fixed_order"] = properties.fixed_order;
  seen["shared_memory"] = properties.shared_memory;
  seen["exchange_memory"] = properties.exchange_memory;
  seen["window_memory"] = properties.window_memory;
  seen["native_collectives"] = properties.native_collectives;
  seen["collectives"] = properties.collectives;
  seen["version"] = version_of(accelerator);
  // Ranks take the devices in turn, from the one named on.
  bench_ = std::make_unique<Bench>(accelerator, (device + rank_) % devices);
  return seen;
}

Json Worker::join(const Json& question) {
  const auto bytes = question.at("id").get<std::vector<int>>();
  CommId id{};
  for (size_t i = 0; i < id.size(); ++i) id[i] = static_cast<uint8_t>(bytes.at(i));
  Communicator comm(bench_->accelerator(), bench_->device(), id, rank_, ranks_);
  comm.wait_ready();
  std::vector<Buffer> windows;
  const auto window_bytes = question.at("window_bytes").get<uint64_t>();
  for (int i = 0; i < 2 && window_bytes != 0; ++i) {
    const Buffer& made =
        windows.emplace_back(bench_->accelerator(), bench_->device(), window_bytes, MemoryKind::kWindow);
    bench_->stream().fill(made.pointer(), Bench::kFill, window_bytes);
    comm.register_window(made.pointer(), window_bytes, bench_->stream());
  }
  bench_->stream().synchronize();
  team_.emplace(Team{std::move(windows), std::move(comm), rank_, ranks_});
  return Json::object();
}

void Worker::begin_together() {
  team_->comm.barrier(bench_->stream());
  bench_->stream().synchronize();
}

Json Worker::time(const Json& question) {
  using Steady = std::chrono::steady_clock;
  const BenchWork what = work_in(question.at("what"));
  const auto bytes = question.at("bytes").get<uint64_t>();
  const auto repetitions = question.at("repetitions").get<int64_t>();
  const Work work = !team_ ? work_alone(*bench_, what, bytes)
                    : what.section == "overlap"
                        ? work_beside(*bench_, *team_, what, bytes)
                        : work_together(*bench_, *team_, what, bytes, question.at("calls").get<int64_t>());
  const auto ns = [](Steady::duration time) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
  };
  std::vector<int64_t> begins_ns;
  std::vector<int64_t> times_ns;
  for (int64_t i = -question.at("warm").get<int64_t>(); i < repetitions; ++i) {
    if (team_) begin_together();
    const auto begin = Steady::now();
    work.run();
    const auto end = Steady::now();
    if (work.settle) work.settle();
    if (i < 0) continue;
    begins_ns.push_back(ns(begin.time_since_epoch()));
    times_ns.push_back(work.seconds ? std::llround(work.seconds() * 1e9) : ns(end - begin));
  }
  if (work.check) work.check();
  return {{"bytes", work.bytes},
          {"moved", work.moved},
          {"calls", work.calls},
          {"begins_ns", begins_ns},
          {"times_ns", times_ns}};
}

}  // namespace pliant::cli
