// The analyser of lengths: damaged and foreign files, full disks, others at the same file.
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "../elastic/file_size_limit.hpp"
#include "length_analysis.hpp"

using namespace pliant;
using namespace pliant::test;

namespace {

/// `file` with `bytes` at `offset`.
void overwrite(const std::filesystem::path& file, size_t offset, const std::string& bytes) {
  std::string all = test::read_all(file);
  REQUIRE(all.size() >= offset + bytes.size());
  all.replace(offset, bytes.size(), bytes);
  test::write_all(file, all);
}

}  // namespace

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
  refused_with(good.substr(0, 40), Status::kDataLoss, "checksum of its header");
  refused_with(with(8, 2), Status::kUnimplemented, "format version 2");
  refused_with(with(14, '\xff'), Status::kDataLoss, "no identity");
  refused_with(with(16, 1), Status::kDataLoss, "checksum of its header");
  refused_with(with(35, 'X'), Status::kDataLoss, "checksum of its header");
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
    CHECK(identity.origin == Origin::kInput);
    CHECK(has(identity.message, file + " was measured as \"tokenizer a, data 1\", not as \"tokenizer b\""));
    const Refusal count = refusal(folder / "l.npy", analysis_of(kCount + 1));
    CHECK(count.status == Status::kFailedPrecondition);
    CHECK(has(count.message, file + " has 3000 sequences, the data set has 3001"));
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
  refused_with(Status::kDataLoss, "has changed since it was measured: its digest is");
  overwrite(file, 7, "\x02");
  refused_with(Status::kDataLoss, "its header does not match its lengths");
  test::write_all(file, good.substr(0, good.size() - 4));
  refused_with(Status::kDataLoss, "3000 lengths take");
  test::write_all(file, "");
  refused_with(Status::kDataLoss, "it has 0");
  for (const char* text :
       {"", "{", "[]", "{\"format\": \"other\"}",
        "{\"format\": \"pliant.lengths_origin/1\", \"count\": 1.5, \"identity\": \"\", \"digest\": \"\"}"}) {
    test::write_all(origin, text);
    refused_with(Status::kDataLoss, "does not describe its source");
  }
  std::filesystem::remove(origin);
  refused_with(Status::kFailedPrecondition,
               "exists, but " + origin.string() + ", the record of its source, is missing");
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
  CHECK(nowhere.origin == Origin::kInput);
  folder.write("plain", "");
  CHECK(refusal(folder / "plain/l.npy", analysis).origin == Origin::kInput);
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
  std::filesystem::copy(folder / "l.npy.part", folder / "kept");
  analyse_lengths(file, analysis_of());
  CHECK(holds_all(file));
  std::filesystem::rename(folder / "kept", folder / "l.npy.part");  // killed before it could take this away
  CHECK(analyse_lengths(file, analysis_of()).measured == 0);
  CHECK(folder.names() == std::vector<std::string>{"l.npy", "l.npy.origin.json"});
  folder.write("l.npy.part", "my own notes");
  CHECK(analyse_lengths(file, analysis_of()).measured == 0);
  CHECK(test::read_all(folder / "l.npy.part") == "my own notes");
}

TEST_CASE("an analysis that says too little is refused") {
  const ScratchFolder folder;
  const auto with = [&](auto change) {
    LengthAnalysis analysis = analysis_of();
    change(analysis);
    const Refusal refused = refusal(folder / "l.npy", analysis);
    CHECK(refused.origin == Origin::kInput);
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
