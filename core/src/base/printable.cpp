#include "base/printable.hpp"

#include <fmt/format.h>

namespace pliant {

namespace {

/// The code point of a character of `size` bytes.
unsigned code_of(std::string_view character) {
  const auto byte = [&](size_t i) { return static_cast<unsigned>(static_cast<unsigned char>(character[i])); };
  if (character.size() == 1) return byte(0);
  unsigned code = byte(0) & (0xFFU >> (character.size() + 1));
  for (size_t i = 1; i < character.size(); ++i) code = code << 6U | (byte(i) & 0x3FU);
  return code;
}

bool obeyed(unsigned code) {
  if (code == '\n' || code == '\t') return false;
  const bool control = code < 0x20 || (code >= 0x7F && code < 0xA0);
  const bool turns = (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
  return control || turns;
}

}  // namespace

size_t character_size(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const unsigned first = byte(at);
  if (first < 0x80) return 1;
  const size_t size = first >= 0xC2 && first <= 0xDF   ? 2
                      : (first & 0xF0U) == 0xE0        ? 3
                      : first >= 0xF0 && first <= 0xF4 ? 4
                                                       : 0;
  for (size_t i = 1; i < size; ++i) {
    if ((byte(at + i) & 0xC0U) != 0x80) return 0;
  }
  const unsigned second = byte(at + 1);
  if (first == 0xE0 && second < 0xA0) return 0;  // longer than needed
  if (first == 0xED && second > 0x9F) return 0;  // a surrogate
  if (first == 0xF0 && second < 0x90) return 0;
  if (first == 0xF4 && second > 0x8F) return 0;
  return size;
}

std::string printable(std::string_view text) {
  std::string shown;
  shown.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t size = character_size(text, at);
    const unsigned code = size == 0 ? 0 : code_of(text.substr(at, size));
    if (size == 0) {
      shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[at]));
    } else if (!obeyed(code)) {
      shown += text.substr(at, size);
    } else {
      shown += code == '\r' ? std::string("\\r") : fmt::format("\\u{:04x}", code);
    }
    at += size == 0 ? 1 : size;
  }
  return shown;
}

}  // namespace pliant
