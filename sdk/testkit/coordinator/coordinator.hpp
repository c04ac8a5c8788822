// A coordinator under test, called through its slots as any host would, with room for actions that is watched.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "pliant/abi/coordinator.h"
#include "pliant/sdk/coordinator.hpp"
#include "testkit/check.hpp"
#include "testkit/plugin.hpp"

namespace pliant::testkit {

using Actions = std::vector<pliant_action>;

/// What a slot answered.
struct ListAnswer {
  int32_t status = PLIANT_OK;
  std::string message;
  Actions actions;
  std::string spilled;  ///< what it did to the caller's list that it must not; "" for nothing
  [[nodiscard]] bool ok() const { return status == PLIANT_OK; }
  [[nodiscard]] std::string text() const { return "status " + std::to_string(status) + ": " + message; }
};

/// An instance of the plugin. Fails the check when it cannot be made.
class Coordinator {
 public:
  explicit Coordinator(const Subject& subject);

  /// The tables have rows as a later host might give them, and are gone when this returns.
  [[nodiscard]] ListAnswer set_model(const sdk::Model& model);
  [[nodiscard]] ListAnswer set_module_parameters(uint32_t module, std::span<const uint32_t> own,
                                                 std::span<const uint32_t> external);
  [[nodiscard]] ListAnswer begin_pass(bool with_gradient);
  [[nodiscard]] ListAnswer enter(const sdk::Visit& visit);
  [[nodiscard]] ListAnswer leave(const sdk::Visit& visit);
  [[nodiscard]] ListAnswer end_pass();
  [[nodiscard]] ListAnswer end_step();
  [[nodiscard]] ListAnswer set_costs(const std::vector<uint64_t>& nanoseconds);
  [[nodiscard]] bool has_costs() const { return table_.set_costs != nullptr; }
  [[nodiscard]] ListAnswer drop_trace();
  [[nodiscard]] bool can_drop_trace() const { return table_.drop_trace != nullptr; }
  [[nodiscard]] bool has_state() const { return plugin_.record().save != nullptr; }
  /// Appends to `bytes`.
  [[nodiscard]] ListAnswer save(std::string& bytes) const;
  [[nodiscard]] ListAnswer load(const std::string& bytes);
  /// NULL when it counts nothing.
  [[nodiscard]] const pliant_coordinator_counters* counters() const;
  [[nodiscard]] void* self() const { return instance_.self(); }

  /// Room of the lists from now on; until then as much as every host gives.
  void set_room(uint64_t capacity) { room_ = capacity; }
  void give_full_room() { room_ = kFull; }

 private:
  static constexpr uint64_t kFull = UINT64_MAX;
  template <class Call>
  ListAnswer asked(const Call& call) const;
  template <class Call>
  ListAnswer listed(const Call& call) const;
  template <class Slot>
  ListAnswer visited(Slot slot, const sdk::Visit& visit) const;

  OpenedPlugin plugin_;
  OptionRow options_;
  OwnInstance instance_;
  pliant_coordinator table_{};
  uint64_t parameters_ = 0;
  uint64_t room_ = kFull;
};

}  // namespace pliant::testkit
