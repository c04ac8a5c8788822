// Messages of one rank whose contents only they have, made and checked.
#pragma once

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "ranks.hpp"

namespace pliant_test {

/// Calls of one rank, made and checked.
class Calls {
 public:
  Calls(const Rank& self, pliant_comm* comm, const Stream& stream) : self_(self), comm_(comm), stream_(stream) {}
  void begin() { note(self_.device.call(&pliant_collectives::group_begin, comm_)); }
  void end() { note(self_.device.call(&pliant_collectives::group_end, comm_)); }
  /// Message `tag` from `from` to `to` has contents that only it has.
  void send(int32_t to, uint64_t tag, uint64_t count) {
    kept_.push_back(contents(self_.rank, to, tag, count));
    note(self_.device.call(&pliant_collectives::send, comm_, kept_.back().data(), count, PLIANT_I64, to, stream_));
  }
  void recv(int32_t from, uint64_t tag, uint64_t count) {
    wanted_.push_back(contents(from, self_.rank, tag, count));
    got_.emplace_back(count + 1, int64_t{-7});
    note(self_.device.call(&pliant_collectives::recv, comm_, got_.back().data(), count, PLIANT_I64, from, stream_));
  }
  std::string finish() {
    note(stream_.synchronize());
    for (size_t i = 0; i < got_.size() && fault_.empty(); ++i) {
      wanted_[i].push_back(-7);
      if (got_[i] != wanted_[i]) fault_ = "message " + std::to_string(i) + " is not what was sent";
    }
    return fault_;
  }

 private:
  static std::vector<int64_t> contents(int32_t from, int32_t to, uint64_t tag, uint64_t count) {
    std::vector<int64_t> made(count);
    std::iota(made.begin(), made.end(), ((int64_t{from} * 64 + to) * 1000 + static_cast<int64_t>(tag)) * 10000000);
    return made;
  }
  void note(const Outcome& outcome) {
    if (fault_.empty() && !outcome.ok()) fault_ = outcome.text();
  }
  const Rank& self_;
  pliant_comm* comm_;
  const Stream& stream_;
  std::vector<std::vector<int64_t>> kept_;
  std::vector<std::vector<int64_t>> wanted_;
  std::vector<std::vector<int64_t>> got_;
  std::string fault_;
};

}  // namespace pliant_test
