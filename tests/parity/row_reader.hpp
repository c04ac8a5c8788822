// Rows of a golden file: lines of JSON as Python writes them, plain or compressed.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "parity/parity.hpp"

namespace pliant::parity {

/// One JSON text by Python's rules: integers of any size, NaN and Infinity, lone surrogates. nullopt when it is none.
std::optional<Json> parse_row(std::string_view text);

/// Line by line; a file of any length takes the memory of one line.
class LineReader {
 public:
  static Result<LineReader> open(const std::filesystem::path& file);
  ~LineReader();
  LineReader(LineReader&&) noexcept;

  /// The next line without its end; nullopt after the last one. An error for a damaged file.
  Result<std::optional<std::string>> next();

 private:
  struct State;
  explicit LineReader(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace pliant::parity
