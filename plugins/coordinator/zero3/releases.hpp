// What to release when a module is left, remembered by module and step, so that a steady trace reads arrays.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "layout.hpp"

namespace pliant::coordinator::zero3 {

struct Decision {
  uint64_t key = 0;
  uint32_t version = 0;            ///< of the layout that `released` is for
  uint32_t next = 0;               ///< the decision that followed this one last time
  uint64_t used_again = 0;         ///< strict: no visit before this one but the next uses what the module uses
  std::vector<uint32_t> members;   ///< parameters to release, ascending
  std::vector<uint64_t> released;  ///< for each slice of what the module uses: those that are members
};

class Releases {
 public:
  /// nullptr: none was made yet. The pointer is good until the next add() or clear().
  [[nodiscard]] Decision* find(uint32_t module, uint64_t step) {
    const uint64_t key = key_of(module, step);
    if (last_ < made_.size()) {
      const uint32_t next = made_[last_].next;
      if (next < made_.size() && made_[next].key == key) {
        last_ = next;
        return &made_[next];
      }
    }
    return look_up(key);
  }
  Decision& add(uint32_t module, uint64_t step);
  void clear();
  /// Rises with every change of what is remembered.
  [[nodiscard]] uint64_t changes() const { return changes_; }

  /// `released` anew for what the module uses, after its parameters or the members changed.
  static void align(Decision& decision, std::span<const Slice> used, uint32_t version);
  /// Makes `parameter` a member for good.
  void add_member(Decision& decision, uint32_t parameter);

 private:
  static uint64_t key_of(uint32_t module, uint64_t step) { return step << 32 | module; }
  Decision* look_up(uint64_t key);

  std::vector<Decision> made_;
  std::unordered_map<uint64_t, uint32_t> by_key_;
  uint32_t last_ = UINT32_MAX;
  uint64_t changes_ = 0;
};

}  // namespace pliant::coordinator::zero3
