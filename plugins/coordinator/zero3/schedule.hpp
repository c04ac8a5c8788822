// DeepSpeed's PartitionedParameterCoordinator as a state machine: a pass is recorded, the next ones follow the trace.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "fetch_queue.hpp"
#include "layout.hpp"
#include "parameters.hpp"
#include "releases.hpp"
#include "reuse.hpp"
#include "swapping.hpp"

namespace pliant::coordinator::zero3 {

struct ScheduleOptions {
  int64_t prefetch_bucket = 0;  ///< elements; 0: no prefetch
  int64_t max_live = 0;         ///< elements
  int64_t max_reuse_distance = 0;
  PersistenceRule persistence;
  bool head = true;           ///< false: as of April 2023
  bool strict = false;        ///< what it mends: docs/reference/zero3-parity.md
  int64_t swap_buffers = -1;  ///< of shards that lie on a tier; -1: there is no tier
};

class Schedule {
 public:
  Schedule() = default;
  Schedule(const sdk::Model& model, const ScheduleOptions& options);

  void set_parameters(uint32_t module, std::span<const uint32_t> own, std::span<const uint32_t> external);
  void begin_pass(bool with_gradient, sdk::Actions& actions);
  void enter(const sdk::Visit& visit, sdk::Actions& actions);
  void leave(const sdk::Visit& visit, sdk::Actions& actions);
  void end_pass(sdk::Actions& actions);
  void release_all(sdk::Actions& actions);
  /// Forgets the order of visits; what is whole stays.
  void drop_trace(sdk::Actions& actions);
  [[nodiscard]] sdk::CoordinatorCounts counts() const;

  [[nodiscard]] size_t parameter_count() const { return parameters_.size(); }
  [[nodiscard]] bool complete() const { return mode_ == Mode::kComplete; }
  /// True at the start of a pass that follows a complete trace.
  [[nodiscard]] bool at_start() const { return mode_ == Mode::kComplete && step_ == 0 && queue_.taken() == 0; }
  /// True when the same calls get the same answers from both, which follow the same trace of one model.
  [[nodiscard]] bool same_state(const Schedule& other) const;

 private:
  enum class Mode { kRecording, kComplete, kInvalid };
  struct Entered {
    uint32_t depth = 0;                ///< how often it is entered
    bool backward = false;             ///< it is in backward_
    std::vector<uint32_t> recomputed;  ///< frozen parameters that leave with its backward
    bool operator==(const Entered&) const = default;
  };
  /// What one visit gathers for later ones.
  struct Ahead {
    uint32_t group;
    uint32_t number;  ///< of the collective
    int64_t room;     ///< elements
    int64_t elements = 0;
    uint32_t twice = PLIANT_NO_PARAMETER;  ///< one that was on its way before
  };
  using Numbers = std::span<const uint32_t>;

  // trace.cpp: what is learnt, and when it is thrown away.
  void reset(sdk::Actions& actions);
  void invalidate(sdk::Actions& actions);
  void clean_up(sdk::Actions& actions);
  void release_unfinished(sdk::Actions& actions);
  void release_all_in_model_order(sdk::Actions& actions);
  void release_everything(sdk::Actions& actions);

  // gathers.cpp: what a visit gathers, waits for and fetches ahead.
  void gather(Numbers parameters, sdk::Actions& actions);
  void gather_missing(Numbers used, sdk::Actions& actions);
  void make_room(Numbers used, uint64_t elements, sdk::Actions& actions);
  void wait_for(const ModuleUse& use, sdk::Actions& actions);
  void attribute_recomputed(Numbers used);
  [[gnu::always_inline]] inline void take_off_queue(const ModuleUse& use);
  void take_off_queue_slowly(Numbers used);
  [[gnu::always_inline]] inline void prefetch(sdk::Actions& actions);
  [[nodiscard]] [[gnu::always_inline]] inline bool prefetch_visit(uint32_t group, uint32_t number, int64_t room,
                                                                  int64_t& elements, sdk::Actions& actions);
  void prefetch_slowly(Ahead ahead, bool by_visit, sdk::Actions& actions);
  [[nodiscard]] bool prefetch_one_by_one(Ahead& ahead, sdk::Actions& actions);
  void gather_ahead(uint32_t parameter, Ahead& ahead, sdk::Actions& actions);
  void gather_empty(Ahead& ahead, sdk::Actions& actions);
  [[nodiscard]] [[gnu::always_inline]] inline bool fits(const ModuleUse& visit, int64_t room) const;
  [[noreturn]] void refuse_second_gather(uint32_t parameter) const;
  [[noreturn]] void refuse_empty(uint32_t parameter) const;
  void load_ahead(sdk::Actions& actions);
  void free_shard_of_persistent(uint32_t parameter, uint32_t gather);

