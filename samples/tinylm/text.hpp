// Cuts plain text into sentences, the sequences that tinylm trains on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tinylm {

struct Sentence {
  std::string text;  ///< words with one space between them
  int64_t line = 0;  ///< where it begins, from 1
};

/// Offset of the first byte that is not part of valid UTF-8 text, control characters other than white space included.
std::optional<size_t> first_bad_byte(std::string_view text);

/// Paragraphs end at blank lines; inside them a sentence ends at a word with `.`, `!` or `?` at its end, unless it is a
/// known abbreviation or the next word goes on in lower case. Every word is in exactly one sentence, in order.
std::vector<Sentence> split_sentences(std::string_view text);

}  // namespace tinylm
