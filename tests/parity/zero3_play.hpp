// A row's model and operations, played on a coordinator through its ABI; what it answers, in the terms of the rows.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "parity/parity.hpp"
#include "pliant/abi/accelerator.h"
#include "pliant/abi/coordinator.h"

namespace pliant::parity {

/// The tables of a row's model. Numbers of parameters rise with their ids; the root is module 0.
class Zero3Model {
 public:
  explicit Zero3Model(const Json& row);
  Zero3Model(const Zero3Model&) = delete;
  Zero3Model& operator=(const Zero3Model&) = delete;

  [[nodiscard]] pliant_model view() const;
  [[nodiscard]] size_t parameter_count() const { return ids_.size(); }
  [[nodiscard]] int64_t id(uint32_t parameter) const { return ids_.at(parameter); }
  [[nodiscard]] uint32_t module(int64_t id) const { return modules_by_id_.at(id); }
  [[nodiscard]] std::vector<uint32_t> parameters(const Json& ids) const;

 private:
  std::vector<int64_t> ids_;
  std::map<int64_t, uint32_t> parameters_by_id_;
  std::map<int64_t, uint32_t> modules_by_id_;
  std::vector<pliant_parameter_row> parameter_rows_;
  std::vector<pliant_module_row> module_rows_;
  std::vector<std::vector<uint32_t>> lists_;  ///< own, external and children of each module
};

/// One coordinator with a row's model. play() does one operation and gives the entry that the row has for it.
class Zero3Player {
 public:
  enum class Version { kHead, kSeed };

  /// Throws Error when the coordinator refuses the model. `events_finish`: device events are finished when asked.
  Zero3Player(const plugin::Instance& coordinator, const Json& row, Version version);

  /// `error` has the class of a refusal instead of the reference's exception: {"status": "kFailedPrecondition"}.
  Json play(const Json& operation);

 private:
  int32_t call(const Json& operation, pliant_error& error);
  /// The events of the list, ids sorted inside each; plays the device events behind its waits.
  Json events(bool of_visit);
  void read_counts(Json& entry) const;

  const plugin::Instance& coordinator_;
  const pliant_coordinator& slots_;
  Zero3Model model_;
  Version version_;
  bool events_finish_;
  std::vector<pliant_action> actions_;
  pliant_action_list list_{};
  std::set<int64_t> on_their_way_;
  uint64_t unfinished_ = 0;  ///< device events of visits that no one has waited for
};

}  // namespace pliant::parity
