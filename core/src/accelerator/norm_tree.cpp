// NormTree, and the squared norm of arrays along it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

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

/// take(part) for each of them. Throws before the first unless they are all of `values`.
template <class Take>
void for_each_part(std::span<const float> values, std::span<const uint64_t> parts, Take&& take) {
  uint64_t left = values.size();
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i] > left) {
      throw Error(Status::kInvalidArgument,
                  fmt::format("part {} of an array has {} elements, but {} of its {} are left", i, parts[i], left,
                              values.size()));
    }
    left -= parts[i];
  }
  if (left != 0) {
    throw Error(Status::kInvalidArgument,
                fmt::format("the parts of an array of {} elements do not cover the last {}", values.size(), left));
  }
  for (const uint64_t part : parts) {
    take(values.first(part));
    values = values.subspan(part);
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
  for_each_part(values, parts, [&](std::span<const float> part) { add_chunks(tree, part); });
  return tree.sum();
}

double squared_norm(Stream& stream, std::span<const float> values, std::span<const uint64_t> parts) {
  uint64_t count = 0;
  for_each_part(values, parts, [&](std::span<const float> part) { count += norm_chunks(part.size()); });
  if (count == 0) return 0;
  const StreamBuffer there(stream, count * sizeof(double));
  auto* next = static_cast<double*>(there.pointer());
  for_each_part(values, parts, [&](std::span<const float> part) {
    squared_norms(stream, next, part.data(), part.size());
    next += norm_chunks(part.size());
  });
  std::vector<double> chunks(count);
  stream.copy(chunks.data(), there.pointer(), count * sizeof(double));
  stream.synchronize();
  NormTree tree;
  tree.add(chunks);
  return tree.sum();
}

}  // namespace pliant
