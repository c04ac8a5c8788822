// PeerTransport: from device to device: each rank fills its stage, all meet, each reads the stages of the others.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/peers/mailbox.hpp"
#include "collectives/peers/peer_memory.hpp"
#include "collectives/peers/peer_watch.hpp"
#include "collectives/transport/carried_transport.hpp"
#include "collectives/transport/stage.hpp"

namespace pliant::collectives {

class PeerTransport final : public CarriedTransport {
 public:
  /// `mailbox` may be NULL: then messages take pinned memory. All outlive this.
  PeerTransport(Steps& steps, const Place& place, PeerMemory& memory, Mailbox* mailbox, PeerWatch& watch)
      : CarriedTransport(steps, place),
        memory_(memory),
        mailbox_(mailbox),
        watch_(watch),
        staged_(steps, place.device_index) {}

  [[nodiscard]] Way way() const override { return Way::kPeer; }
  void all_reduce(const void* send, void* recv, sdk::Elements elements, sdk::ReduceOp op, pliant_stream* on) override;
  void all_gather(const void* send, void* recv, sdk::Elements elements, pliant_stream* on) override;
  void reduce_scatter(const void* send, void* recv, sdk::Elements elements, sdk::ReduceOp op,
                      pliant_stream* on) override;
  void broadcast(void* buffer, sdk::Elements elements, int32_t root, pliant_stream* on) override;
  /// So that a rank that is in another call learns of both.
  void barrier(pliant_stream* on) override;
  void all_gather_v(const void* send, void* recv, const std::vector<uint64_t>& counts, sdk::DType dtype,
                    pliant_stream* on) override;
  void gather_pieces(const void* send, void* recv, const sdk::PieceTable& pieces, sdk::DType dtype,
                     pliant_stream* on) override;
  void exchange(const std::vector<Message>& messages, pliant_stream* on) override;

 private:
  struct Signature;
  /// Work behind it on any rank runs after all work before it on every rank.
  void meet(const Signature& own, pliant_stream* on);
  /// What each rank has at this byte of its slot, in rank order.
  [[nodiscard]] std::vector<const void*> of_all(uint64_t slot, uint64_t byte) const;
  void reduce(void* to, const std::vector<const void*>& from, sdk::Elements elements, sdk::ReduceOp op,
              pliant_stream* on) const;
  void reduce_shared(void* to, uint64_t slot, sdk::Elements elements, sdk::ReduceOp op, const Signature& call,
                     pliant_stream* on);
  /// Elements of a part, whole lines of it, when `elements` are shared out among all ranks.
  [[nodiscard]] uint64_t part_of(const sdk::Elements& elements) const;
  void gather(Signature call, const void* send, void* recv, const sdk::PieceTable& pieces, sdk::DType dtype,
              pliant_stream* on);
  /// Bytes that are no bytes are left out.
  void copy(std::vector<pliant_copy> copies, pliant_stream* on) const;
  [[nodiscard]] std::byte* own_slot(uint64_t slot) const { return memory_.slot(rank(), slot); }

  PeerMemory& memory_;
  Mailbox* const mailbox_;
  PeerWatch& watch_;
  StagedMessages staged_;
};

}  // namespace pliant::collectives
