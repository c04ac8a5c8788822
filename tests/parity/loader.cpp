// Rows of DeepSpeed's dataloader_for_variable_batch_size: what each rank gets in each iteration, and how long it is
// after padding, through padded_micro_batches().
#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "data/epoch_plan.hpp"
#include "parity/parity.hpp"
#include "pliant/micro_batches.hpp"

namespace pliant::parity {
namespace {

Dataset dataset_of(const Json& row) {
  using Length = std::decay_t<decltype(Dataset().lengths[0])>;
  Dataset dataset;
  dataset.lengths = row.at("seqlens").get<std::vector<Length>>();
  return dataset;
}

/// The row's micro-batches, each a row of ours, cut into the row's batches as Batches cuts an epoch.
std::vector<Batch> batches_of(const Json& row, const Dataset& dataset) {
  std::vector<data::RowBlock> blocks;
  for (const Json& micro_batch : row.at("microbatch_ids")) {
    blocks.resize(std::max(blocks.size(), micro_batch.at(0).get<size_t>() + 1));
    data::RowBlock& block = blocks[micro_batch.at(0).get<size_t>()];
    if (block.offsets.empty()) block.offsets.push_back(0);
    for (const Json& id : micro_batch.at(1)) block.ids.push_back(id.get<int64_t>());
    block.offsets.push_back(block.ids.size());
  }
  std::vector<Batch> batches;
  for (data::RowBlock& block : blocks) {
    batches.push_back(data::batch_of(std::move(block), dataset, {}, 0, static_cast<int64_t>(batches.size())));
  }
  return batches;
}

Json iterations(const std::vector<MicroBatch>& micro_batches) {
  Json list = Json::array();
  for (const MicroBatch& one : micro_batches) {
    Json samples = Json::array();
    for (size_t i = 0; i < one.ids.size(); ++i) samples.push_back(Json::array({one.ids[i], one.lengths.at(i)}));
    list.push_back(std::move(samples));
  }
  return list;
}

Outcome check_loader(const Json& row, Plugins& /*plugins*/, const Options& /*options*/) {
  const Dataset dataset = dataset_of(row);
  const std::vector<Batch> batches = batches_of(row, dataset);
  std::vector<int64_t> longest;
  longest.reserve(batches.size());
  for (const Batch& batch : batches) longest.push_back(batch.longest_entry);
  if (Json(longest) != row.at("batch_max_seqlens")) {
    return Outcome::failed(row.at("batch_max_seqlens").dump(), Json(longest).dump());
  }
  Layout layout;
  layout.world_size = row.at("num_replicas").get<int64_t>();
  layout.micro_batch = row.at("dataloader_batch_size").get<int64_t>();
  layout.rows = RowMap::kInterleaved;
  layout.padding.to = row.at("pad_to_batch_max").get<bool>() ? PadTo::kBatch : PadTo::kNothing;
  layout.even = true;
  Json ranks = Json::array();
  try {
    for (int64_t rank = 0; rank < layout.world_size; ++rank) {
      ranks.push_back(iterations(padded_micro_batches(batches, dataset, layout, rank)));
    }
  } catch (const Error& refused) {
    const auto rows = static_cast<int64_t>(row.at("microbatch_ids").size());
    const bool uneven = refused.status() == Status::kIncompatibleWorldSize && rows % layout.world_size != 0;
    return uneven ? Outcome::skipped("rows-used-twice") : Outcome::failed(row.at("out").dump(), refused.message());
  }
  const Json actual{{"per_rank", ranks}};
  return actual == row.at("out") ? Outcome::passed() : Outcome::failed(row.at("out").dump(), actual.dump());
}

}  // namespace

std::vector<RowKind> loader_rows() {
  return {{"loader",
           [](const Json& row) { return row.value("kind", "") == "loader"; },
           {{"rows-used-twice",
             "Rows that no even share can hold: DeepSpeed gives rows of the start of the epoch a second time, Pliant "
             "uses no row twice and refuses."}},
           &check_loader}};
}

}  // namespace pliant::parity
