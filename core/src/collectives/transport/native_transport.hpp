// NativeTransport: calls go to collectives of the device's own accelerator.
#pragma once

#include <vector>

#include "collectives/peers/native_comm.hpp"
#include "collectives/peers/peer_watch.hpp"
#include "collectives/transport/transport.hpp"

namespace pliant::collectives {

class NativeTransport final : public Transport {
 public:
  /// `mailbox`, in which calls are counted, may be NULL. All outlive this.
  NativeTransport(const NativeComm& comm, const Mailbox* mailbox, PeerWatch& watch)
      : comm_(comm), mailbox_(mailbox), watch_(watch) {}

  [[nodiscard]] Way way() const override { return Way::kNative; }
  void all_reduce(const void* send, void* recv, sdk::Elements elements, sdk::ReduceOp op, pliant_stream* on) override;
  void all_gather(const void* send, void* recv, sdk::Elements elements, pliant_stream* on) override;
  void reduce_scatter(const void* send, void* recv, sdk::Elements elements, sdk::ReduceOp op,
                      pliant_stream* on) override;
  void broadcast(void* buffer, sdk::Elements elements, int32_t root, pliant_stream* on) override;
  void barrier(pliant_stream* on) override;
  void all_gather_v(const void* send, void* recv, const std::vector<uint64_t>& counts, sdk::DType dtype,
                    pliant_stream* on) override;
  void gather_pieces(const void* send, void* recv, const sdk::PieceTable& pieces, sdk::DType dtype,
                     pliant_stream* on) override;
  void scatter_pieces(const void* send, void* recv, const sdk::PieceTable& pieces, const std::vector<uint8_t>& adds,
                      sdk::DType dtype, pliant_stream* on) override;
  void register_window(void* pointer, uint64_t bytes, pliant_stream* on) override;
  void exchange(const std::vector<Message>& messages, pliant_stream* on) override;
  void in_group(const std::function<void()>& calls) override;
  /// The communicator may wait from now on for ranks that have left.
  void count_collectives(size_t count) override;

 private:
  const NativeComm& comm_;
  const Mailbox* const mailbox_;
  PeerWatch& watch_;
};

}  // namespace pliant::collectives
