// Rows and costs that a program made beforehand, as arrays: what sampler `rows` makes its batches of.
//
//   pliant::Dataset dataset{lengths};
//   dataset.rows = {{0, 2, 3}, {4, 0, 7}};  // row 0 is sequences 4 and 0, row 1 is sequence 7
//   pliant::Batches batches(config, plan, dataset);
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace pliant {

/// Whole numbers of 64 bits, never changed, and shared by copies. A view of a vector of its own, of a file that was
/// read, or of memory that the program owns.
class Integers {
 public:
  Integers() = default;
  Integers(std::vector<int64_t> values);  // NOLINT(google-explicit-constructor): a vector is integers
  Integers(std::initializer_list<int64_t> values);
  /// Views `values` and keeps `owner`, which their memory belongs to, as long as a copy is there.
  Integers(std::span<const int64_t> values, std::shared_ptr<const void> owner);

  [[nodiscard]] size_t size() const noexcept { return values_.size(); }
  [[nodiscard]] bool empty() const noexcept { return values_.empty(); }
  [[nodiscard]] int64_t operator[](size_t i) const { return values_[i]; }
  [[nodiscard]] const int64_t* data() const noexcept { return values_.data(); }
  [[nodiscard]] auto begin() const noexcept { return values_.begin(); }
  [[nodiscard]] auto end() const noexcept { return values_.end(); }
  [[nodiscard]] std::span<const int64_t> view() const noexcept { return values_; }
  friend bool operator==(const Integers& a, const Integers& b);

 private:
  std::shared_ptr<const void> owner_;
  std::span<const int64_t> values_;
};

/// Row i holds the sequences ids[offsets[i]] .. ids[offsets[i + 1] - 1], whole and in that order. Offsets begin with 0,
/// ascend, no two alike, and end with the number of ids; a sequence is in one row, or in none.
struct GivenRows {
  Integers offsets;
  Integers ids;
  std::string offsets_source = {};  ///< what messages call them: the files that they were read from
  std::string ids_source = {};

  [[nodiscard]] bool empty() const noexcept { return offsets.empty() && ids.empty(); }
  [[nodiscard]] size_t count() const noexcept { return offsets.empty() ? 0 : offsets.size() - 1; }
};

/// The costs as whole numbers: those that are whole already as they are, else all times one power of two, so that the
/// largest has 41 bits. The same on every machine. Throws kInvalidArgument (kInput), which names the first that is not
/// finite or below 0, and calls them `name`.
Integers whole_costs(std::span<const double> costs, const std::string& name = "costs");

}  // namespace pliant
