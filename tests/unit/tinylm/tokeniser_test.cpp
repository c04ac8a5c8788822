// The byte-pair tokeniser.
#include "tokeniser.hpp"

#include <doctest/doctest.h>

#include <pliant/error.hpp>
#include <random>

using namespace tinylm;

namespace {

std::vector<Sentence> sentences_of(std::string_view text) {
  return split_sentences(text);
}

const char* const kText =
    "The cat sat on the mat. The other cat sat on the other mat. That cat is the fattest cat of them all. Is it not?";

}  // namespace

TEST_CASE("frequent letters become one piece, and a text shrinks") {
  const auto sentences = sentences_of(kText);
  const Tokeniser tokeniser = Tokeniser::learn(sentences, 300);
  CHECK(tokeniser.vocab() > Tokeniser::kFirstLearnt);
  CHECK(tokeniser.vocab() <= 300);
  CHECK(tokeniser.encode("the cat").size() < 9);
}

TEST_CASE("the most frequent pair is learnt first, the smallest of equals") {
  const Tokeniser tokeniser = Tokeniser::learn(sentences_of("ab ab ab cd cd xy"), Tokeniser::kFirstLearnt + 1);
  CHECK(tokeniser.encode("ab") == std::vector<Token>{Tokeniser::kBegin, Tokeniser::kFirstLearnt, Tokeniser::kEnd});
  CHECK(tokeniser.encode("cd").size() == 4);
}

TEST_CASE("learning stops when no pair occurs twice") {
  CHECK(Tokeniser::learn(sentences_of("a b c"), 4000).vocab() == Tokeniser::kFirstLearnt);
  CHECK(Tokeniser::learn({}, 4000).vocab() == Tokeniser::kFirstLearnt);
}

TEST_CASE("the same sentences give the same bytes") {
  const auto sentences = sentences_of(kText);
  CHECK(Tokeniser::learn(sentences, 290).save() == Tokeniser::learn(sentences, 290).save());
}

TEST_CASE("any sentence comes back from its tokens, learnt bytes or not") {
  const Tokeniser tokeniser = Tokeniser::learn(sentences_of(kText), 300);
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    std::string text;
    for (size_t i = random() % 200; i > 0; --i) {
      const char byte =
          static_cast<char>(random() % 3 == 0 ? random() % 255 + 1 : std::string_view("the cat,")[random() % 8]);
      if (byte != ' ' || (!text.empty() && text.back() != ' ')) text += byte;
    }
    while (!text.empty() && text.back() == ' ') text.pop_back();
    const auto tokens = tokeniser.encode(text);
    CHECK(tokens.front() == Tokeniser::kBegin);
    CHECK(tokens.back() == Tokeniser::kEnd);
    CHECK(tokeniser.decode(tokens) == text);
  }
}

TEST_CASE("a saved tokeniser encodes as before") {
  const Tokeniser first = Tokeniser::learn(sentences_of(kText), 300);
  const Tokeniser second(first.save());
  CHECK(second.vocab() == first.vocab());
  CHECK(second.encode(kText) == first.encode(kText));
  CHECK(second.save() == first.save());
}

TEST_CASE("a damaged tokeniser is refused") {
  const std::string saved = Tokeniser::learn(sentences_of(kText), 300).save();
  std::string forward = saved;
  forward[8] = '\xFF';
  forward[9] = '\xFF';
  CHECK_THROWS_AS(Tokeniser(std::string_view()), pliant::Error);
  CHECK_THROWS_AS(Tokeniser(saved.substr(1)), pliant::Error);
  CHECK_THROWS_AS(Tokeniser(saved.substr(0, saved.size() - 1)), pliant::Error);
  CHECK_THROWS_AS(Tokeniser(std::string_view(forward)), pliant::Error);
}
