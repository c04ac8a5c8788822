#include "sharded/memory/arena_needs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/result.hpp"
#include "pliant/error.hpp"
#include "sharded/memory/whole_memory.hpp"
#include "sharded/shards/exchange.hpp"
#include "sharded/shards/segments.hpp"

namespace pliant::sharded {

std::vector<std::vector<OwnedPart>> owned_parts(const ModelTables& model, const FlatLayout& layout,
                                                const Ownership& ownership) {
  std::vector<std::vector<OwnedPart>> parts;
  std::vector<OwnedPart> owned(static_cast<size_t>(ownership.world_size()));
  for (const ParameterRow& row : model.parameters()) {
    const FlatRange range{static_cast<int64_t>(row.offset), static_cast<int64_t>(row.elements)};
    const std::vector<ShardPiece> pieces = ownership.pieces_of(layout, range);
    for (const ShardPiece& piece : pieces) {
      OwnedPart& part = owned[static_cast<size_t>(piece.owner)];
      const auto count = static_cast<uint64_t>(piece.range.count);
      part = {static_cast<uint32_t>(piece.owner), part.elements + count, std::max(part.largest_piece, count)};
    }
    std::vector<OwnedPart>& of_parameter = parts.emplace_back();
    for (const ShardPiece& piece : pieces) {
      const OwnedPart part = std::exchange(owned[static_cast<size_t>(piece.owner)], {});
      if (part.elements > 0) of_parameter.push_back(part);
    }
  }
  return parts;
}

std::vector<uint64_t> most_owned(const ModelTables& model, const FlatLayout& layout, const Ownership& ownership) {
  std::vector<uint64_t> most;
  for (const std::vector<OwnedPart>& parts : owned_parts(model, layout, ownership)) {
    uint64_t& largest = most.emplace_back();
    for (const OwnedPart& part : parts) largest = std::max(largest, part.elements);
  }
  return most;
}

std::vector<uint64_t> most_owned_at(const ModelTables& model, int32_t world_size) {
  const FlatLayout layout = or_throw(FlatLayout::create(static_cast<int64_t>(model.elements())));
  return most_owned(model, layout, dealt(model, layout, world_size));
}

// Modules below a leaf are not entered. What no module names is used unannounced, by whoever it may be.
std::vector<bool> side_by_side(const ModelTables& model) {
  std::vector<uint32_t> users(model.parameters().size());
  std::vector<bool> made(users.size());
  std::vector<uint32_t> open{0};
  while (!open.empty()) {
    const ModuleRow& module = model.modules()[open.back()];
    open.pop_back();
    for (const uint32_t parameter : module.used) {
      ++users[parameter];
      made[parameter] = made[parameter] || module.has_inner();
    }
    if (!module.leaf) open.insert(open.end(), module.children.begin(), module.children.end());
  }
  for (uint32_t parameter = 0; parameter < made.size(); ++parameter) {
    made[parameter] = made[parameter] || users[parameter] != 1 || model.parameter(parameter).external;
  }
  return made;
}

uint64_t whole_gradient_bytes(const ModelTables& model, const std::vector<bool>& side_by_side, DType reduce,
                              size_t micro_batches) {
  uint64_t bytes = 0;
  for (uint32_t parameter = 0; parameter < side_by_side.size(); ++parameter) {
    const ParameterRow& row = model.parameter(parameter);
    if (row.frozen) continue;
    const uint64_t one = WholeMemory::taken_by(row.elements * bytes_of(reduce));
    bytes += side_by_side[parameter] ? micro_batches * one : one;
  }
  return bytes;
}

uint64_t on_way_bytes(uint64_t whole) {
  constexpr uint64_t kMost = uint64_t{1} << 20U;
  constexpr uint64_t kPart = 8;
  return std::min(kMost, whole / kPart);
}

uint64_t looked_at_together(const ModelTables& model) {
  constexpr uint64_t kGradients = 8;
  uint64_t largest = 0;
  for (const ParameterRow& row : model.parameters()) largest = std::max(largest, row.elements);
  return std::min(kGradients * largest, model.elements());
}

size_t rest_ends(const ModelTables& model, std::span<const uint32_t> rest, size_t begin, uint64_t budget) {
  const uint64_t most = budget == 0 ? kRestElements : 0;
  uint64_t elements = model.parameter(rest[begin]).elements;
  size_t end = begin + 1;
  while (end < rest.size() && (elements += model.parameter(rest[end]).elements) <= most) ++end;
  return end;
}

// Parts of gradients are cast to f32 in blocks, which may be as small as the smallest piece of the arena.
std::vector<GradientRoom> gradient_room(const ModelTables& model, const std::vector<uint64_t>& owned,
                                        int32_t world_size, DType reduce, size_t micro_batches) {
  std::vector<GradientRoom> all;
  const uint64_t blocks = reduce == DType::kF32 ? 0 : static_cast<uint64_t>(world_size) * WholeMemory::taken_by(1);
  const std::vector<bool> several = side_by_side(model);
  for (const ParameterRow& row : model.parameters()) {
    const size_t number = all.size();
    if (row.frozen || row.elements == 0) {
      all.push_back({});
      continue;
    }
    const uint64_t gradient = WholeMemory::taken_by(row.elements * bytes_of(reduce));
    const uint64_t received =
        WholeMemory::taken_by(received_elements(owned[number], world_size) * bytes_of(reduce)) + blocks;
    all.push_back(micro_batches > 1 ? GradientRoom{(several[number] ? micro_batches : 1) * gradient + received, 0}
                                    : GradientRoom{gradient, received});
  }
  return all;
}

void require_budget(const ModelTables& model, uint64_t budget, DType whole, DType reduce) {
  if (budget == 0) return;
  std::vector<GradientRoom> rooms;
  for (const ParameterRow& row : model.parameters()) {
    rooms.push_back({row.frozen ? 0 : WholeMemory::taken_by(row.elements * bytes_of(reduce)), 0});
  }
  require_budget(model, budget, whole, rooms, 1);
}

void require_budget(const ModelTables& model, uint64_t budget, DType whole, std::span<const GradientRoom> rooms,
                    size_t micro_batches) {
  if (budget == 0) return;
  uint64_t most = 0;
  const ModuleRow* largest = nullptr;
  for (const ModuleRow& module : model.modules()) {
    uint64_t bytes = 0;
    for (const uint32_t parameter : module.used) {
      bytes += WholeMemory::taken_by(model.parameter(parameter).elements * bytes_of(whole)) + rooms[parameter].gradient;
    }
    if (bytes <= most) continue;
    most = bytes;
    largest = &module;
  }
  if (most <= budget) return;
  const bool has_several = micro_batches > 1;
  throw Error(
      Status::kResourceExhausted,
      fmt::format("[coordinator] budget = {} is too small: {} alone uses {} bytes with its gradients{} ({}{}){}",
                  budget, largest->name, most,
                  has_several ? fmt::format(" in a pass over {} micro-batches", micro_batches) : std::string(),
                  model.parameter(largest->used.front()).name, largest->used.size() > 1 ? ", ..." : "",
                  has_several ? "; raise it, or use fewer micro-batches per pass" : ""),
      Origin::kInput)
      .about("budget");
}

}  // namespace pliant::sharded
