// Did-you-mean: the known words nearest to a misspelt one.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace pliant {

/// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`; letters compare without case.
size_t edit_distance(std::string_view a, std::string_view b);

/// Up to `most` of `known`, nearest first, each within min(4, length / 2) edits of `word` or an extension of it.
std::vector<std::string> nearest(std::string_view word, const std::vector<std::string>& known, size_t most = 1);

}  // namespace pliant
