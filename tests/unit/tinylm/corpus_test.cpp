// Texts as sequences, and the cache that several processes share.
#include "corpus.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <pliant/error.hpp>

#include "cache.hpp"
#include "temporary_cache.hpp"
#include "tokeniser.hpp"

using namespace tinylm;
namespace fs = std::filesystem;

namespace {

struct Fixture {
  TemporaryCache cache;
  CorpusOptions options{cache.root() / "own.txt", 300, 64, LongSequences::kRefuse};

  void write(std::string_view text) const { std::ofstream(options.text, std::ios::binary) << text; }
  [[nodiscard]] std::string refusal() const {
    try {
      open_corpus(options);
    } catch (const pliant::Error& error) {
      CHECK(error.origin() == pliant::Origin::kInput);
      return error.message();
    }
    return "no error";
  }
  [[nodiscard]] std::vector<fs::path> cached(const std::string& extension) const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(cache.root() / "pliant" / "tinylm")) {
      if (entry.path().extension() == extension) found.push_back(entry.path());
    }
    return found;
  }
};

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

constexpr std::string_view kThree = "A first sentence. A second, longer sentence!\n\nThe last";

}  // namespace

TEST_CASE_FIXTURE(Fixture, "every sentence is a sequence that reads as before") {
  write(kThree);
  const Corpus corpus = open_corpus(options);
  REQUIRE(corpus.size() == 3);
  const Tokeniser tokeniser(read_file(corpus.tokeniser));
  CHECK(tokeniser.decode(corpus.sequence(0)) == "A first sentence.");
  CHECK(tokeniser.decode(corpus.sequence(1)) == "A second, longer sentence!");
  CHECK(tokeniser.decode(corpus.sequence(2)) == "The last");
  CHECK(corpus.lines == std::vector<int64_t>{1, 1, 3});
}

TEST_CASE_FIXTURE(Fixture, "the second time comes from the cache and is the same") {
  write(kThree);
  const Corpus first = open_corpus(options);
  REQUIRE(cached(".tokens").size() == 1);
  const auto written = fs::last_write_time(cached(".tokens").front());
  const Corpus second = open_corpus(options);
  CHECK(second.tokens == first.tokens);
  CHECK(second.offsets == first.offsets);
  CHECK(second.lines == first.lines);
  CHECK(fs::last_write_time(cached(".tokens").front()) == written);
}

TEST_CASE_FIXTURE(Fixture, "a changed text and another vocabulary are other entries of the cache") {
  write(kThree);
  open_corpus(options);
  options.vocab = 301;
  open_corpus(options);
  write("Something else. And more.");
  CHECK(open_corpus(options).size() == 2);
  CHECK(cached(".tokens").size() == 3);
}

TEST_CASE_FIXTURE(Fixture, "a cut or damaged cache file is made again") {
  write(kThree);
  const Corpus whole = open_corpus(options);
  const fs::path file = cached(".tokens").front();
  std::string bytes = read_file(file);
  for (const size_t size : {size_t{0}, size_t{5}, size_t{30}, bytes.size() - 1}) {
    std::ofstream(file, std::ios::binary) << bytes.substr(0, size);
    CHECK(open_corpus(options).tokens == whole.tokens);
    CHECK(read_file(file) == bytes);
  }
  std::string damaged = bytes;
  damaged[damaged.size() - 20] = static_cast<char>(damaged[damaged.size() - 20] ^ 1);
  std::ofstream(file, std::ios::binary) << damaged;
  CHECK(open_corpus(options).tokens == whole.tokens);
}

TEST_CASE_FIXTURE(Fixture, "four processes that start at once fill the cache once and read the same tokens") {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "Sentence number " + std::to_string(i) + " is here. ";
  write(text);
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        const Corpus corpus = open_corpus(options);
        const auto bytes =
            std::string_view(reinterpret_cast<const char*>(corpus.tokens.data()), corpus.tokens.size() * sizeof(Token));
        ::_exit(static_cast<int>(digest_of(bytes) % 100) + 100);
      } catch (...) {
        ::_exit(1);
      }
    }
    REQUIRE(child > 0);
    children.push_back(child);
  }
  const Corpus corpus = open_corpus(options);
  const auto bytes =
      std::string_view(reinterpret_cast<const char*>(corpus.tokens.data()), corpus.tokens.size() * sizeof(Token));
  for (const pid_t child : children) {
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == static_cast<int>(digest_of(bytes) % 100) + 100);
  }
  CHECK(corpus.size() == 3000);
  for (const auto& entry : fs::directory_iterator(cache.root() / "pliant" / "tinylm")) {
    const auto extension = entry.path().extension();
    CHECK_MESSAGE((extension == ".tokens" || extension == ".pieces" || extension == ".lock"), entry.path().string());
  }
}

TEST_CASE_FIXTURE(Fixture, "texts that nothing can be learnt from are refused by name") {
  CHECK(contains(refusal(), "own.txt: no such file ([data] text)"));
  write("");
  CHECK(contains(refusal(), "own.txt: the file is empty"));
  write(" \n\n \t");
  CHECK(contains(refusal(), "own.txt: there is no word in it"));
  write("abc\xFF");
  CHECK(contains(refusal(), "own.txt: not UTF-8 text: byte 3 "));
  options.text = cache.root();
  CHECK(contains(refusal(), "is a folder"));
}

TEST_CASE_FIXTURE(Fixture, "a missing default text says which script brings it") {
  options.text.clear();
  CHECK(contains(refusal(), "run scripts/fetch-text once"));
  fs::create_directories(default_text().parent_path());
  std::ofstream(default_text()) << kThree;
  CHECK(open_corpus(options).size() == 3);
}

TEST_CASE_FIXTURE(Fixture, "a sentence that is too long is refused with its line, or split on request") {
  write("Short.\nThis sentence, however, goes on and on and on and on and on.");
  const Corpus whole = open_corpus(options);
  options.max_sequence = 16;
  CHECK(contains(refusal(), "own.txt:2: this sentence has "));
  CHECK(contains(refusal(), "at most 16 are allowed ([app] max_sequence); 1 of 2 sentences are too long"));

  options.long_sequences = LongSequences::kSplit;
  const Corpus split = open_corpus(options);
  CHECK(split.size() > 2);
  std::vector<Token> joined;
  for (size_t i = 0; i < split.size(); ++i) {
    CHECK(split.sequence(i).size() >= 2);
    CHECK(split.sequence(i).size() <= 16);
    const Sequence part = split.sequence(i);
    joined.insert(joined.end(), part.begin(), part.end());
  }
  CHECK(joined.size() + 1 >= whole.tokens.size());
  CHECK(std::equal(joined.begin(), joined.end(), whole.tokens.begin()));
}
