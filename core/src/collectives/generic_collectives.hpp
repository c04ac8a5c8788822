// GenericCollectives: pliant.collectives/0 for an accelerator that has none of its own. The carrier, an accelerator
// whose memory is that of the processors, exchanges; the device copies to and from it, in stream order. Where the
// processors see the device's memory nothing is copied. Where each device reads memory of the others the carrier only
// says when. Where the accelerator has collectives that cannot join ranks on one device, the ranks find out whether
// they are.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>

#include "collectives/transport/transport.hpp"
#include "pliant/abi/collectives.h"
#include "pliant/sdk/accelerator.hpp"
#include "pliant/sdk/calls.hpp"
#include "pliant/sdk/pieces.hpp"
#include "plugin/plugin.hpp"

namespace pliant::collectives {

class Comm;
class CommState;

class GenericCollectives {
 public:
  using Stream = pliant_stream;
  using Event = pliant_event;
  using Comm = collectives::Comm;
  using Way = collectives::Way;

  /// `device` and its streams live longer than this. `carrier` has collectives.
  /// `native`: collectives of the device that cannot join two ranks on one device, and serve where no two share one.
  GenericCollectives(const plugin::Instance& device, plugin::Instance carrier,
                     const sdk::Calls<pliant_collectives>& native = {});
  /// Waits for other ranks that have memory of this one mapped, one second at most. Then it is freed.
  ~GenericCollectives();
  GenericCollectives(const GenericCollectives&) = delete;
  GenericCollectives& operator=(const GenericCollectives&) = delete;

  /// The slots; their `self` is what self() gives. Without pieces: those of the native collectives that have none
  /// either, so that whoever calls sends messages.
  static const pliant_collectives& table(bool has_pieces = true);

  /// After a synchronize of `stream` that ended with `status`. PLIANT_OK: throws as sdk::Failure the first failure on
  /// it that nobody was told of. PLIANT_ABORTED, PLIANT_PEER_LOST: that, or what is known here of the communicator
  /// whose calls went to the native collectives, such as the rank that is lost.
  void throw_failure(pliant_stream* stream, int32_t status);
  void forget(pliant_stream* stream);

  /// How the ranks of `comm` exchange, after a collective that has come to its end on a stream that was synchronized.
  static Way way(const Comm& comm);

  // What sdk::collectives_table asks for.
  int32_t device_count();
  pliant_comm_id make_comm_id(int32_t world_size);
  std::unique_ptr<Comm> make_comm(int32_t device, const pliant_comm_id& id, int32_t rank, int32_t world_size);
  std::unique_ptr<Comm> shrink(Comm& old, std::span<const int32_t> without, const pliant_comm_id& id);
  std::unique_ptr<Comm> grow(int32_t device, Comm* old, const pliant_comm_id& id, int32_t rank, int32_t world_size);
  int32_t world_size(const Comm& comm);
  int32_t rank(const Comm& comm);
  void wait_ready(Comm& comm, int32_t timeout_ms);
  void abort(Comm& comm);
  void all_reduce(Comm& comm, const void* send, void* recv, sdk::Elements elements, sdk::ReduceOp op, Stream& stream);
  void all_gather(Comm& comm, const void* send, void* recv, sdk::Elements elements, Stream& stream);
  void reduce_scatter(Comm& comm, const void* send, void* recv, sdk::Elements elements, sdk::ReduceOp op,
                      Stream& stream);
  void broadcast(Comm& comm, void* buffer, sdk::Elements elements, int32_t root, Stream& stream);
  void barrier(Comm& comm, Stream& stream);
  void all_gather_v(Comm& comm, const void* send, void* recv, std::span<const uint64_t> counts, sdk::DType dtype,
                    Stream& stream);
  void gather_pieces(Comm& comm, const void* send, void* recv, sdk::PieceTable pieces, sdk::DType dtype,
                     Stream& stream);
  void scatter_pieces(Comm& comm, const void* send, void* recv, sdk::PieceTable pieces, std::span<const uint8_t> adds,
                      sdk::DType dtype, Stream& stream);
  void send(Comm& comm, const void* buffer, sdk::Elements elements, int32_t peer, Stream& stream);
  void recv(Comm& comm, void* buffer, sdk::Elements elements, int32_t peer, Stream& stream);
  void register_window(Comm& comm, void* pointer, uint64_t bytes, Stream& stream);
  void begin_group(Comm& comm);
  void end_group(Comm& comm);

 private:
  friend class collectives::Comm;
  friend class CommState;
  void note(pliant_stream* stream, const sdk::Failure& failure);
  /// The last communicator whose call went from `stream` to the native collectives.
  void set_user(pliant_stream* stream, CommState& user);
  void forget_user(const CommState& user);
  /// Keeps it until its enqueued work has run.
  void retire(std::unique_ptr<CommState> state);
  void sweep();
  /// In a child of the process that made this. What communicators are here is the parent's.
  [[nodiscard]] bool is_forked() const;

  const plugin::Instance& device_;
  const plugin::Instance carrier_;
  const sdk::Calls<pliant_collectives> native_;
  const pid_t made_by_ = ::getpid();
  std::mutex mutex_;
  std::map<pliant_stream*, sdk::Failure> failures_;
  std::map<pliant_stream*, CommState*> users_;
  std::list<std::unique_ptr<CommState>> retired_;  // of communicators that are gone, until their enqueued work is
};

}  // namespace pliant::collectives
