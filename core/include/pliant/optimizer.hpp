// What optimizers compute on a device, defined to the bit: AdamW and squared norms. The bits depend neither on the
// device, nor on where an array is cut, so that shards give what the whole gives.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pliant/accelerator.hpp"

namespace pliant {

/// One update of AdamW (Loshchilov and Hutter, 2019): for each weight w with gradient, first moment m, second moment v
///   g = gradient * gradient_scale
///   m = beta1 * m + (1 - beta1) * g
///   v = beta2 * v + ((1 - beta2) * g) * g
///   w = w - ((rate * m) / (sqrt(v) * correction + epsilon) + decay * w)
/// in f32, each operation rounded once, none fused with another.
struct AdamWUpdate {
  float gradient_scale = 1;  ///< such as that of clipping
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  float rate = 0;        ///< learning rate / (1 - the product of all beta1 so far, this one too)
  float correction = 1;  ///< 1 / sqrt(1 - the product of all beta2 so far, this one too)
  float epsilon = 1e-8F;
  float decay = 0;  ///< learning rate * weight decay; 0 for weights that do not decay
};

/// What an update works on: `count` elements of each array. No two arrays overlap.
struct AdamWArrays {
  float* weights = nullptr;
  const float* gradient = nullptr;
  float* first_moment = nullptr;
  float* second_moment = nullptr;
  uint64_t count = 0;
};

/// Enqueues the update of arrays in device or pinned memory. Where the accelerator has no pliant.optimizer/0 the call
/// waits for the stream and computes on the calling thread. Throws kInvalidArgument for arrays that are NULL or
/// overlap.
void adamw(Stream& stream, const AdamWUpdate& update, const AdamWArrays& arrays);
/// The same at once, in memory that the CPU reads and writes.
void adamw(const AdamWUpdate& update, const AdamWArrays& arrays);

/// Floats whose squares are added to one number first: a chunk. An array is cut into chunks from its first element;
/// its last chunk may be short.
inline constexpr uint64_t kNormChunk = 1024;
/// How many chunks `count` floats are.
constexpr uint64_t norm_chunks(uint64_t count) {
  return count / kNormChunk + (count % kNormChunk != 0 ? 1 : 0);
}

/// Enqueues to[i] = the squared norm of the i-th chunk at `from`, in the order that squared_norms_async of
/// pliant/abi/optimizer.h says; finite exactly where the whole chunk is. Both lie in device or pinned memory and do not
/// overlap; `to` has norm_chunks(count) elements. Without pliant.optimizer/0 as adamw.
void squared_norms(Stream& stream, double* to, const float* from, uint64_t count);
/// The same at once, in memory that the CPU reads and writes.
void squared_norms(double* to, const float* from, uint64_t count);

/// Adds the numbers of chunks along one fixed binary tree over all of them: node (level l, index i) covers chunks
/// [i*2^l, (i+1)*2^l) and is left + right, or the one child that exists. Several arrays, such as the parameters of a
/// model, are the list of the first one's chunks, then those of the second, and so on. So every division of whole
/// chunks over ranks gives the same bits, once their numbers are collected in order.
class NormTree {
 public:
  /// The next chunks, in order. O(chunks) in all, O(log chunks) of memory.
  void add(std::span<const double> chunks);
  void add(double chunk);
  /// Of all that was added so far; 0 of nothing.
  [[nodiscard]] double sum() const;

 private:
  uint64_t count_ = 0;
  std::vector<double> nodes_;  // of falling level: one for each 1 in the binary digits of count_
};

/// The squared norm of an array in memory that the CPU reads.
[[nodiscard]] double squared_norm(std::span<const float> values);
/// The same of several arrays that lie one behind the other in `values`, of so many elements each. Throws
/// kInvalidArgument unless they are all of `values`.
[[nodiscard]] double squared_norm(std::span<const float> values, std::span<const uint64_t> parts);
/// The same of an array in device or pinned memory, as what was enqueued on the stream before leaves it. Waits for
/// that; only the chunks' numbers travel to the host.
[[nodiscard]] double squared_norm(Stream& stream, std::span<const float> values, std::span<const uint64_t> parts);

}  // namespace pliant
