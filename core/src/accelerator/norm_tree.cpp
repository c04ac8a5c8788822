// NormTree, and the squared norm of arrays along it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "pliant/error.hpp"
#include "pliant/optimizer.hpp"

namespace pliant {
namespace {

constexpr uint64_t kChunksAtOnce = 64;

void add_chunks(NormTree& tree, std::span<const float> values) {
  std::array<double, kChunksAtOnce> chunks{};
  while (!values.empty()) {
    const size_t count = std::min<size_t>(values.size(), kChunksAtOnce * kNormChunk);
    squared_norms(chunks.data(), values.data(), count);
    tree.add(std::span(chunks).first(norm_chunks(count)));
    values = values.subspan(count);
  }
}

}  // namespace

void NormTree::add(double chunk) {
  // The last of two neighbours makes their parent, which may be the last of two in its turn.
  for (uint64_t levels = count_; levels % 2 != 0; levels /= 2) {
    chunk = nodes_.back() + chunk;
    nodes_.pop_back();
  }
  nodes_.push_back(chunk);
  ++count_;
}

void NormTree::add(std::span<const double> chunks) {
  for (const double chunk : chunks) add(chunk);
}

double NormTree::sum() const {
  if (nodes_.empty()) return 0;
  double sum = nodes_.back();
  for (size_t i = nodes_.size() - 1; i > 0; --i) sum = nodes_[i - 1] + sum;
  return sum;
}

double squared_norm(std::span<const float> values) {
  NormTree tree;
  add_chunks(tree, values);
  return tree.sum();
}

double squared_norm(std::span<const float> values, std::span<const uint64_t> parts) {
  NormTree tree;
  std::span<const float> rest = values;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i] > rest.size()) {
      throw Error(Status::kInvalidArgument,
                  fmt::format("part {} of an array has {} elements, but {} of its {} are left", i, parts[i],
                              rest.size(), values.size()));
    }
    add_chunks(tree, rest.first(parts[i]));
    rest = rest.subspan(parts[i]);
  }
  if (!rest.empty()) {
    throw Error(Status::kInvalidArgument, fmt::format("the parts of an array of {} elements leave out {} at its end",
                                                      values.size(), rest.size()));
  }
  return tree.sum();
}

}  // namespace pliant
