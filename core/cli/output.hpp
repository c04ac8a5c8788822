// stdout is the result, stderr everything else.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "commands.hpp"

namespace pliant::cli {

/// Writes `text` to stdout, as printable() makes it, and flushes. The exit code: 0; 141 without a word when the reader
/// has gone; 1 with a message when it cannot be written (a full disk).
int emit(std::string_view text);

/// Writes to stderr, as it is: words from outside go through printable() first. What cannot be written there is lost:
/// no job ends because nobody reads.
void note(std::string_view text) noexcept;

/// True when stderr should be coloured.
bool colored(const Invocation& invocation);

/// One line or block to stderr, as printable() makes it; the first "error:" or "warning:" in it is coloured when asked
/// for.
void complain(const Invocation& invocation, std::string_view text);

/// 1234567 as 1,234,567.
std::string grouped(int64_t number);
/// "1 row", "1,234,567 rows"; `unit` forms its plural with s, or es after ch.
std::string counted(int64_t number, std::string_view unit);

/// Columns padded to their widest cell, two spaces apart, one row a line: the first `texts` on the right, numbers
/// behind them on the left. No blanks at the end of a line.
std::string table(const std::vector<std::vector<std::string>>& rows, size_t texts = SIZE_MAX);

}  // namespace pliant::cli
