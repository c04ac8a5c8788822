// The readers behind read_lengths. Each takes the bytes of one file; `name` begins its messages.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace pliant::data {

using Lengths = std::vector<int64_t>;

/// What numbers lie back to back.
enum class Number { kU8, kI8, kI16, kI32, kI64, kU16, kU32, kU64, kF32, kF64 };
uint64_t width_of(Number type);

/// `bytes` as numbers; big-endian ones when `swapped`. kInvalidArgument names the index of one that is no whole number.
Result<Lengths> numbers(std::string_view bytes, Number type, bool swapped, const std::string& name);

Result<Lengths> read_npy(std::string_view bytes, const std::string& name);
/// `file` is the .idx; the .bin beside it is read where the index is one of DeepSpeed's metric files.
Result<Lengths> read_index(const std::filesystem::path& file, std::string_view bytes);
Result<Lengths> read_jsonl(std::string_view bytes, const std::string& column, const std::string& name);
Result<Lengths> read_text(std::string_view bytes, const std::string& name);

tl::unexpected<Error> damaged(const std::string& name, const std::string& how);

}  // namespace pliant::data
