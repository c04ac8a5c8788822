// Token counts of the sequences of a data set: a shared view of them, and the files that other tools leave behind.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace pliant {

/// One count for each sequence, in the order of the data set: 4 bytes each, never changed, and shared by its copies. A
/// view of a vector of its own, of a file that was read, or of memory that the program owns.
class Lengths {
 public:
  Lengths() = default;
  Lengths(std::vector<int32_t> values);  // NOLINT(google-explicit-constructor): a vector is lengths
  Lengths(std::initializer_list<int32_t> values);
  /// Views `values` and keeps `owner`, which their memory belongs to, as long as a copy is there.
  Lengths(std::span<const int32_t> values, std::shared_ptr<const void> owner);
  /// Throws kOutOfRange (kInput), which names the first of `values` that does not fit 32 bits.
  static Lengths from(std::span<const int64_t> values);

  [[nodiscard]] size_t size() const noexcept { return values_.size(); }
  [[nodiscard]] bool empty() const noexcept { return values_.empty(); }
  [[nodiscard]] int32_t operator[](size_t i) const { return values_[i]; }
  [[nodiscard]] const int32_t* data() const noexcept { return values_.data(); }
  [[nodiscard]] auto begin() const noexcept { return values_.begin(); }
  [[nodiscard]] auto end() const noexcept { return values_.end(); }
  [[nodiscard]] std::span<const int32_t> view() const noexcept { return values_; }
  friend bool operator==(const Lengths& a, const Lengths& b);

 private:
  std::shared_ptr<const void> owner_;
  std::span<const int32_t> values_;
};

/// Lengths of all sequences, in the order of the file. What the file is, its first bytes and its suffix say:
///   .npy          a one-dimensional numpy array of integers, or of floats that are whole numbers
///   .idx, .bin    DeepSpeed's metric files (MMIDIDX, the lengths are in the .bin beside), or the index of a Megatron
///                 data set (MMIDIDX, the lengths are in the .idx itself)
///   .i32, .i64    integers back to back, little-endian
///   .jsonl        an object in every line; `column` holds a number, or a list whose size counts
///   .txt          a number in every line; blank lines are skipped
///   dataset.bin   what a job leaves in its run directory
///   a folder      DeepSpeed's metrics_path: seqlen/seqlen_sample_to_metric.idx in it, or the same without seqlen/
/// Read into memory, so that nothing depends on the file afterwards; one that changes meanwhile is an error. O(n).
/// Throws (kInput) with the file and, where there is one, the position: kNotFound; kDataLoss for a file that is cut
/// off, too long, byte-swapped or of another kind; kInvalidArgument for a value that is no length: 1 .. 2^31 - 1.
Lengths read_lengths(const std::filesystem::path& file, const std::string& column = "length");

/// The values of DeepSpeed's metric files, `stem`.bin and `stem`.idx: any whole numbers. Throws as above.
std::vector<int64_t> read_metric_files(const std::filesystem::path& stem);

/// Writes `values` as DeepSpeed's metric files, `stem`.bin and `stem`.idx, byte for byte as DeepSpeed writes them: the
/// narrowest unsigned type that fits, or the narrowest signed one if a value is negative. Throws as above.
void write_metric_files(const std::filesystem::path& stem, const std::vector<int64_t>& values);

}  // namespace pliant
