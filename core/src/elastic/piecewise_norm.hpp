// PiecewiseNorm: the squared norm of a gradient that arrives in pieces.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace pliant::elastic {

/// The bits are those of squared_norm (pliant/optimizer.hpp) of the whole, whatever the pieces and their order. Keeps
/// a number for each chunk, and the elements of those chunks that pieces cut.
class PiecewiseNorm {
 public:
  PiecewiseNorm() = default;
  /// `parts`: elements of the parameters that the gradient consists of, in order.
  explicit PiecewiseNorm(std::span<const uint64_t> parts);

  /// Forgets what was added.
  void clear();
  /// Elements [offset, offset + values.size()) of the gradient, none of which was added before.
  void add(uint64_t offset, std::span<const float> values);
  /// Of all elements, each of which was added.
  [[nodiscard]] double sum() const;

 private:
  struct Part {
    uint64_t first = 0;        ///< element
    uint64_t first_chunk = 0;  ///< of all parts' chunks
  };
  /// A chunk that is not there as a whole.
  struct Cut {
    std::vector<float> values;
    uint64_t there = 0;  ///< of them
  };

  void add_to_part(const Part& part, uint64_t size, uint64_t offset, std::span<const float> values);

  std::vector<Part> parts_;  ///< and one that says where the last ends
  std::vector<double> chunks_;
  std::map<uint64_t, Cut> cut_;  ///< by chunk
};

}  // namespace pliant::elastic
