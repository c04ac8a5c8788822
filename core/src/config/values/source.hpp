// Reading a config file, and refusing what no TOML parser should be asked to read.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/printable.hpp"
#include "base/result.hpp"
#include "config/values/diagnostics.hpp"

namespace pliant::config {

/// A config larger than this is refused unread.
constexpr size_t kLargestFile = size_t{4} << 20;
/// Lists, inline tables and dotted keys inside each other.
constexpr int kDeepest = 64;

/// The bytes of `file`; reads at most kLargestFile + 1 of them. A pipe is read to its end while
/// somebody has it open for writing, and refused when nobody has. Errors have Origin::kInput.
Result<std::string> read_text(const std::filesystem::path& file);

using pliant::character_size;

/// What is wrong with `text` before its grammar: not UTF-8, control characters, letters outside ASCII where TOML has no
/// place for them, nesting deeper than kDeepest. nullopt when nothing is.
std::optional<Finding> text_objection(std::string_view text);

}  // namespace pliant::config
