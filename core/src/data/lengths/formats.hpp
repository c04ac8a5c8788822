// The readers behind read_lengths. Those of binary files say where in a file which numbers lie; `name` begins messages.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "data/lengths/mapped_file.hpp"
#include "pliant/lengths.hpp"

namespace pliant::data {

/// What numbers lie back to back.
enum class Number { kU8, kI8, kI16, kI32, kI64, kU16, kU32, kU64, kF32, kF64 };
uint64_t width_of(Number type);

using SharedFile = std::shared_ptr<const MappedFile>;

/// Numbers in a file.
struct NumberArray {
  SharedFile file;
  std::string_view bytes;  ///< a whole number of numbers, within `file`
  Number type = Number::kI64;
  bool swapped = false;  ///< big-endian
  std::string name;
};

/// kInvalidArgument names the index of a value that is no whole number of 63 bits.
Result<std::vector<int64_t>> whole_numbers(const NumberArray& array);
/// The same for one that is no length. Large arrays that are as memory wants them are viewed, not copied.
Result<Lengths> lengths_in(const NumberArray& array);

Result<NumberArray> find_in_npy(const SharedFile& file, const std::string& name);
/// `path` is the .idx; the array is in the .bin beside it where the index is one of DeepSpeed's metric files.
Result<NumberArray> find_in_index(const SharedFile& file, const std::filesystem::path& path);
Result<Lengths> read_jsonl(std::string_view bytes, const std::string& column, const std::string& name);
Result<Lengths> read_text(std::string_view bytes, const std::string& name);

tl::unexpected<Error> damaged(const std::string& name, const std::string& how);

}  // namespace pliant::data
