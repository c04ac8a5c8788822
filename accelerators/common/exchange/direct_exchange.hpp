// Collectives of buffers that all ranks can read: nothing goes through slots.
#pragma once

#include <memory>

#include "common/exchange/exchange.hpp"
#include "common/exchange/windows.hpp"

namespace pliant::accelerator {

/// Where the buffers of one rank lie in windows; each 0 where it lies in none, else Windows::Place::packed.
struct Places {
  uint64_t common = 0;  ///< of what has the elements of all ranks, or all elements: the same on every rank
  uint64_t source = 0;  ///< of what the others read
  static Places of(const Call& call, const Windows& windows, int32_t rank, int32_t ranks);
};

/// One tick: all ranks come, each takes its result from the memory of all, and all are done. Nothing has happened when
/// it turns out that the source of some rank lies in no window.
class DirectExchange : public Exchange {
 public:
  DirectExchange(const Call& call, const Windows& windows, Group& group, uint64_t first_tick)
      : Exchange(call, group, first_tick), group_(group), windows_(windows), first_(first_tick) {}
  /// NULL: the call is not of this kind, or too small for it to pay. The same on every rank, if their calls are.
  static std::unique_ptr<DirectExchange> of(const Call& call, const Places& places, const Windows& windows,
                                            Group& group, uint64_t first_tick);

  [[nodiscard]] uint64_t ticks() const final { return 1; }
  void post(uint64_t) final {}
  void reduce(uint64_t tick) final;
  void take(uint64_t tick) final;
  /// After take: whether all lie in windows.
  [[nodiscard]] bool has_happened() const { return all_there_; }
  /// The others read what is this rank's until they have their results.
  [[nodiscard]] bool leaves_together() const final { return all_there_; }

 protected:
  /// Before what all take, where exchanges reduce; each rank writes to its own memory only.
  virtual void prepare() {}
  virtual void finish() = 0;

  /// `element` of what rank r has; of the own rank it is not to be asked.
  [[nodiscard]] const std::byte* source_of(int32_t r, uint64_t element) const {
    return windows_.at(sources_[static_cast<size_t>(r)], r) + element * width_;
  }
  /// What rank r has lies in what has the elements of all.
  [[nodiscard]] bool is_in_place(int32_t r) const { return sources_[static_cast<size_t>(r)] == common_; }
  /// The same of what has the elements of all.
  [[nodiscard]] const std::byte* common_of(int32_t r, uint64_t element) const {
    return windows_.at(common_, r) + element * width_;
  }
  /// part(first, count) for pieces of `count` elements, unless this rank gives up meanwhile.
  template <class Part>
  void in_pieces(uint64_t count, const Part& part) const {
    constexpr uint64_t kPieceBytes = uint64_t{256} << 10U;
    const uint64_t most = kPieceBytes / width_;
    for (uint64_t first = 0; first < count; first += most) {
      group_.check_own();
      part(first, std::min(most, count - first));
    }
  }
  /// Reduces elements of the sources of all, from `begin` on.
  void reduce_sources(uint64_t begin, uint64_t count, std::byte* to) const;

 private:
  /// What all have posted.
  void read_places();

  Group& group_;
  const Windows& windows_;
  const uint64_t first_;
  bool has_read_ = false;
  bool all_there_ = false;
  Windows::Place common_;
  std::vector<Windows::Place> sources_;
};

}  // namespace pliant::accelerator
