// Buffers, calls and references of collectives.
#include "testkit/collective_work.hpp"

#include <algorithm>
#include <cmath>

namespace pliant::testkit {

const char* name_of(Collective kind) {
  const char* const names[] = {"all_reduce", "all_gather",   "reduce_scatter",   "broadcast",
                               "barrier",    "all_gather_v", "group of messages"};
  return names[static_cast<size_t>(kind)];
}

uint64_t CollectiveWork::send_count(int32_t rank) const {
  switch (call_.kind) {
    case Collective::kBarrier:
      return 0;
    case Collective::kReduceScatter:
    case Collective::kMessages:
      return call_.count * static_cast<uint64_t>(rank_.world_size);
    case Collective::kAllGatherV:  // of some ranks nothing, of the root something
      return rank % 3 == (call_.root + 1) % 3 ? 0 : call_.count + static_cast<uint64_t>(rank);
    default:
      return call_.count;
  }
}

uint64_t CollectiveWork::receive_count() const {
  uint64_t all = 0;
  switch (call_.kind) {
    case Collective::kBarrier:
      return 0;
    case Collective::kAllGather:
    case Collective::kMessages:
      return call_.count * static_cast<uint64_t>(rank_.world_size);
    case Collective::kAllGatherV:
      for (int32_t r = 0; r < rank_.world_size; ++r) all += send_count(r);
      return all;
    default:
      return call_.count;
  }
}

bool CollectiveWork::one_buffer() const {
  return call_.kind == Collective::kBroadcast || (call_.in_place && call_.kind == Collective::kAllReduce);
}

Elements CollectiveWork::input(int32_t rank, uint64_t first, uint64_t count) const {
  const uint64_t where = static_cast<uint64_t>(call_.kind) * 1000 + static_cast<uint64_t>(rank);
  return drawn_elements(call_.dtype, count, call_.draw, rank_.seed, where * 7 + call_.count, first);
}

CollectiveWork::CollectiveWork(const Rank& rank, const CollectiveCall& call)
    : rank_(rank),
      call_(call),
      send_(rank.accelerator, send_count(rank.rank) * size_of(call.dtype)),
      receive_(rank.accelerator, receive_count() * size_of(call.dtype)) {
  (one_buffer() ? receive_ : send_).set(input(rank.rank).bytes());
}

Outcome CollectiveWork::enqueue(const Comm& comm, const Stream& stream) const {
  using Slots = pliant_collectives;
  const Accelerator& device = rank_.accelerator;
  void* receive = receive_.at();
  const void* send = one_buffer() ? receive : send_.at();
  switch (call_.kind) {
    case Collective::kAllReduce:
      return device.call(&Slots::all_reduce, comm, send, receive, call_.count, call_.dtype, call_.op, stream);
    case Collective::kAllGather:
      return device.call(&Slots::all_gather, comm, send, receive, call_.count, call_.dtype, stream);
    case Collective::kReduceScatter:
      return device.call(&Slots::reduce_scatter, comm, send, receive, call_.count, call_.dtype, call_.op, stream);
    case Collective::kBroadcast:
      return device.call(&Slots::broadcast, comm, receive, call_.count, call_.dtype, call_.root, stream);
    case Collective::kAllGatherV: {
      std::vector<uint64_t> counts;
      for (int32_t r = 0; r < rank_.world_size; ++r) counts.push_back(send_count(r));
      const uint64_t* all = counts.data();
      return device.call(&Slots::all_gather_v, comm, send, receive, all, call_.dtype, stream);
    }
    case Collective::kMessages:
      return enqueue_messages(comm, stream);
    case Collective::kBarrier:
      break;
  }
  return device.call(&Slots::barrier, comm, stream);
}

Outcome CollectiveWork::enqueue_messages(const Comm& comm, const Stream& stream) const {
  using Slots = pliant_collectives;
  const Accelerator& device = rank_.accelerator;
  const uint64_t bytes = call_.count * size_of(call_.dtype);
  Outcome outcome = device.call(&Slots::group_begin, comm);
  // Receives come first on every other rank: the order of the calls must not matter.
  for (const bool sends : {rank_.rank % 2 == 0, rank_.rank % 2 != 0}) {
    for (int32_t peer = 0; peer < rank_.world_size && outcome.ok(); ++peer) {
      const uint64_t at = bytes * static_cast<uint64_t>(peer);
      const void* from = send_.at() + at;
      void* to = receive_.at() + at;
      outcome = sends ? device.call(&Slots::send, comm, from, call_.count, call_.dtype, peer, stream)
                      : device.call(&Slots::recv, comm, to, call_.count, call_.dtype, peer, stream);
    }
  }
  const Outcome ended = device.call(&Slots::group_end, comm);
  return outcome.ok() ? ended : outcome;
}

std::string CollectiveWork::words() const {
  std::string text = name_of(call_.kind);
  if (call_.kind == Collective::kBarrier) return text;
  text += " of " + std::to_string(call_.count) + " " + name_of_type(call_.dtype);
  if (call_.kind == Collective::kBroadcast) text += " from rank " + std::to_string(call_.root);
  if (call_.kind == Collective::kAllReduce || call_.kind == Collective::kReduceScatter) {
    text += std::string(" (") + name_of_op(call_.op) + ")";
  }
  return text + (call_.in_place ? " in place" : "") + " at world size " + std::to_string(rank_.world_size);
}

Elements CollectiveWork::wanted() const {
  if (call_.kind == Collective::kBroadcast) return input(call_.root);
  // Of a reduce_scatter, and of messages, only the own part is received, so only that is drawn.
  const bool own_part = call_.kind == Collective::kReduceScatter || call_.kind == Collective::kMessages;
  const uint64_t first = own_part ? call_.count * static_cast<uint64_t>(rank_.rank) : 0;
  std::vector<Elements> all;
  for (int32_t r = 0; r < rank_.world_size; ++r) {
    all.push_back(call_.kind == Collective::kAllGatherV ? input(r) : input(r, first, call_.count));
  }
  if (call_.kind == Collective::kAllReduce || call_.kind == Collective::kReduceScatter)
    return reduced(all, call_.op, 1);
  Bytes joined;
  for (const Elements& one : all) joined.insert(joined.end(), one.bytes().begin(), one.bytes().end());
  return {call_.dtype, joined};
}

Bytes CollectiveWork::received() const {
  return receive_.get(words());
}

void CollectiveWork::verify(int units) const {
  const std::string what = words();
  const Bytes got = receive_.get(what);
  if (!one_buffer()) expect(send_.get(what) == input(rank_.rank).bytes(), what + " changed what it sends");
  if (call_.kind == Collective::kBarrier) return;
  const std::string wrong = difference({call_.dtype, got}, wanted(), units);
  expect(wrong.empty(), what + ": " + wrong);
}

}  // namespace pliant::testkit
