// Did-you-mean.
#include "base/suggest.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>

using pliant::edit_distance;
using pliant::nearest;

namespace {

/// The definition of the distance, exponential: insert, delete, replace, swap neighbours.
size_t slow_distance(const std::string& a, const std::string& b) {
  if (a.empty() || b.empty()) return a.size() + b.size();
  const std::string a1 = a.substr(1), b1 = b.substr(1);
  size_t best =
      std::min({slow_distance(a1, b) + 1, slow_distance(a, b1) + 1, slow_distance(a1, b1) + (a[0] == b[0] ? 0 : 1)});
  if (a.size() > 1 && b.size() > 1 && a[0] == b[1] && a[1] == b[0]) {
    best = std::min(best, slow_distance(a.substr(2), b.substr(2)) + 1);
  }
  return best;
}

}  // namespace

TEST_CASE("the distance is that of its definition") {
  CHECK(rc::check([] {
    const auto word = rc::gen::resize(5, rc::gen::container<std::string>(rc::gen::elementOf(std::string("abc"))));
    const std::string a = *word;
    const std::string b = *word;
    RC_ASSERT(edit_distance(a, b) == slow_distance(a, b));
  }));
}

TEST_CASE("a word far from all others gets no suggestion, a short one only a near one") {
  const std::vector<std::string> known{"workers", "seed", "epochs", "max_train_batch_size", "us"};
  CHECK(nearest("wrokers", known) == std::vector<std::string>{"workers"});
  CHECK(nearest("WORKERS", known) == std::vector<std::string>{"workers"});
  CHECK(nearest("max_train_batch", known) == std::vector<std::string>{"max_train_batch_size"});
  CHECK(nearest("zzzzzzz", known).empty());
  CHECK(nearest("x", known).empty());
  CHECK(nearest("", known).empty());
  CHECK(nearest("sed", {"seed", "fed", "seed"}, 3) == std::vector<std::string>{"fed", "seed"});
}
