// The readers behind read_lengths. Those of binary files say where in a file which numbers lie; `name` begins messages.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "data/input_file.hpp"
#include "pliant/lengths.hpp"

namespace pliant::data {

/// What numbers lie back to back.
enum class Number { kU8, kI8, kI16, kI32, kI64, kU16, kU32, kU64, kF32, kF64 };
uint64_t width_of(Number type);

using SharedFile = std::shared_ptr<const FileBytes>;

/// Numbers in a file.
struct NumberArray {
  SharedFile file;
  std::string_view bytes;  ///< a whole number of numbers, within `file`
  Number type = Number::kI64;
  bool swapped = false;  ///< big-endian
  std::string name;
};

/// What a file counts for each sequence.
struct Counted {
  const char* what = "length";
  int64_t least = 1;  ///< the most is 2^31 - 1

  [[nodiscard]] bool admits(int64_t count) const;
  /// "a length is a whole number from 1 to 2147483647"
  [[nodiscard]] std::string rule() const;
};

/// kInvalidArgument names the index of a value that is no whole number of 63 bits.
Result<std::vector<int64_t>> whole_numbers(const NumberArray& array);
/// The same for one that `counted` does not admit. Large arrays that are as memory wants them are viewed, not copied.
Result<Lengths> lengths_in(const NumberArray& array, const Counted& counted);

Result<NumberArray> find_in_npy(const SharedFile& file, const std::string& name);
/// `path` is the .idx; the array is in the .bin beside it where the index is one of DeepSpeed's metric files.
Result<NumberArray> find_in_index(const SharedFile& file, const std::filesystem::path& path);
Result<Lengths> read_jsonl(const InputFile& file, const std::string& column, const Counted& counted,
                           const std::string& name);
Result<Lengths> read_text(const InputFile& file, const Counted& counted, const std::string& name);

/// Whether `file` is the data set that a job left in its run directory.
bool is_of_a_run(const std::filesystem::path& file);

/// Any of them, as its first bytes and its suffix say.
Result<Lengths> read_counts(const std::filesystem::path& given, const std::string& column, const Counted& counted);

tl::unexpected<Error> damaged(const std::string& name, const std::string& how);

}  // namespace pliant::data
