// Sentences and the UTF-8 check.
#include "text.hpp"

#include <doctest/doctest.h>

#include <random>

using namespace tinylm;

namespace {

std::vector<std::string> texts_of(std::string_view text) {
  std::vector<std::string> texts;
  for (const Sentence& sentence : split_sentences(text)) texts.push_back(sentence.text);
  return texts;
}

}  // namespace

TEST_CASE("a sentence ends at its full stop, wherever the line ends") {
  CHECK(texts_of("It was so. She\nlaughed! Was it?") ==
        std::vector<std::string>{"It was so.", "She laughed!", "Was it?"});
}

TEST_CASE("a blank line ends a sentence without a full stop") {
  CHECK(texts_of("CHAPTER I\n\nEmma was handsome.") == std::vector<std::string>{"CHAPTER I", "Emma was handsome."});
}

TEST_CASE("titles, initials and words in lower case do not begin a sentence") {
  CHECK(texts_of("Mr. Darcy and Mrs. Hurst met J. Bennet.") ==
        std::vector<std::string>{"Mr. Darcy and Mrs. Hurst met J. Bennet."});
  CHECK(texts_of("\"Oh!\" said she. \"No?\" He left.") ==
        std::vector<std::string>{"\"Oh!\" said she.", "\"No?\"", "He left."});
}

TEST_CASE("each sentence knows the line where it begins") {
  const auto sentences = split_sentences("One.\nTwo\nis long. Three.\n\n\nFour.");
  REQUIRE(sentences.size() == 4);
  CHECK(sentences[0].line == 1);
  CHECK(sentences[1].line == 2);
  CHECK(sentences[2].line == 3);
  CHECK(sentences[3].line == 6);
}

TEST_CASE("a text of white space has no sentence") {
  CHECK(split_sentences("").empty());
  CHECK(split_sentences(" \n\t\r\n ").empty());
}

TEST_CASE("sentences hold every word of the text once, in order") {
  std::mt19937 random(7);
  const std::string_view alphabet = "aB. ?\n\"!,";
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (size_t i = random() % 60; i > 0; --i) text += alphabet[random() % alphabet.size()];
    std::string words;
    for (const Sentence& sentence : split_sentences(text)) words += sentence.text + " ";
    std::erase_if(words, [](char c) { return c == ' '; });
    std::erase_if(text, [](char c) { return c == ' ' || c == '\n'; });
    CHECK(words == text);
  }
}

TEST_CASE("bytes that are not UTF-8 text are found where they are") {
  CHECK(first_bad_byte("plain, caf\xC3\xA9, \xE2\x82\xAC, \xF0\x9F\x99\x82\n") == std::nullopt);
  CHECK(first_bad_byte(std::string_view("ab\0c", 4)) == 2U);
  CHECK(first_bad_byte("\xFF") == 0U);
  CHECK(first_bad_byte("a\xC0\x80") == 1U);
  CHECK(first_bad_byte("a\xED\xA0\x80") == 1U);
  CHECK(first_bad_byte("abc\xE2\x82") == 3U);
  CHECK(first_bad_byte("\xF5\x80\x80\x80") == 0U);
}
