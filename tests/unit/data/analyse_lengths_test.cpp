// The analyser of lengths: what it leaves behind, what it tells, and what a run that was stopped keeps.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "length_analysis.hpp"

using namespace pliant;
using namespace pliant::test;

namespace {

/// A data set of texts and what counts their tokens.
struct Corpus {
  [[nodiscard]] int64_t size() const { return kCount; }
  [[nodiscard]] int64_t tokens(int64_t i) const { return length_at(i); }
};

/// The lengths of `corpus`, measured when `file` is not there yet.
auto lengths_of(const Corpus& corpus, const std::filesystem::path& file) {
  LengthAnalysis analysis;
  analysis.count = corpus.size();
  analysis.length_of = [&](int64_t i) { return corpus.tokens(i); };  // by several threads at once
  analysis.identity = "sentencepiece v2, corpus of 2026-08";
  analyse_lengths(file, analysis);
  return read_lengths(file);
}

}  // namespace

TEST_CASE("the first run measures every sequence once, a second one only reads") {
  const ScratchFolder folder;
  std::vector<std::atomic<int>> calls(kCount);
  LengthAnalysis analysis = analysis_of();
  analysis.length_of = [&](int64_t i) {
    ++calls[static_cast<size_t>(i)];
    return length_at(i);
  };
  const AnalysedLengths first = analyse_lengths(folder / "l.npy", analysis);
  CHECK(first.measured == kCount);
  CHECK(first.resumed == 0);
  CHECK(holds_all(folder / "l.npy"));
  CHECK(folder.names() == std::vector<std::string>{"l.npy", "l.npy.origin.json"});
  const AnalysedLengths second = analyse_lengths(folder / "l.npy", analysis);
  CHECK(second.measured == 0);
  CHECK(std::all_of(calls.begin(), calls.end(), [](const std::atomic<int>& n) { return n == 1; }));
}

TEST_CASE("the file is an npy of 32-bit integers whose data begins at a multiple of 64 bytes") {
  const ScratchFolder folder;
  for (const int64_t count : {1, 2, 255, 256, 257, 1000}) {
    const auto file = folder / (std::to_string(count) + ".npy");
    analyse_lengths(file, analysis_of(count));
    const std::string bytes = test::read_all(file);
    CHECK(bytes.substr(0, 8) == std::string("\x93NUMPY\x01\x00", 8));
    const size_t data = bytes.size() - static_cast<size_t>(count) * 4;
    CHECK(data % 64 == 0);
    CHECK(bytes[data - 1] == '\n');
    CHECK(has(bytes.substr(0, data),
              "{'descr': '<i4', 'fortran_order': False, 'shape': (" + std::to_string(count) + ",), }"));
    CHECK(holds_all(file, count));
  }
}

TEST_CASE("a data set gets its lengths from the file that its first run left") {
  const ScratchFolder folder;
  const auto first = lengths_of(Corpus{}, folder / "lengths.npy");
  CHECK(lengths_of(Corpus{}, folder / "lengths.npy") == first);
  CHECK(first.size() == static_cast<size_t>(kCount));
}

TEST_CASE("the lengths do not depend on the number of threads") {
  const ScratchFolder folder;
  for (const int64_t threads : {0, 1, 2, 7, 64}) {
    analyse_lengths(folder / std::to_string(threads), analysis_of(kCount, threads));
    CHECK(test::read_all(folder / std::to_string(threads)) == test::read_all(folder / "0"));
  }
}

TEST_CASE("sequences are measured by as many threads as were asked for") {
  const ScratchFolder folder;
  std::mutex lock;
  std::condition_variable all_here;
  int here = 0;
  LengthAnalysis analysis = analysis_of(kCount, 3);
  analysis.length_of = [&](int64_t i) {
    if (i % 256 == 0 && i < 768) {  // the first of three chunks: none goes on before the others have come
      std::unique_lock hold(lock);
      ++here;
      all_here.notify_all();
      all_here.wait(hold, [&] { return here == 3; });
    }
    return length_at(i);
  };
  analyse_lengths(folder / "l.npy", analysis);
  CHECK(here == 3);
}

