// Did-you-mean by restricted Damerau-Levenshtein distance.
#include "base/suggest.hpp"

#include <algorithm>
#include <utility>

namespace pliant {

namespace {

constexpr size_t kLongestWord = 200;  // longer words get no suggestion: the distance costs length squared
constexpr size_t kMostEdits = 4;

constexpr size_t kShortestPrefix = 4;

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

/// A word that was cut short: "max_train_batch" for "max_train_batch_size".
bool begins(std::string_view candidate, std::string_view word) {
  return word.size() >= kShortestPrefix && candidate.size() > word.size() && candidate.substr(0, word.size()) == word;
}

}  // namespace

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) above[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (same ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1]);
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(above);
    above.swap(row);
  }
  return above[b.size()];
}

std::vector<std::string> nearest(std::string_view word, const std::vector<std::string>& known, size_t most) {
  if (word.size() > kLongestWord) return {};
  const size_t limit = std::min(kMostEdits, word.size() / 2);
  std::vector<std::pair<size_t, std::string>> found;
  for (const std::string& candidate : known) {
    if (candidate.size() > kLongestWord) continue;
    const size_t distance = edit_distance(word, candidate);
    if (distance <= limit || begins(candidate, word)) found.emplace_back(distance, candidate);
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> words;
  for (auto& [distance, candidate] : found) {
    if (words.size() < most && (words.empty() || words.back() != candidate)) words.push_back(std::move(candidate));
  }
  return words;
}

}  // namespace pliant
