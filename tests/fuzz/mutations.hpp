// Mutations: inputs that are almost right, from a seed. A round is reproduced by its number alone.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace pliant::test {

/// Calls `take` with PLIANT_FUZZ_ROUNDS inputs (default 1000), from round PLIANT_FUZZ_FIRST on (default 0). Each is one
/// of `seeds` with up to eight changes: bytes flipped, cut out, doubled, set to values at the limits, or replaced by a
/// word of `words` or a piece of another seed. On a failure doctest's message has the round.
void fuzz(const std::vector<std::string>& seeds, const std::vector<std::string>& words,
          const std::function<void(std::string_view)>& take);

}  // namespace pliant::test
