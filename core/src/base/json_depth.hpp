// How deep a JSON text nests, found before a parser spends a hundred bytes on every bracket of it.
#pragma once

#include <string_view>

namespace pliant {

/// True when `text` opens more than `most` arrays and objects inside one another. It need not be JSON.
inline bool nests_deeper(std::string_view text, int most) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      if (++depth > most) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

}  // namespace pliant
