#include "sharded/arena_needs.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/result.hpp"
#include "pliant/error.hpp"
#include "sharded/exchange.hpp"
#include "sharded/whole_memory.hpp"

namespace pliant::sharded {

std::vector<uint64_t> most_owned(const ModelTables& model, const FlatLayout& layout, const Ownership& ownership) {
  std::vector<uint64_t> most;
  std::vector<uint64_t> owned(static_cast<size_t>(ownership.world_size()));
  for (const ParameterRow& row : model.parameters()) {
    const FlatRange range{static_cast<int64_t>(row.offset), static_cast<int64_t>(row.elements)};
    const std::vector<ShardPiece> pieces = ownership.pieces_of(layout, range);
    uint64_t largest = 0;
    for (const ShardPiece& piece : pieces) {
      uint64_t& of_rank = owned[static_cast<size_t>(piece.owner)];
      of_rank += static_cast<uint64_t>(piece.range.count);
      largest = std::max(largest, of_rank);
    }
    for (const ShardPiece& piece : pieces) owned[static_cast<size_t>(piece.owner)] = 0;
    most.push_back(largest);
  }
  return most;
}

std::vector<uint64_t> most_owned_at(const ModelTables& model, int32_t world_size) {
  const FlatLayout layout = or_throw(FlatLayout::create(static_cast<int64_t>(model.elements())));
  return most_owned(model, layout, or_throw(Ownership::deal(layout.chunks(), world_size)));
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
                                        int32_t world_size, DType reduce) {
  std::vector<GradientRoom> all;
  const uint64_t blocks = reduce == DType::kF32 ? 0 : static_cast<uint64_t>(world_size) * WholeMemory::taken_by(1);
  for (const ParameterRow& row : model.parameters()) {
    const uint64_t received = received_elements(owned[all.size()], world_size);
    const bool has_one = !row.frozen && row.elements > 0;
    all.push_back(has_one ? GradientRoom{WholeMemory::taken_by(row.elements * bytes_of(reduce)),
                                         WholeMemory::taken_by(received * bytes_of(reduce)) + blocks}
                          : GradientRoom{});
  }
  return all;
}

void require_budget(const ModelTables& model, uint64_t budget, DType whole, DType reduce) {
  if (budget == 0) return;
  for (const ModuleRow& module : model.modules()) {
    uint64_t bytes = 0;
    for (const uint32_t parameter : module.used) {
      const ParameterRow& row = model.parameter(parameter);
      bytes += WholeMemory::taken_by(row.elements * bytes_of(whole));
      if (!row.frozen) bytes += WholeMemory::taken_by(row.elements * bytes_of(reduce));
    }
    if (bytes <= budget) continue;
    throw Error(Status::kResourceExhausted,
                fmt::format("[coordinator] budget = {} is too small: {} alone uses {} bytes with its gradients ({}{})",
                            budget, module.name, bytes, model.parameter(module.used.front()).name,
                            module.used.size() > 1 ? ", ..." : ""),
                ExitCode::kUsage)
        .about("budget");
  }
}

}  // namespace pliant::sharded