TEST_CASE("progress begins with what is there, rises and ends with all") {
  const ScratchFolder folder;
  (void)stopped_at(folder / "l.npy", 1000);
  std::vector<int64_t> told;
  LengthAnalysis analysis = analysis_of();
  analysis.progress = [&](int64_t done, int64_t total) {
    CHECK(total == kCount);
    told.push_back(done);
  };
  const AnalysedLengths made = analyse_lengths(folder / "l.npy", analysis);
  CHECK(made.resumed == 768);
  CHECK(made.measured == kCount - 768);
  REQUIRE(told.size() > 2);
  CHECK(told.front() == 768);
  CHECK(told.back() == kCount);
  CHECK(std::is_sorted(told.begin(), told.end()));
}

TEST_CASE("a callback that throws is told with its sequence, and no finished chunk is lost") {
  const ScratchFolder folder;
  const Refusal refused = stopped_at(folder / "l.npy", 1000);
  CHECK(refused.status == Status::kAborted);
  CHECK(refused.message == "cannot measure the length of sequence 1000: no such document");
  CHECK(folder.names() == std::vector<std::string>{"l.npy.part"});
  CHECK(analyse_lengths(folder / "l.npy", analysis_of()).resumed == 768);
  CHECK(holds_all(folder / "l.npy"));
}

TEST_CASE("an Error of the callback keeps its status and origin, and what is no exception is survived") {
  const ScratchFolder folder;
  LengthAnalysis analysis = analysis_of();
  analysis.length_of = [](int64_t) -> int64_t { throw Error(Status::kNotFound, "gone", Origin::kInput); };
  const Refusal refused = refusal(folder / "l.npy", analysis);
  CHECK(refused.status == Status::kNotFound);
  CHECK(refused.origin == Origin::kInput);
  CHECK(refused.message == "cannot measure the length of sequence 0: gone");
  analysis.length_of = [](int64_t) -> int64_t { throw 7; };
  CHECK(refusal(folder / "l.npy", analysis).status == Status::kAborted);
}

TEST_CASE("of several failing sequences the first chunk's is told, however the threads run") {
  const ScratchFolder folder;
  for (int round = 0; round < 20; ++round) {
    LengthAnalysis analysis = analysis_of(kCount, 8);
    analysis.length_of = [](int64_t i) -> int64_t { return i >= 300 ? 0 : 1; };
    CHECK(refusal(folder / std::to_string(round), analysis).message ==
          "sequence 300 has a length of 0; allowed: 1 to 2147483647 tokens");
  }
}

TEST_CASE("what is no length is refused with its sequence") {
  const ScratchFolder folder;
  for (const int64_t value : {int64_t{0}, int64_t{-1}, int64_t{1} << 31, INT64_MIN, INT64_MAX}) {
    LengthAnalysis analysis = analysis_of(300);
    analysis.length_of = [value](int64_t i) { return i == 299 ? value : 1; };
    const Refusal refused = refusal(folder / "l.npy", analysis);
    CHECK(refused.status == Status::kInvalidArgument);
    CHECK(refused.origin == Origin::kInput);
    CHECK(has(refused.message, "sequence 299 has a length of " + std::to_string(value)));
  }
  LengthAnalysis largest = analysis_of(1);
  largest.length_of = [](int64_t) { return (int64_t{1} << 31) - 1; };
  CHECK(refusal(folder / "l.npy", largest).status == Status::kFailedPrecondition);  // .part is of 300 sequences
  analyse_lengths(folder / "m.npy", largest);
  CHECK(read_lengths(folder / "m.npy")[0] == 2147483647);
}

TEST_CASE("a progress callback that throws stops the run, its exception comes out, and the next run goes on") {
  const ScratchFolder folder;
  struct Cancelled {};
  LengthAnalysis analysis = analysis_of(kCount, 1);
  analysis.progress = [](int64_t done, int64_t) {
    if (done >= 512) throw Cancelled{};
  };
  CHECK_THROWS_AS(analyse_lengths(folder / "l.npy", analysis), Cancelled);
  CHECK(analyse_lengths(folder / "l.npy", analysis_of()).resumed == 512);
}

TEST_CASE("a run that is killed goes on where it stopped") {
  const ScratchFolder folder;
  for (const int64_t at : {0, 255, 256, 1700, 2999}) {
    const auto file = folder / (std::to_string(at) + ".npy");
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      LengthAnalysis analysis = analysis_of(kCount, 1);
      analysis.length_of = [at](int64_t i) {
        if (i == at) ::kill(::getpid(), SIGKILL);
        return length_at(i);
      };
      analyse_lengths(file, analysis);
      ::_exit(0);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
    const AnalysedLengths made = analyse_lengths(file, analysis_of());
    CHECK(made.resumed == at / 256 * 256);
    CHECK(holds_all(file));
  }
}
