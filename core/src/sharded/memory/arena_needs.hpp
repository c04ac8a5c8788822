// What a model needs of the arena, counted before anything lies there.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pliant/accelerator.hpp"
#include "sharded/shards/layout.hpp"
#include "sharded/shards/model_tables.hpp"
#include "sharded/shards/ownership.hpp"

namespace pliant::sharded {

/// By parameter, the most elements of it that one rank owns. O(parameters * log(runs) + pieces).
std::vector<uint64_t> most_owned(const ModelTables& model, const FlatLayout& layout, const Ownership& ownership);
/// Elements of a parameter that one rank owns.
struct OwnedPart {
  uint32_t rank = 0;
  uint64_t elements = 0;
  uint64_t largest_piece = 0;  ///< of these, side by side
};
/// By parameter, one for each rank that owns something of it. As most_owned().
std::vector<std::vector<OwnedPart>> owned_parts(const ModelTables& model, const FlatLayout& layout,
                                                const Ownership& ownership);
/// The same as most_owned() in a new group of so many ranks.
std::vector<uint64_t> most_owned_at(const ModelTables& model, int32_t world_size);

/// What arrives at an owner of so many elements of a parameter while their gradient is reduced: elements, those of the
/// other ranks.
constexpr uint64_t received_elements(uint64_t owned, int32_t world_size) {
  return owned * (static_cast<uint64_t>(world_size) - 1);
}

/// Bytes of pieces of the arena: pliant_parameter_row::gradient_bytes and received_bytes. 0 for what is frozen.
struct GradientRoom {
  uint64_t gradient = 0;
  uint64_t received = 0;
  friend bool operator==(const GradientRoom&, const GradientRoom&) = default;
};

/// By parameter, whether a pass over several micro-batches needs a gradient of it for each of them side by side. One is
/// enough where a single module uses the parameter and enters no others: then the next micro-batch has the gradient's
/// room when that of the one before has left. O(model).
std::vector<bool> side_by_side(const ModelTables& model);

/// Bytes of the gradients of all parameters in a pass over so many micro-batches, as they would lie in memory at once.
/// O(parameters).
uint64_t whole_gradient_bytes(const ModelTables& model, const std::vector<bool>& side_by_side, DType reduce,
                              size_t micro_batches);

/// By parameter, where ranks own that much of it (most_owned()). `reduce`: the type of whole gradients, kF32 or kBF16.
/// `micro_batches`: the most that a pass is over. With several, gradients leave while their module is entered, so that
/// what arrives has its room for as long: it lies behind them in one piece, and `received` is 0.
std::vector<GradientRoom> gradient_room(const ModelTables& model, const std::vector<uint64_t>& owned,
                                        int32_t world_size, DType reduce, size_t micro_batches = 1);

/// Elements of gradients that a device looks through before it makes one number of what it found: of several of the
/// largest, so that this is seldom done. It keeps 8 bytes for 1024 of them, outside the arena.
uint64_t looked_at_together(const ModelTables& model);

/// Elements of a gradient that the CPU casts to f32 at once where there is a budget: few enough that it does not feel
/// them.
inline constexpr uint64_t kFloatsHere = uint64_t{1} << 14U;

/// Elements of gradients that are reduced at once when a pass has ended, where there is no budget: a collective is long
/// then, and the gradient of a model of which a pass uses little is never whole.
inline constexpr uint64_t kRestElements = uint64_t{1} << 22U;

/// Where the CPU adds gradients up and there is no budget, groups of gradients that were sent keep their memory until
/// the rank has waited for something behind them, or sends too many more: so many groups lie there, or as many as come
/// to on_way_bytes(). What a rank has at once depends on its calls alone then, not on how quick the other ranks are.
inline constexpr size_t kGroupsOnWay = 2;

/// `whole`: of all gradients, in bytes. Small groups come to no more than a part of it.
uint64_t on_way_bytes(uint64_t whole);

/// Where those of `rest`, parameters whose gradients are reduced after the end of a pass, end that are reduced at once,
/// from `begin` on: one where there is a budget, else one or kRestElements.
size_t rest_ends(const ModelTables& model, std::span<const uint32_t> rest, size_t begin, uint64_t budget);

/// Throws kResourceExhausted (kInput), naming it and what it takes, for a module that alone does not fit into `budget`
/// bytes with its gradients. 0: all fit.
void require_budget(const ModelTables& model, uint64_t budget, DType whole, DType reduce);
/// The same in passes over up to `micro_batches`; `rooms`: gradient_room() for them.
void require_budget(const ModelTables& model, uint64_t budget, DType whole, std::span<const GradientRoom> rooms,
                    size_t micro_batches);

}  // namespace pliant::sharded
