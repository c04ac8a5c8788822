// NativeComm: a communicator of the accelerator's own collectives, where all ranks of a generic one have found that no
// two of them share a device.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/peers/called.hpp"
#include "collectives/peers/carrier_comm.hpp"

namespace pliant::collectives {

class NativeComm {
 public:
  /// Of what a communicator is made.
  enum class Origin : uint32_t {
    kNothing,  ///< anew
    kShrunk,   ///< of `old` without some ranks
    kGrown,    ///< of `old` with more ranks
    kJoining   ///< this rank is one of those
  };
  struct Renewal {
    Origin origin = Origin::kNothing;
    std::shared_ptr<NativeComm> old;  ///< may be NULL: then it is made anew
    std::vector<int32_t> without;
  };
  /// All ranks say where they are. One on every rank, or NULL on every rank: then some rank has no such collectives
  /// (`calls` is empty there), or two share a device. Begins joining it; made of an older one where every rank can.
  static std::shared_ptr<NativeComm> agree(const sdk::Calls<pliant_collectives>& calls, const Place& place,
                                           const Renewal& renewal, const Gather& gather);
  /// The part in agree() of a rank that has none.
  static void decline(int32_t world_size, const Gather& gather);
  NativeComm(const NativeComm&) = delete;
  NativeComm& operator=(const NativeComm&) = delete;

  /// `native.call(&pliant_collectives::barrier, stream)`; throws what it reports.
  template <class... Parameters, class... Arguments>
  void call(int32_t (*pliant_collectives::*slot)(void*, pliant_comm*, Parameters...), Arguments... arguments) const {
    calls().must(slot, comm_.get(), arguments...);
  }
  /// It has register_window.
  [[nodiscard]] bool has_windows() const { return calls().has(&pliant_collectives::register_window); }
  void abort() const;
  /// Destroying it here would abort nothing. True, too, where the accelerator cannot tell.
  [[nodiscard]] bool is_done() const;
  /// It would abort work that goes well.
  [[nodiscard]] bool is_running() const;
  /// All ranks are known to have joined it: what else fails can still be made smaller, or larger.
  void set_joined() { is_joined_ = true; }
  [[nodiscard]] bool is_joined() const { return is_joined_; }

 private:
  explicit NativeComm(const sdk::Calls<pliant_collectives>& calls) : comm_(calls) {}
  [[nodiscard]] const sdk::Calls<pliant_collectives>& calls() const { return comm_.calls(); }
  void make(const Place& place, Origin origin, const Renewal& renewal, const pliant_comm_id& id);

  sdk::OwnedComm comm_;
  std::atomic<bool> is_joined_{false};
};

}  // namespace pliant::collectives
