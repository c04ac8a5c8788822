// CollectivesOf: the collectives of an accelerator, its own or, where it has none, generic ones carried by `host`.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "collectives/peers/called.hpp"
#include "plugin/plugin.hpp"
#include "plugin/search.hpp"

namespace pliant::collectives {

/// Thread-safe. Generic collectives are made at the first question for their table.
class CollectivesOf {
 public:
  /// `device` and its streams live longer than this. `search`: where the carrier is looked for.
  CollectivesOf(const plugin::Instance& device, std::vector<plugin::SearchDir> search);
  ~CollectivesOf();
  CollectivesOf(const CollectivesOf&) = delete;
  CollectivesOf& operator=(const CollectivesOf&) = delete;

  /// The accelerator has collectives of its own. Where they cannot join two ranks on one device, the ranks of a
  /// communicator agree by way of the carrier whether they take them.
  [[nodiscard]] bool are_native() const { return static_cast<bool>(native_); }
  /// It has, or the carrier is found.
  [[nodiscard]] bool are_there() const;
  /// Throws Error when there are none: who is missing, and who wanted it.
  [[nodiscard]] sdk::Calls<pliant_collectives> calls();

  /// After a synchronize of `stream` that ended with `status`: what failed on it and was not told, as sdk::Failure. See
  /// GenericCollectives.
  void throw_failure(pliant_stream* stream, int32_t status);
  /// `stream` was destroyed.
  void forget(pliant_stream* stream);

  static constexpr const char* kCarrier = "host";

 private:
  struct Generic;
  [[nodiscard]] bool asks() const;
  Generic& generic();
  [[nodiscard]] plugin::Instance make_carrier() const;

  const plugin::Instance& device_;
  const std::vector<plugin::SearchDir> search_;
  const sdk::Calls<pliant_collectives> native_;
  const bool asks_;
  std::once_flag made_;
  std::unique_ptr<Generic> generic_;
};

}  // namespace pliant::collectives
