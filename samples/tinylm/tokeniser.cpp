// Byte-pair encoding: the most frequent pair of neighbouring pieces becomes a piece, again and again.
#include "tokeniser.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <pliant/error.hpp>
#include <queue>

namespace tinylm {
namespace {

constexpr std::string_view kTokeniserMagic = "tinybpe1";
/// Longer runs without a space are cut, so that no input makes encoding slow.
constexpr size_t kLongestWord = 64;

uint32_t pair_key(Token left, Token right) {
  return (static_cast<uint32_t>(left) << 16) | right;
}

bool is_word_byte(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x80 || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9');
}

/// Calls visit(word) for runs of letters and digits and runs of anything else; a run keeps the space before it.
template <class Visit>
void for_each_word(std::string_view sentence, Visit&& visit) {
  for (size_t at = 0; at < sentence.size();) {
    size_t end = at + (sentence[at] == ' ' ? 1 : 0);
    if (end == sentence.size()) return;
    const bool letters = is_word_byte(sentence[end]);
    while (end < sentence.size() && end - at < kLongestWord && sentence[end] != ' ' &&
           is_word_byte(sentence[end]) == letters) {
      ++end;
    }
    visit(sentence.substr(at, end - at));
    at = end;
  }
}

/// The distinct words of a text as pieces, and how often each pair of pieces stands side by side.
class PairCounts {
 public:
  explicit PairCounts(const std::map<std::string, int64_t, std::less<>>& words) {
    for (const auto& [word, count] : words) {
      std::vector<Token> pieces;
      for (const char byte : word) pieces.push_back(static_cast<unsigned char>(byte));
      words_.push_back({std::move(pieces), count});
      change_pairs(words_.size() - 1, count);
    }
    publish();
  }

  /// The pair that occurs most often, the smallest of equals; false when none occurs twice.
  bool most_frequent(Token& left, Token& right) {
    while (!queue_.empty()) {
      const auto [count, inverse] = queue_.top();
      const uint32_t key = ~inverse;
      if (count == counts_[key]) {
        left = static_cast<Token>(key >> 16);
        right = static_cast<Token>(key & 0xFFFF);
        return count >= 2;
      }
      queue_.pop();
    }
    return false;
  }

  void merge(Token left, Token right, Token piece) {
    std::vector<size_t> places = std::move(places_[pair_key(left, right)]);
    std::sort(places.begin(), places.end());
    places.erase(std::unique(places.begin(), places.end()), places.end());
    for (const size_t place : places) {
      change_pairs(place, -words_[place].count);
      std::vector<Token>& pieces = words_[place].pieces;
      size_t kept = 0;
      for (size_t i = 0; i < pieces.size(); ++i) {
        const bool joins = i + 1 < pieces.size() && pieces[i] == left && pieces[i + 1] == right;
        pieces[kept++] = joins ? piece : pieces[i];
        if (joins) ++i;
      }
      pieces.resize(kept);
      change_pairs(place, words_[place].count);
    }
    publish();
  }

 private:
  struct Word {
    std::vector<Token> pieces;
    int64_t count;
  };

  void change_pairs(size_t place, int64_t by) {
    const std::vector<Token>& pieces = words_[place].pieces;
    for (size_t i = 0; i + 1 < pieces.size(); ++i) {
      const uint32_t key = pair_key(pieces[i], pieces[i + 1]);
      counts_[key] += by;
      changed_.push_back(key);
      if (by > 0) places_[key].push_back(place);
    }
  }

  /// Queues the present counts of the pairs that changed; older entries of theirs are skipped when they come up.
  void publish() {
    std::sort(changed_.begin(), changed_.end());
    changed_.erase(std::unique(changed_.begin(), changed_.end()), changed_.end());
    for (const uint32_t key : changed_) queue_.push({counts_[key], ~key});
    changed_.clear();
  }

