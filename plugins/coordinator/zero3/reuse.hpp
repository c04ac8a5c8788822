// When each parameter of a trace is used next, as tables.
#pragma once

#include <cstdint>
#include <vector>

#include "layout.hpp"

namespace pliant::coordinator::zero3 {

class ReuseTable {
 public:
  /// Which parameters count as used by a visit.
  enum class Reach {
    kListed,  ///< those of the module alone, also of a leaf
    kDeep,    ///< those of all modules below it, too, also of a module that is no leaf
    kUsed,    ///< what the visit gathers
  };

  /// O(uses in the trace). `trace`: the module of each visit.
  void build(const Layout& layout, const std::vector<uint32_t>& trace, const std::vector<sdk::Parameter>& parameters,
             Reach reach);
  void clear() { ready_ = false; }
  [[nodiscard]] bool ready() const { return ready_; }

  /// True when `parameter` is used again by a visit from number `visit` on that begins before `distance` elements were
  /// used, counted in whole visits. O(log of its uses).
  [[nodiscard]] bool reused(uint32_t parameter, uint64_t visit, uint64_t distance) const;
  /// The number of its first visit from `visit` on; UINT64_MAX: none.
  [[nodiscard]] uint64_t next_use(uint32_t parameter, uint64_t visit) const;

 private:
  bool ready_ = false;
  std::vector<uint64_t> passed_;  ///< elements used before each visit, and in all
  std::vector<std::vector<uint32_t>> visits_of_;
};

}  // namespace pliant::coordinator::zero3
