// Text to token sequences, through files in the cache directory that are named after the text's digest.
#include "corpus.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>
#include <pliant/error.hpp>
#include <utility>

#include "cache.hpp"
#include "text.hpp"
#include "tokeniser.hpp"

namespace tinylm {
namespace {

namespace fs = std::filesystem;

/// Begins the names of cache files; another word whenever sentences or pieces are made another way.
constexpr const char* kRecipe = "bpe1";
constexpr char kCorpusMagic[8] = {'t', 'i', 'n', 'y', 't', 'o', 'k', '1'};

[[noreturn]] void refuse(const fs::path& text, const std::string& problem) {
  throw pliant::Error(pliant::Status::kInvalidArgument, text.string() + problem, pliant::Origin::kInput);
}

std::string read_text(const fs::path& text, bool is_default) {
  if (!fs::exists(text)) {
    refuse(text, is_default
                     ? ": the default text is not there yet; run scripts/fetch-text once, or name your own: [data] "
                       "text = \"FILE\""
                     : ": no such file ([data] text)");
  }
  std::string content = read_file(text);
  if (content.empty()) refuse(text, ": the file is empty; [data] text needs UTF-8 prose");
  if (const auto bad = first_bad_byte(content)) {
    refuse(text, ": not UTF-8 text: byte " + std::to_string(*bad) + " is none of a character");
  }
  return content;
}

std::string packed(const Corpus& corpus) {
  std::string out(kCorpusMagic, sizeof(kCorpusMagic));
  const uint64_t counts[2] = {corpus.size(), corpus.tokens.size()};
  append(out, counts, 2);
  append(out, corpus.offsets.data(), corpus.offsets.size());
  append(out, corpus.lines.data(), corpus.lines.size());
  append(out, corpus.tokens.data(), corpus.tokens.size());
  const uint64_t digest = digest_of(out);
  append(out, &digest, 1);
  return out;
}

template <class V>
void take(std::string_view& in, std::vector<V>& values, size_t count) {
  values.resize(count);
  std::memcpy(values.data(), in.data(), count * sizeof(V));
  in.remove_prefix(count * sizeof(V));
}

/// nullopt when the file is none of ours, cut or damaged: it is then made again.
std::optional<Corpus> unpacked(std::string_view in) {
  uint64_t counts[2] = {};
  uint64_t digest = 0;
  constexpr size_t kFrame = sizeof(kCorpusMagic) + sizeof(counts) + sizeof(digest);
  if (in.size() < kFrame || std::memcmp(in.data(), kCorpusMagic, sizeof(kCorpusMagic)) != 0) return std::nullopt;
  std::memcpy(&digest, in.data() + in.size() - sizeof(digest), sizeof(digest));
  in.remove_suffix(sizeof(digest));
  if (digest_of(in) != digest) return std::nullopt;
  std::memcpy(counts, in.data() + sizeof(kCorpusMagic), sizeof(counts));
  in.remove_prefix(sizeof(kCorpusMagic) + sizeof(counts));
  Corpus corpus;
  const size_t expected = (counts[0] + 1) * sizeof(uint64_t) + counts[0] * sizeof(int64_t) + counts[1] * sizeof(Token);
  if (in.size() != expected) return std::nullopt;
  take(in, corpus.offsets, counts[0] + 1);
  take(in, corpus.lines, counts[0]);
  take(in, corpus.tokens, counts[1]);
  return corpus;
}

std::optional<Corpus> cached(const fs::path& file) {
  if (!fs::exists(file)) return std::nullopt;
  return unpacked(read_file(file));
}

Corpus encoded(const std::vector<Sentence>& sentences, const Tokeniser& tokeniser) {
  Corpus corpus;
  for (const Sentence& sentence : sentences) {
    const std::vector<Token> tokens = tokeniser.encode(sentence.text);
    corpus.tokens.insert(corpus.tokens.end(), tokens.begin(), tokens.end());
    corpus.offsets.push_back(corpus.tokens.size());
    corpus.lines.push_back(sentence.line);
  }
  return corpus;
}

/// All sequences of the text, however long.
Corpus whole_corpus(const fs::path& text, bool is_default, int64_t vocab) {
  const std::string content = read_text(text, is_default);
  char key[64];
  const uint64_t digest = digest_of(content);
  std::snprintf(key, sizeof(key), "%s-%016llx-%lld", kRecipe, static_cast<unsigned long long>(digest),
                static_cast<long long>(vocab));
  const fs::path stem = cache_directory() / "tinylm" / key;
  const fs::path tokens_file = stem.string() + ".tokens";
  const fs::path tokeniser_file = stem.string() + ".pieces";
  std::optional<Corpus> found = cached(tokens_file);
  if (!found) {
    const FileLock turn(stem.string() + ".lock");
    found = cached(tokens_file);
    if (!found) {
      const std::vector<Sentence> sentences = split_sentences(content);
      if (sentences.empty()) refuse(text, ": there is no word in it; [data] text needs UTF-8 prose");
      const Tokeniser tokeniser = Tokeniser::learn(sentences, vocab);
      write_atomically(tokeniser_file, tokeniser.save());
      found = encoded(sentences, tokeniser);
      write_atomically(tokens_file, packed(*found));
    }
  }
  found->tokeniser = tokeniser_file;
  found->digest = digest;
  return std::move(*found);
}

/// Cuts sequences into parts of at most `max_sequence` tokens; a part of one token alone has nothing to predict and
/// joins none.
Corpus with_long_ones_split(const Corpus& whole, int64_t max_sequence) {
  Corpus made;
  made.tokeniser = whole.tokeniser;
  made.digest = whole.digest;
  for (size_t i = 0; i < whole.size(); ++i) {
    Sequence rest = whole.sequence(i);
    while (rest.size() >= 2) {
      const Sequence part = rest.first(std::min(rest.size(), static_cast<size_t>(max_sequence)));
      made.tokens.insert(made.tokens.end(), part.begin(), part.end());
      made.offsets.push_back(made.tokens.size());
      made.lines.push_back(whole.lines[i]);
      rest = rest.subspan(part.size());
    }
  }
  return made;
}

}  // namespace

Corpus open_corpus(const CorpusOptions& options) {
  const bool is_default = options.text.empty();
  const fs::path text = is_default ? default_text() : options.text;
  Corpus corpus = whole_corpus(text, is_default, options.vocab);

  size_t longest = 0;
  size_t too_long = 0;
  for (size_t i = 0; i < corpus.size(); ++i) {
    if (corpus.sequence(i).size() > corpus.sequence(longest).size()) longest = i;
    if (corpus.sequence(i).size() > static_cast<size_t>(options.max_sequence)) ++too_long;
  }
  if (too_long == 0) return corpus;
  if (options.long_sequences == LongSequences::kSplit) return with_long_ones_split(corpus, options.max_sequence);
  refuse(text, ":" + std::to_string(corpus.lines[longest]) + ": this sentence has " +
                   std::to_string(corpus.sequence(longest).size()) + " tokens, at most " +
                   std::to_string(options.max_sequence) + " are allowed ([app] max_sequence); " +
                   std::to_string(too_long) + " of " + std::to_string(corpus.size()) +
                   " sentences are too long. Raise max_sequence and the sampler's budget with it, or set [app] "
                   "long_sequences = \"split\"");
}

}  // namespace tinylm
