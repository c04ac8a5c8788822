// Subword tokeniser: byte-pair pieces learnt from the text itself. Every byte is a piece, so no text is unknown to it.
//
// Own code because SentencePiece and libtorch, as Debian builds them, crash in one process: both bring a protobuf.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "model.hpp"
#include "text.hpp"

namespace tinylm {

class Tokeniser {
 public:
  static constexpr Token kBegin = 256;
  static constexpr Token kEnd = 257;
  /// Bytes, begin and end; learnt pieces follow.
  static constexpr int64_t kFirstLearnt = 258;

  /// Learns pieces until there are `vocab` in all, or no two pieces stand side by side twice. The same sentences give
  /// the same pieces everywhere.
  static Tokeniser learn(const std::vector<Sentence>& sentences, int64_t vocab);

  /// `saved` is what save returned. Throws pliant::Error when it is damaged.
  explicit Tokeniser(std::string_view saved);
  [[nodiscard]] std::string save() const;

  [[nodiscard]] int64_t vocab() const { return kFirstLearnt + static_cast<int64_t>(merges_.size()); }
  /// kBegin, the pieces of `sentence` (words with one space between them), kEnd.
  [[nodiscard]] std::vector<Token> encode(std::string_view sentence) const;
  [[nodiscard]] std::string decode(Sequence tokens) const;

 private:
  Tokeniser() = default;
  void add_merge(Token left, Token right);
  [[nodiscard]] std::vector<Token> pieces_of(std::string_view word) const;

  std::vector<std::pair<Token, Token>> merges_;  ///< piece kFirstLearnt + i joins these two
  std::unordered_map<uint32_t, Token> joined_;   ///< (left, right) to that piece
  std::vector<std::string> bytes_of_piece_;
};

}  // namespace tinylm
