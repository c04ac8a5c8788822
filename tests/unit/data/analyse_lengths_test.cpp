// The analyser of lengths: what it leaves behind, what a stopped run keeps, and every file that it must refuse.
#include "pliant/analyse_lengths.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../elastic/file_size_limit.hpp"
#include "pliant/error.hpp"
#include "pliant/lengths.hpp"
#include "scratch_folder.hpp"

using namespace pliant;
using test::FileSizeLimit;
using test::ScratchFolder;

namespace {

constexpr int64_t kCount = 3000;  // eleven chunks and a part of one

int64_t length_at(int64_t i) {
  return 1 + i * 7919 % 100003;
}

LengthAnalysis analysis_of(int64_t count = kCount, int64_t threads = 3) {
  LengthAnalysis analysis;
  analysis.count = count;
  analysis.length_of = length_at;
  analysis.identity = "tokenizer a, data 1";
  analysis.threads = threads;
  return analysis;
}

bool holds_all(const std::filesystem::path& file, int64_t count = kCount) {
  const auto lengths = read_lengths(file);
  if (static_cast<int64_t>(lengths.size()) != count) return false;
  for (int64_t i = 0; i < count; ++i) {
    if (lengths[static_cast<size_t>(i)] != length_at(i)) return false;
  }
  return true;
}

struct Refusal {
  Status status = Status::kOk;
  ExitCode exit_code = ExitCode::kOk;
  std::string message;
};
Refusal refusal(const std::filesystem::path& file, const LengthAnalysis& analysis) {
  try {
    analyse_lengths(file, analysis);
  } catch (const Error& error) {
    return {error.status(), error.exit_code(), error.message()};
  }
  return {};
}
bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

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

/// A run that ends with an error at sequence `at`; `file`.part stays.
Refusal stopped_at(const std::filesystem::path& file, int64_t at, int64_t threads = 1) {
  LengthAnalysis analysis = analysis_of(kCount, threads);
  analysis.length_of = [at](int64_t i) {
    if (i == at) throw std::runtime_error("no such document");
    return length_at(i);
  };
  return refusal(file, analysis);
}

/// `file` with `bytes` at `offset`.
void overwrite(const std::filesystem::path& file, size_t offset, const std::string& bytes) {
  std::string all = test::read_all(file);
  REQUIRE(all.size() >= offset + bytes.size());
  all.replace(offset, bytes.size(), bytes);
  test::write_all(file, all);
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
  CHECK(refused.message == "the length of sequence 1000 could not be measured: no such document");
  CHECK(folder.names() == std::vector<std::string>{"l.npy.part"});
  CHECK(analyse_lengths(folder / "l.npy", analysis_of()).resumed == 768);
  CHECK(holds_all(folder / "l.npy"));
}

TEST_CASE("an Error of the callback keeps its status and exit code, and what is no exception is survived") {
  const ScratchFolder folder;
  LengthAnalysis analysis = analysis_of();
  analysis.length_of = [](int64_t) -> int64_t { throw Error(Status::kNotFound, "gone", ExitCode::kUsage); };
  const Refusal refused = refusal(folder / "l.npy", analysis);
  CHECK(refused.status == Status::kNotFound);
  CHECK(refused.exit_code == ExitCode::kUsage);
  CHECK(refused.message == "the length of sequence 0 could not be measured: gone");
  analysis.length_of = [](int64_t) -> int64_t { throw 7; };
  CHECK(refusal(folder / "l.npy", analysis).status == Status::kAborted);
}

TEST_CASE("of several failing sequences the first chunk's is told, however the threads run") {
  const ScratchFolder folder;
  for (int round = 0; round < 20; ++round) {
    LengthAnalysis analysis = analysis_of(kCount, 8);
    analysis.length_of = [](int64_t i) -> int64_t { return i >= 300 ? 0 : 1; };
    CHECK(refusal(folder / std::to_string(round), analysis).message ==
          "sequence 300 has a length of 0; 1 to 2147483647 tokens");
  }
}

TEST_CASE("what is no length is refused with its sequence") {
  const ScratchFolder folder;
  for (const int64_t value : {int64_t{0}, int64_t{-1}, int64_t{1} << 31, INT64_MIN, INT64_MAX}) {
    LengthAnalysis analysis = analysis_of(300);
    analysis.length_of = [value](int64_t i) { return i == 299 ? value : 1; };
    const Refusal refused = refusal(folder / "l.npy", analysis);
    CHECK(refused.status == Status::kInvalidArgument);
    CHECK(refused.exit_code == ExitCode::kUsage);
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

TEST_CASE("a chunk that is damaged or cut off is measured again, the others are not") {
  const ScratchFolder folder;
  const auto part = folder / "l.npy.part";
  (void)stopped_at(folder / "l.npy", 2900);
  const size_t header = 32 + std::strlen("tokenizer a, data 1");
  overwrite(part, header + 1040 * 3 + 16, std::string(4, '\x7f'));  // a length
  overwrite(part, header + 1040 * 5, "x");                          // a mark
  overwrite(part, header + 1040 * 6 + 12, "x");                     // a number of lengths
  const std::string bytes = test::read_all(part);
  test::write_all(part, bytes.substr(0, bytes.size() - 4));  // the end of chunk 10
  const AnalysedLengths made = analyse_lengths(folder / "l.npy", analysis_of());
  CHECK(made.resumed == 7 * 256);
  CHECK(holds_all(folder / "l.npy"));
}

TEST_CASE("a partial file that is cut off or damaged in its header, or of somebody else, is refused and left alone") {
  const ScratchFolder folder;
  const auto part = folder / "l.npy.part";
  (void)stopped_at(folder / "l.npy", 600);
  const std::string good = test::read_all(part);
  const auto refused_with = [&](const std::string& bytes, Status status, const std::string& words) {
    test::write_all(part, bytes);
    const Refusal refused = refusal(folder / "l.npy", analysis_of());
    CHECK(refused.status == status);
    CHECK(has(refused.message, "l.npy.part"));
    CHECK_MESSAGE(has(refused.message, words), refused.message);
    CHECK(test::read_all(part) == bytes);
  };
  const auto with = [&](size_t at, char byte) {
    std::string bytes = good;
    bytes[at] = byte;
    return bytes;
  };
  refused_with("", Status::kDataLoss, "was not written by an analysis");
  refused_with("my own notes", Status::kDataLoss, "was not written by an analysis");
  refused_with(good.substr(0, 31), Status::kDataLoss, "ends within its header");
  refused_with(good.substr(0, 40), Status::kDataLoss, "check sum of its header");
  refused_with(with(8, 2), Status::kUnimplemented, "format version 2");
  refused_with(with(14, '\xff'), Status::kDataLoss, "no identity");
  refused_with(with(16, 1), Status::kDataLoss, "check sum of its header");
  refused_with(with(35, 'X'), Status::kDataLoss, "check sum of its header");
  test::write_all(part, good);
  CHECK(analyse_lengths(folder / "l.npy", analysis_of()).resumed == 512);
}

TEST_CASE("another identity or count is refused by name, before and after the run has ended") {
  const ScratchFolder folder;
  (void)stopped_at(folder / "l.npy", 600);
  LengthAnalysis other = analysis_of();
  other.identity = "tokenizer b";
  const auto check_both = [&](const std::string& file) {
    const Refusal identity = refusal(folder / "l.npy", other);
    CHECK(identity.status == Status::kFailedPrecondition);
    CHECK(identity.exit_code == ExitCode::kUsage);
    CHECK(has(identity.message, file + " was measured as \"tokenizer a, data 1\", not as \"tokenizer b\""));
    const Refusal count = refusal(folder / "l.npy", analysis_of(kCount + 1));
    CHECK(count.status == Status::kFailedPrecondition);
    CHECK(has(count.message, file + " is of 3000 sequences, the data set has 3001"));
  };
  check_both("l.npy.part");
  analyse_lengths(folder / "l.npy", analysis_of());
  check_both("l.npy");
  CHECK(holds_all(folder / "l.npy"));
}

TEST_CASE("a file of lengths that no analysis wrote, or that has changed since, is refused and left alone") {
  const ScratchFolder folder;
  const auto file = folder / "l.npy";
  const auto origin = folder / "l.npy.origin.json";
  analyse_lengths(file, analysis_of());
  const std::string good = test::read_all(file);
  const std::string good_origin = test::read_all(origin);
  const auto refused_with = [&](Status status, const std::string& words) {
    const std::string before = test::read_all(file);
    const Refusal refused = refusal(file, analysis_of());
    CHECK(refused.status == status);
    CHECK_MESSAGE(has(refused.message, words), refused.message);
    CHECK(has(refused.message, "l.npy"));
    CHECK(test::read_all(file) == before);
    test::write_all(file, good);
    test::write_all(origin, good_origin);
  };
  overwrite(file, 500, "x");
  refused_with(Status::kDataLoss, "is not what was measured: its digest is");
  overwrite(file, 7, "\x02");
  refused_with(Status::kDataLoss, "its header is not that of its lengths");
  test::write_all(file, good.substr(0, good.size() - 4));
  refused_with(Status::kDataLoss, "3000 lengths take");
  test::write_all(file, "");
  refused_with(Status::kDataLoss, "it has 0");
  for (const char* text :
       {"", "{", "[]", "{\"format\": \"other\"}",
        "{\"format\": \"pliant.lengths_origin/1\", \"count\": 1.5, \"identity\": \"\", \"digest\": \"\"}"}) {
    test::write_all(origin, text);
    refused_with(Status::kDataLoss, "does not say what was measured");
  }
  std::filesystem::remove(origin);
  refused_with(Status::kFailedPrecondition, "no " + origin.string() + " says what it was measured from");
  CHECK(analyse_lengths(file, analysis_of()).measured == 0);
}

TEST_CASE("places where no file can be are refused before anything is measured") {
  const ScratchFolder folder;
  LengthAnalysis analysis = analysis_of();
  analysis.length_of = [](int64_t) -> int64_t {
    FAIL("measured");
    return 1;
  };
  CHECK(refusal(folder.path(), analysis).status == Status::kFailedPrecondition);
  const Refusal nowhere = refusal(folder / "none/l.npy", analysis);
  CHECK(nowhere.status == Status::kNotFound);
  CHECK(nowhere.exit_code == ExitCode::kUsage);
  folder.write("plain", "");
  CHECK(refusal(folder / "plain/l.npy", analysis).exit_code == ExitCode::kUsage);
  std::filesystem::create_directory(folder / "d.npy.part");
  CHECK(refusal(folder / "d.npy", analysis).status == Status::kFailedPrecondition);
  if (::geteuid() != 0) {
    std::filesystem::create_directory(folder / "shut");
    ::chmod((folder / "shut").c_str(), 0555);
    CHECK(refusal(folder / "shut/l.npy", analysis).status == Status::kFailedPrecondition);
  }
}

TEST_CASE("without space the run ends with a reason, keeps its chunks and goes on when there is space") {
  const ScratchFolder folder;
  const auto file = folder / "l.npy";
  const auto refused_within = [&](rlim_t bytes) {
    const Refusal refused = [&] {
      const FileSizeLimit limit(bytes);
      return refusal(file, analysis_of(kCount, 1));
    }();
    CHECK(refused.status == Status::kResourceExhausted);
    CHECK(has(refused.message, "ulimit -f"));
    CHECK(folder.names() == std::vector<std::string>{"l.npy.part"});
  };
  refused_within(5000);  // four chunks
  LengthAnalysis analysis = analysis_of();
  analysis.progress = [](int64_t done, int64_t) {
    if (done == kCount) throw std::runtime_error("all is measured");
  };
  CHECK_THROWS_AS(analyse_lengths(file, analysis), std::runtime_error);
  refused_within(5000);  // in the copy
  CHECK(analyse_lengths(file, analysis_of()).resumed == kCount);
  CHECK(holds_all(file));
}

TEST_CASE("a second process is refused while the first one measures, and reads when it has ended") {
  const ScratchFolder folder;
  const auto file = folder / "l.npy";
  LengthAnalysis analysis = analysis_of(kCount, 1);
  Refusal second;
  analysis.progress = [&](int64_t done, int64_t) {
    if (done != 0) return;
    // Another open file description has the lock of another process.
    second = refusal(file, analysis_of());
  };
  analyse_lengths(file, analysis);
  CHECK(second.status == Status::kFailedPrecondition);
  CHECK(has(second.message, "another process is measuring lengths into"));
  CHECK(analyse_lengths(file, analysis_of()).measured == 0);
}

TEST_CASE("many at once: each is refused or ends with the whole file, and every sequence is measured once at most") {
  const ScratchFolder folder;
  const auto file = folder / "l.npy";
  std::atomic<int64_t> calls{0};
  std::atomic<int> ended{0};
  std::vector<std::thread> others;
  others.reserve(6);
  for (int i = 0; i < 6; ++i) {
    others.emplace_back([&] {
      LengthAnalysis analysis = analysis_of(kCount, 2);
      analysis.length_of = [&](int64_t at) {
        ++calls;
        return length_at(at);
      };
      for (;;) {
        const Refusal refused = refusal(file, analysis);
        if (refused.status == Status::kOk) break;
        if (refused.status != Status::kFailedPrecondition) return;
      }
      ++ended;
    });
  }
  for (std::thread& other : others) other.join();
  CHECK(ended == 6);
  CHECK(calls == kCount);
  CHECK(holds_all(file));
  CHECK(folder.names() == std::vector<std::string>{"l.npy", "l.npy.origin.json"});
}

TEST_CASE("what a run left behind when it was killed at the very end is tidied away") {
  const ScratchFolder folder;
  const auto file = folder / "l.npy";
  (void)stopped_at(file, 2900);
  folder.write("l.npy.part.npy", "half a copy");
  folder.write("l.npy.origin.json", "{\"of\": \"an earlier run\"}");
  analyse_lengths(file, analysis_of());
  CHECK(holds_all(file));
  CHECK(folder.names() == std::vector<std::string>{"l.npy", "l.npy.origin.json"});
}

TEST_CASE("an analysis that says too little is refused") {
  const ScratchFolder folder;
  const auto with = [&](auto change) {
    LengthAnalysis analysis = analysis_of();
    change(analysis);
    const Refusal refused = refusal(folder / "l.npy", analysis);
    CHECK(refused.exit_code == ExitCode::kUsage);
    return refused.status;
  };
  CHECK(with([](LengthAnalysis& a) { a.count = 0; }) == Status::kInvalidArgument);
  CHECK(with([](LengthAnalysis& a) { a.count = -1; }) == Status::kInvalidArgument);
  CHECK(with([](LengthAnalysis& a) { a.count = INT64_MAX; }) == Status::kInvalidArgument);
  CHECK(with([](LengthAnalysis& a) { a.length_of = nullptr; }) == Status::kInvalidArgument);
  CHECK(with([](LengthAnalysis& a) { a.threads = -1; }) == Status::kInvalidArgument);
  CHECK(with([](LengthAnalysis& a) { a.threads = 1000000; }) == Status::kInvalidArgument);
  CHECK(with([](LengthAnalysis& a) { a.identity.clear(); }) == Status::kInvalidArgument);
  CHECK(with([](LengthAnalysis& a) { a.identity.assign(65537, 'x'); }) == Status::kInvalidArgument);
  CHECK(with([](LengthAnalysis& a) { a.identity = "\xff"; }) == Status::kInvalidArgument);
  CHECK(folder.names().empty());
}
