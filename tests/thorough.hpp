// Whether tests take every combination and the full length, which scripts/check-all asks for, or a choice of them.
#pragma once

#include <cstdlib>

namespace pliant::test {

inline bool is_thorough() {
  return std::getenv("PLIANT_THOROUGH_TESTS") != nullptr;
}

}  // namespace pliant::test
