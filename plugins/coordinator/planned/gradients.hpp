// Gradients: where the host puts gradients in the arena, on paper.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "layout.hpp"
#include "traces.hpp"

namespace pliant::coordinator::planned {

/// A gradient lies there from the enter in backward of the first module that uses it, that of an external parameter
/// from the first enter in backward of the pass on, and what arrives for it from its reduce on, both until the call
/// after that or, where it lingers, until the next reduce; each in the first gap from the arena's end. Nothing else
/// lies there. What is complete is reduced once it has as many bytes as the bucket, and at the end of the pass. Nothing
/// to do without a budget. O(parameters of the module * gaps between what is there) a call, and O(what is complete).
class Gradients {
 public:
  Gradients() = default;
  /// The layout lives longer than this.
  Gradients(const Layout& layout, uint64_t bucket, bool lingers);

  void begin_pass();
  /// From the next reduce on.
  void linger_no_more() { lingers_ = false; }
  void enter(Call call);
  void leave(Call call);
  /// The host reduces what is left, a part at a time. The deepest that this comes to.
  uint64_t end_pass();
  /// Of the arena, from its end to the piece that lies deepest.
  [[nodiscard]] uint64_t depth() const;

 private:
  struct State {
    uint32_t uses = 0;        ///< forward visits of the pass without their backward
    bool is_there = false;    ///< in the arena
    bool is_reduced = false;  ///< complete
    uint64_t gradient = 0;    ///< where they lie, from the arena's end
    uint64_t received = 0;
  };
  uint64_t take(uint64_t bytes);
  void take_gradient(uint32_t parameter);
  void give_back(uint64_t place, uint64_t bytes);
  /// What was reduced has left.
  void clear(std::vector<uint32_t>& sent);

  const Layout* layout_ = nullptr;
  uint64_t bucket_ = 0;
  bool lingers_ = false;
  std::vector<State> states_;                           ///< empty without a budget
  std::map<uint64_t, uint64_t> gaps_{{0, UINT64_MAX}};  ///< begin and end, from the arena's end, where nothing lies
  std::vector<uint32_t> waiting_;                       ///< complete, ascending
  uint64_t waiting_bytes_ = 0;
  bool is_backward_ = false;    ///< some module was entered backward
  std::vector<uint32_t> sent_;  ///< in the call before
  std::vector<uint32_t> lingering_;
};

/// The deepest that gradients lie in a pass with these calls. O(uses * gaps between gradients at once).
uint64_t most_depth(const Layout& layout, uint64_t bucket, bool lingers, const Trace& trace);

}  // namespace pliant::coordinator::planned