  std::vector<Word> words_;
  std::unordered_map<uint32_t, int64_t> counts_;
  std::unordered_map<uint32_t, std::vector<size_t>> places_;  ///< words that held the pair at some time
  std::priority_queue<std::pair<int64_t, uint32_t>> queue_;   ///< (count, ~key): the smallest key of equals comes first
  std::vector<uint32_t> changed_;
};

}  // namespace

void Tokeniser::add_merge(Token left, Token right) {
  if (bytes_of_piece_.empty()) {
    for (int byte = 0; byte < 256; ++byte) bytes_of_piece_.emplace_back(1, static_cast<char>(byte));
    bytes_of_piece_.resize(static_cast<size_t>(kFirstLearnt));
  }
  joined_.emplace(pair_key(left, right), static_cast<Token>(vocab()));
  merges_.emplace_back(left, right);
  bytes_of_piece_.push_back(bytes_of_piece_[left] + bytes_of_piece_[right]);
}

Tokeniser Tokeniser::learn(const std::vector<Sentence>& sentences, int64_t vocab) {
  std::map<std::string, int64_t, std::less<>> words;
  for (const Sentence& sentence : sentences) {
    for_each_word(sentence.text, [&](std::string_view word) {
      const auto found = words.find(word);
      if (found == words.end()) {
        words.emplace(word, 1);
      } else {
        ++found->second;
      }
    });
  }
  Tokeniser made;
  PairCounts pairs(words);
  Token left = 0;
  Token right = 0;
  while (made.vocab() < vocab && pairs.most_frequent(left, right)) {
    const auto piece = static_cast<Token>(made.vocab());
    made.add_merge(left, right);
    pairs.merge(left, right, piece);
  }
  return made;
}

Tokeniser::Tokeniser(std::string_view saved) {
  const pliant::Error damaged(pliant::Status::kDataLoss, "the saved tokeniser is damaged");
  if (saved.substr(0, kTokeniserMagic.size()) != kTokeniserMagic) throw damaged;
  saved.remove_prefix(kTokeniserMagic.size());
  constexpr size_t kMost = (size_t{std::numeric_limits<Token>::max()} + 1 - size_t{kFirstLearnt}) * 2 * sizeof(Token);
  if (saved.size() % (2 * sizeof(Token)) != 0 || saved.size() > kMost) throw damaged;
  for (; !saved.empty(); saved.remove_prefix(2 * sizeof(Token))) {
    Token pair[2];
    std::memcpy(pair, saved.data(), sizeof(pair));
    if (pair[0] >= vocab() || pair[1] >= vocab()) throw damaged;
    add_merge(pair[0], pair[1]);
  }
}

std::string Tokeniser::save() const {
  std::string saved(kTokeniserMagic);
  for (const auto& [left, right] : merges_) {
    const Token pair[2] = {left, right};
    saved.append(reinterpret_cast<const char*>(pair), sizeof(pair));
  }
  return saved;
}

std::vector<Token> Tokeniser::pieces_of(std::string_view word) const {
  std::vector<Token> pieces;
  for (const char byte : word) pieces.push_back(static_cast<unsigned char>(byte));
  while (true) {
    Token earliest = std::numeric_limits<Token>::max();
    size_t at = 0;
    for (size_t i = 0; i + 1 < pieces.size(); ++i) {
      const auto found = joined_.find(pair_key(pieces[i], pieces[i + 1]));
      if (found != joined_.end() && found->second < earliest) {
        earliest = found->second;
        at = i;
      }
    }
    if (earliest == std::numeric_limits<Token>::max()) return pieces;
    pieces[at] = earliest;
    pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

std::vector<Token> Tokeniser::encode(std::string_view sentence) const {
  std::vector<Token> tokens{kBegin};
  for_each_word(sentence, [&](std::string_view word) {
    const std::vector<Token> pieces = pieces_of(word);
    tokens.insert(tokens.end(), pieces.begin(), pieces.end());
  });
  tokens.push_back(kEnd);
  return tokens;
}

std::string Tokeniser::decode(Sequence tokens) const {
  std::string text;
  for (const Token token : tokens) {
    if (token < 256) {
      text += static_cast<char>(token);
    } else if (token < bytes_of_piece_.size()) {
      text += bytes_of_piece_[token];
    }
  }
  return text;
}

}  // namespace tinylm
