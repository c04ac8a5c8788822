// Mutations: inputs that are almost right, from a seed.
#include "fuzz/mutations.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstdlib>
#include <random>

namespace pliant::test {
namespace {

int64_t number_from(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoll(text);
}

class Mutator {
 public:
  Mutator(const std::vector<std::string>& seeds, const std::vector<std::string>& words, uint64_t round)
      : seeds_(seeds), words_(words), random_(round) {}

  std::string input() {
    std::string text = one_of(seeds_);
    for (uint64_t changes = random_() % 9; changes > 0; --changes) change(text);
    return text;
  }

 private:
  const std::string& one_of(const std::vector<std::string>& list) { return list[random_() % list.size()]; }

  void change(std::string& text) {
    static constexpr std::array<char, 8> kBytes{'\0', '\x7f', '\x80', '\xff', '\n', '"', '-', '9'};
    const size_t at = random_() % (text.size() + 1);
    const size_t length = random_() % 2 == 0 ? 1 : random_() % 40;
    switch (random_() % 7) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << random_() % 8));
        break;
      case 1:
        if (at < text.size()) text[at] = kBytes[random_() % kBytes.size()];
        break;
      case 2:
        text.erase(at, length);
        break;
      case 3:
        text.insert(at, text.substr(at, length));
        break;
      case 4:
        if (!words_.empty()) text.insert(at, one_of(words_));
        break;
      case 5:
        if (!words_.empty()) text.replace(at, length, one_of(words_));
        break;
      default: {
        const std::string& other = one_of(seeds_);
        text.replace(at, length, other.substr(random_() % (other.size() + 1), length));
      }
    }
  }

  const std::vector<std::string>& seeds_;
  const std::vector<std::string>& words_;
  std::mt19937_64 random_;
};

}  // namespace

void fuzz(const std::vector<std::string>& seeds, const std::vector<std::string>& words,
          const std::function<void(std::string_view)>& take) {
  const int64_t first = number_from("PLIANT_FUZZ_FIRST", 0);
  const int64_t rounds = number_from("PLIANT_FUZZ_ROUNDS", 1000);
  for (int64_t round = first; round < first + rounds; ++round) {
    const std::string text = Mutator(seeds, words, static_cast<uint64_t>(round)).input();
    INFO("PLIANT_FUZZ_FIRST=" << round << " PLIANT_FUZZ_ROUNDS=1 plays this round again");
    take(text);
  }
}

}  // namespace pliant::test
