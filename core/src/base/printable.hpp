// Text from outside (files, workers, plugins) on its way to a terminal or a log.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace pliant {

/// Bytes of the UTF-8 character at byte `at` of `text`, or 0 when there is none.
size_t character_size(std::string_view text, size_t at);

/// `text` without anything that a terminal obeys: UTF-8, newline and tab stay; other control characters and those that
/// turn the direction of writing become \r, \u001b and the like, bytes that are no UTF-8 become \xff. What stands in a
/// string of JSON or TOML keeps its meaning there. O(bytes).
std::string printable(std::string_view text);

}  // namespace pliant
