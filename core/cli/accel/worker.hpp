// Worker: what one process of a benchmark does. The questions are those of study.cpp.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "accel/link.hpp"

namespace pliant::cli {

/// Something to time.
struct Work {
  std::function<void()> run;     ///< what is timed
  std::function<void()> settle;  ///< after every run, not timed; may be empty
  std::function<void()> check;   ///< at the end; throws Error when the result is wrong; may be empty
  uint64_t bytes = 0;            ///< the size that was possible: the wanted one in whole elements
  uint64_t moved = 0;            ///< bytes that count for bandwidth; 0: it has none
  int64_t calls = 1;             ///< calls that one run makes
};

/// A device, two streams and buffers that grow with the sizes asked for.
class Bench {
 public:
  Bench(Link link, int32_t device);

  [[nodiscard]] const Link& link() const { return link_; }
  [[nodiscard]] int32_t device() const { return device_; }
  [[nodiscard]] const Owned<pliant_stream>& stream() const { return streams_[0]; }
  [[nodiscard]] const Owned<pliant_stream>& other_stream() const { return streams_[1]; }
  /// Memory number `index` of `kind` with at least `bytes`, all of them kFill since it was made.
  void* memory(int32_t kind, size_t index, uint64_t bytes);
  void synchronize() const { link_.synchronize(stream()); }
  /// Enqueues a copy.
  void copy(void* to, const void* from, uint64_t bytes, const Owned<pliant_stream>& stream) const;
  /// The last `bytes` of what a device buffer holds in its first `size` bytes.
  void read_back(void* to, const void* buffer, uint64_t size, uint64_t bytes) const;

  /// As float: the value of every element that was not computed.
  static constexpr int32_t kFill = 0x3f;

 private:
  Link link_;
  int32_t device_;
  Owned<pliant_stream> streams_[2];
  std::map<std::pair<int32_t, size_t>, Memory> memories_;
};

/// The ranks of a communicator, as one of them sees it.
struct Team {
  Owned<pliant_comm> comm;
  int32_t rank = 0;
  int32_t ranks = 1;
};

/// What sections copy, latency, alloc and reduce are made of. Throws Error for an unknown `what`.
Work work_alone(Bench& bench, const std::string& what, uint64_t bytes);
/// Of section collectives: a collective `calls` times in a row, or "memory_copy", which is its limit.
Work work_together(Bench& bench, const Team& team, const std::string& what, uint64_t bytes, int64_t calls);

class Worker {
 public:
  using Json = nlohmann::ordered_json;
  Worker(Config config, int32_t rank, int32_t ranks) : config_(std::move(config)), rank_(rank), ranks_(ranks) {}
  Json answer(const Json& question);

 private:
  Json open(const Json& question);
  Json join(const Json& question);
  Json time(const Json& question);
  void begin_together();

  const Config config_;
  const int32_t rank_;
  const int32_t ranks_;
  std::unique_ptr<Bench> bench_;
  std::optional<Team> team_;
};

}  // namespace pliant::cli
