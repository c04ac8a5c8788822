// Writes the packs of a PackPlan as rows of items, in the order of the plan, at random or by their first item.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "best_fit.hpp"
#include "fast_shuffle.hpp"
#include "length_sort.hpp"
#include "pliant/sdk/batch_sampler.hpp"

namespace pliant::sampler {

namespace detail {

/// Takes sequences of each value in the order of `sorted`.
class PackWriter {
 public:
  PackWriter(const PackPlan& plan, const ByValue& sorted, sdk::EpochRows& rows)
      : positions_(sorted.positions.get()), next_(sorted.begins.begin(), sorted.begins.end()), rows_(rows) {
    begins_.reserve(plan.groups.size() + 1);
    for (const PackGroup& group : plan.groups) {
      begins_.push_back(values_.size());
      for (uint32_t p = group.begin; p < group.end; ++p) {
        values_.insert(values_.end(), plan.parts[p].times, plan.parts[p].group);
      }
    }
    begins_.push_back(values_.size());
    rows.ids.resize(sorted.begins.back());
    rows.offsets.resize(plan.packs + 1);
    id_ = rows.ids.data();
    offset_ = rows.offsets.data() + 1;
  }
  void write(uint32_t group) {
    const uint32_t* const end = values_.data() + begins_[group + 1];
    for (const uint32_t* value = values_.data() + begins_[group]; value != end; ++value) {
      *id_++ = positions_[next_[*value]++];
    }
    *offset_++ = static_cast<uint64_t>(id_ - rows_.ids.data());
  }

 private:
  const uint32_t* positions_;
  std::vector<uint32_t> next_;    ///< of each value: its next sequence
  std::vector<uint32_t> values_;  ///< of the sequences of one pack of each group; not more than there are sequences
  std::vector<size_t> begins_;
  sdk::EpochRows& rows_;
  int64_t* id_ = nullptr;
  uint64_t* offset_ = nullptr;
};

}  // namespace detail

/// `rows` is empty before.
inline void emit_as_planned(const PackPlan& plan, const ByValue& sorted, sdk::EpochRows& rows) {
  detail::PackWriter writer(plan, sorted, rows);
  for (uint32_t group = 0; group < plan.groups.size(); ++group) {
    for (uint64_t pack = 0; pack < plan.groups[group].count; ++pack) writer.write(group);
  }
}

/// Shuffles the sequences of each value, then the packs. Packs of a group differ in nothing but their sequences, so a
/// random order of groups, each taking the next sequences, is a random order of packs, and reads and writes in order.
inline void emit_at_random(const PackPlan& plan, ByValue& sorted, uint64_t seed, uint64_t epoch, sdk::EpochRows& rows) {
  enum Purpose : uint64_t { kSequences = 1, kPacks = 2 };
  KeyedRandom of_sequences(seed, epoch, kSequences);
  for (size_t g = 0; g < sorted.groups(); ++g) {
    fast_shuffle(std::span(sorted.positions.get() + sorted.begins[g], sorted.count(g)), of_sequences);
  }
  std::unique_ptr<uint32_t[]> order(new uint32_t[plan.packs]);
  uint32_t* at = order.get();
  for (uint32_t group = 0; group < plan.groups.size(); ++group) at = std::fill_n(at, plan.groups[group].count, group);
  KeyedRandom of_packs(seed, epoch, kPacks);
  fast_shuffle(std::span(order.get(), plan.packs), of_packs);
  detail::PackWriter writer(plan, sorted, rows);
  for (uint64_t pack = 0; pack < plan.packs; ++pack) writer.write(order[pack]);
}

/// Puts the rows into the order of their smallest item, and the items of each row into ascending order. Rows hold each
/// of the items 0 .. count-1 once; fewer than 2^32.
inline void sort_by_first_item(size_t count, sdk::EpochRows& rows) {
  std::vector<uint32_t> row_of(count);
  for (size_t row = 0; row < rows.row_count(); ++row) {
    for (uint64_t i = rows.offsets[row]; i < rows.offsets[row + 1]; ++i) {
      row_of[static_cast<size_t>(rows.ids[i])] = static_cast<uint32_t>(row);
    }
  }
  std::vector<uint32_t> sizes(rows.row_count());
  for (size_t row = 0; row < sizes.size(); ++row) {
    sizes[row] = static_cast<uint32_t>(rows.offsets[row + 1] - rows.offsets[row]);
  }
  std::vector<uint64_t> begins(sizes.size(), ~uint64_t{0});
  uint64_t end = 0;
  size_t row_at = 0;
  for (size_t item = 0; item < count; ++item) {
    const uint32_t row = row_of[item];
    if (begins[row] == ~uint64_t{0}) {
      begins[row] = end;
      end += sizes[row];
      rows.offsets[++row_at] = end;
    }
    rows.ids[begins[row]++] = static_cast<int64_t>(item);
  }
}

}  // namespace pliant::sampler
