// Whether tests take every combination and the full length, which scripts/check-all asks for, or a choice of them.
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdlib>
#include <string_view>

namespace pliant::test {

inline bool is_thorough() {
  return std::getenv("PLIANT_THOROUGH_TESTS") != nullptr;
}

/// A number of this test case, by its name. Where a test takes one of several machines or ways, the others are left to
/// other tests.
inline size_t turn_of_test() {
  size_t made = 0;
  for (const char one : std::string_view(doctest::getContextOptions()->currentTest->m_name)) {
    made += static_cast<unsigned char>(one);
  }
  return made;
}

}  // namespace pliant::test
