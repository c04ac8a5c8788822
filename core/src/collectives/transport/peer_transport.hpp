// Generic collectives from device to device: each rank fills its stage, all meet, each reads the stages of the others.
#pragma once

#include <cstdint>

#include "collectives/generic_collectives.hpp"

/// Each enqueues the work of one call on the stream `on`; shared.peers() are there.
namespace pliant::detail::between_devices {

using Shared = GenericCollectives::Shared;

void all_reduce(Shared& shared, const void* send, void* recv, sdk::Elements elements, sdk::ReduceOp op,
                pliant_stream* on);
void all_gather(Shared& shared, const void* send, void* recv, sdk::Elements elements, pliant_stream* on);
void reduce_scatter(Shared& shared, const void* send, void* recv, sdk::Elements elements, sdk::ReduceOp op,
                    pliant_stream* on);
void broadcast(Shared& shared, void* buffer, sdk::Elements elements, int32_t root, pliant_stream* on);
void all_gather_v(Shared& shared, const void* send, void* recv, const sdk::PieceTable& pieces, sdk::DType dtype,
                  pliant_stream* on);
/// `send`: NULL where the own pieces are in their places already.
void gather_pieces(Shared& shared, const void* send, void* recv, const sdk::PieceTable& pieces, sdk::DType dtype,
                   pliant_stream* on);
/// So that a rank that is in another call is told of both.
void barrier(Shared& shared, pliant_stream* on);

}  // namespace pliant::detail::between_devices
