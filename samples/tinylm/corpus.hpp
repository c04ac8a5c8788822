// Corpus: a text as token sequences, computed once and kept in the cache directory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "model.hpp"

namespace tinylm {

/// What becomes of a sentence with more tokens than the model has positions.
enum class LongSequences { kRefuse, kSplit };

struct CorpusOptions {
  std::filesystem::path text;  ///< UTF-8; empty = the default text
  int64_t vocab = 0;
  int64_t max_sequence = 0;
  LongSequences long_sequences = LongSequences::kRefuse;
};

/// One sequence per sentence, in the order of the text.
struct Corpus {
  std::vector<Token> tokens;         ///< of all sequences, end to end
  std::vector<uint64_t> offsets{0};  ///< size() + 1 entries into tokens
  std::vector<int64_t> lines;        ///< of the text, where each sequence begins
  std::filesystem::path tokeniser;   ///< file with the saved tokeniser
  uint64_t digest = 0;               ///< of the text

  [[nodiscard]] size_t size() const { return lines.size(); }
  [[nodiscard]] Sequence sequence(size_t i) const {
    return Sequence(tokens).subspan(offsets[i], offsets[i + 1] - offsets[i]);
  }
};

/// Reads the cache, or fills it: of several processes that start at once, one works and the others wait. Throws
/// pliant::Error with kInput for a text that is missing, empty, not UTF-8, without words, or with a sentence that does
/// not fit.
Corpus open_corpus(const CorpusOptions& options);

}  // namespace tinylm