  // What a visit releases.
  Decision& decide(uint32_t module, const ModuleUse& use, Decision* known);
  [[gnu::always_inline]] inline bool end_at_once(const ModuleUse& use, const Decision* decision, sdk::Actions& actions);
  [[nodiscard]] bool is_fetched_again(const Decision* decision) const;
  void release_used(const ModuleUse& use, const Decision* decision, sdk::Actions& actions);
  void release_used_strictly(const ModuleUse& use, const Decision* decision, sdk::Actions& actions);
  [[gnu::always_inline]] inline int64_t release_at_once(ParameterBits& word, uint32_t number, uint64_t bits,
                                                        sdk::Actions::Burst& burst);
  void leave_recomputed(uint32_t module, Decision* decision, sdk::Actions& actions);
  void release(uint32_t parameter, sdk::Actions& actions) {
    if (parameters_.used(parameter) || !parameters_.available(parameter)) return;
    if (options_.strict && parameters_.registered(parameter)) take_off_register(parameter, actions);
    parameters_.release(parameter);
    live_ -= static_cast<int64_t>(parameters_.elements(parameter));
    if (swapping_.on()) swapping_.free(parameter);
    actions.release(parameter);
  }
  void take_off_register(uint32_t parameter, sdk::Actions& actions) {
    parameters_.leave_register(parameter);
    actions.wait(parameter);
  }
  /// Between its uses.
  [[nodiscard]] bool stays(uint32_t parameter) const {
    return parameters_.persistent(parameter) || parameters_.external(parameter);
  }
  void begin_use(const sdk::Visit& visit, const ModuleUse& use, sdk::Actions& actions);
  [[nodiscard]] const ModuleUse& use_of(uint32_t module) const { return uses_[module]; }
  void note_backward(uint32_t module) {
    if (!std::exchange(entered_[module].backward, true)) backward_.push_back(module);
  }
  void forget_backward(uint32_t module) {
    if (!std::exchange(entered_[module].backward, false)) return;
    if (backward_.back() == module) return backward_.pop_back();
    backward_.erase(std::find(backward_.rbegin(), backward_.rend(), module).base() - 1);
  }
  /// The trace has the module as the visit that comes next.
  [[nodiscard]] bool is_next(uint32_t module) const {
    const auto step = static_cast<size_t>(step_);
    return step < trace_.size() && trace_[step] == module;
  }

  ScheduleOptions options_;
  // Copies of a schedule, of which one is made for each record of a pass, share what only set_parameters changes.
  std::shared_ptr<const sdk::Model> model_;
  std::shared_ptr<const Layout> layout_;
  const ModuleUse* uses_ = nullptr;  ///< layout_->uses()
  Parameters parameters_;
  Swapping swapping_;

  Mode mode_ = Mode::kInvalid;
  bool with_gradient_ = true;
  bool outdated_ = false;        ///< strict: a module has other parameters than in the trace
  uint64_t traces_ = 0;          ///< complete ones so far
  int64_t step_ = 0;             ///< visits entered in this pass
  int64_t live_ = 0;             ///< elements that it counts as whole; below 0 where DeepSpeed's count is
  std::vector<uint32_t> trace_;  ///< the module of each visit
  FetchQueue queue_;
  bool has_queue_ = false;
  ReuseTable reuse_;
  ReuseTable reuse_of_leaves_;
  Releases releases_;

  std::vector<Entered> entered_;    ///< by module
  std::vector<uint32_t> backward_;  ///< modules entered in backward, in that order
  std::vector<uint32_t> empty_;     ///< parameters without elements of one prefetch
};

}  // namespace pliant::coordinator::zero3
