// Calls the carrier under a lock, for another thread may close its communicator.
#include "collectives/peers/carrier_comm.hpp"

namespace pliant::collectives {

CarrierComm::CarrierComm(const plugin::Instance& carrier, const pliant_comm_id& id, int32_t rank, int32_t world_size)
    : carrier_(carrier),
      stream_(sdk::make_stream(carrier_.slots, 0, PLIANT_STREAM_COMPUTE, PLIANT_PRIORITY_HIGH)),
      comm_(carrier_.collectives) {
  carrier_.collectives.must(&pliant_collectives::comm_create, 0, &id, rank, world_size, comm_.out());
}

CarrierComm::~CarrierComm() {
  comm_.reset();  // before its stream
}

void CarrierComm::run(const Exchange& exchange) {
  {
    const std::lock_guard lock(mutex_);
    if (is_closed_) throw_closed();
    exchange(comm_, stream_);
  }
  carrier_.slots.must(&pliant_accelerator::stream_synchronize, stream_);
}

void CarrierComm::gather(const void* send, void* recv, uint64_t bytes) {
  run([&](pliant_comm* comm, pliant_stream* on) {
    carrier_.collectives.must(&pliant_collectives::all_gather, comm, send, recv, bytes, PLIANT_U8, on);
  });
}

void CarrierComm::wait_ready(int32_t timeout_ms) const {
  carrier_.collectives.must(&pliant_collectives::comm_status, comm_.get(), timeout_ms);
}

void CarrierComm::require_open() const {
  if (is_closed()) throw_closed();
}

void CarrierComm::check() const {
  if (!look()) throw_closed();
}

bool CarrierComm::look() const {
  const std::lock_guard lock(mutex_);
  if (is_closed_) return false;
  carrier_.collectives.must(&pliant_collectives::comm_status, comm_.get(), int32_t{0});
  return true;
}

void CarrierComm::throw_closed() {
  throw sdk::Failure(PLIANT_ABORTED, "this rank destroyed the communicator while work was enqueued on it");
}

void CarrierComm::abort() const {
  const std::lock_guard lock(mutex_);
  if (!is_closed_) carrier_.collectives->comm_abort(carrier_.collectives.self(), comm_);
}

void CarrierComm::close(bool has_failed) {
  const std::lock_guard lock(mutex_);
  if (is_closed_) return;
  // The failure may have been noted, and not have reached the carrier.
  if (has_failed) carrier_.collectives->comm_abort(carrier_.collectives.self(), comm_);
  comm_.reset();
  is_closed_ = true;
}

bool CarrierComm::is_closed() const {
  const std::lock_guard lock(mutex_);
  return is_closed_;
}

}  // namespace pliant::collectives
