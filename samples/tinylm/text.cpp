// A sentence splitter for prose, and a UTF-8 check.
#include "text.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace tinylm {
namespace {

constexpr std::array<std::string_view, 12> kAbbreviations = {"Mr.",  "Mrs.",  "Ms.", "Dr.",   "St.",     "Esq.",
                                                             "Col.", "Capt.", "Lt.", "Prof.", "Messrs.", "No."};

bool is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}
bool is_upper(char c) {
  return c >= 'A' && c <= 'Z';
}
bool is_lower(char c) {
  return c >= 'a' && c <= 'z';
}

/// Without the quotes and brackets around it.
std::string_view bare(std::string_view word) {
  const size_t first = word.find_first_not_of("\"'([_*");
  if (first == std::string_view::npos) return {};
  return word.substr(first, word.find_last_not_of("\"')]_*") + 1 - first);
}

bool ends_sentence(std::string_view word, std::string_view next) {
  const std::string_view core = bare(word);
  if (core.empty() || (core.back() != '.' && core.back() != '!' && core.back() != '?')) return false;
  const std::string_view following = bare(next);
  if (!following.empty() && is_lower(following.front())) return false;
  const bool initial = core.size() == 2 && is_upper(core.front()) && core.back() == '.' && core.front() != 'I';
  return !initial && std::find(kAbbreviations.begin(), kAbbreviations.end(), core) == kAbbreviations.end();
}

/// Length of the valid UTF-8 character at the front of `text`, 0 when there is none.
size_t character_length(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  if (lead < 0x80) return lead >= 0x20 || is_space(text.front()) ? 1 : 0;
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return 0;
  uint32_t code = lead & (0xFFU >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte & 0xC0) != 0x80) return 0;
    code = (code << 6) | (byte & 0x3FU);
  }
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  return overlong || surrogate || code > 0x10FFFF ? 0 : length;
}

struct Word {
  std::string_view text;
  int64_t line;
  bool opens_paragraph;
};

std::vector<Word> words_of(std::string_view text) {
  std::vector<Word> words;
  int64_t line = 1;
  int newlines = 2;
  for (size_t at = 0; at < text.size();) {
    if (is_space(text[at])) {
      if (text[at] == '\n') {
        ++line;
        ++newlines;
      }
      ++at;
      continue;
    }
    size_t end = at;
    while (end < text.size() && !is_space(text[end])) ++end;
    words.push_back({text.substr(at, end - at), line, newlines >= 2});
    newlines = 0;
    at = end;
  }
  return words;
}

}  // namespace

std::optional<size_t> first_bad_byte(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t length = character_length(text.substr(at));
    if (length == 0) return at;
    at += length;
  }
  return std::nullopt;
}

std::vector<Sentence> split_sentences(std::string_view text) {
  const std::vector<Word> words = words_of(text);
  std::vector<Sentence> sentences;
  Sentence open;
  for (size_t i = 0; i < words.size(); ++i) {
    if (open.text.empty()) {
      open.line = words[i].line;
    } else {
      open.text += ' ';
    }
    open.text += words[i].text;
    const bool last = i + 1 == words.size() || words[i + 1].opens_paragraph;
    if (last || ends_sentence(words[i].text, words[i + 1].text)) sentences.push_back(std::exchange(open, {}));
  }
  return sentences;
}

}  // namespace tinylm
