// What reading makes of snapshots that are cut, changed or lengthened.
#include <doctest/doctest.h>
#include <rapidcheck.h>
#include <sys/stat.h>

#include <filesystem>
#include <istream>
#include <ostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "elastic/snapshot.hpp"
#include "elastic/snapshot_draft.hpp"
#include "scratch_folder.hpp"
#include "spool_of.hpp"

namespace pliant::elastic {
namespace {

using test::ScratchFolder;

/// Bytes of a small snapshot.
std::string small_snapshot(const ScratchFolder& folder) {
  const auto written = write_snapshot(folder / "whole", {20, "0123456789abcdef", "lr"}, [](std::ostream& out) {
    for (int i = 0; i < 300; ++i) out << i << ' ';
  });
  REQUIRE(written.has_value());
  return test::read_all(folder / "whole");
}

/// Reads `bytes` as a snapshot; the program must not see any of them.
Result<SnapshotHeader> read_damaged(const ScratchFolder& folder, const std::string& bytes) {
  test::write_all(folder / "damaged", bytes);
  bool seen = false;
  auto read = read_snapshot(folder / "damaged", [&](std::istream&, const SnapshotHeader&) { seen = true; });
  CHECK_FALSE(seen);
  return read;
}

TEST_CASE("a snapshot that is cut anywhere is refused") {
  const ScratchFolder folder;
  const std::string whole = small_snapshot(folder);
  for (size_t size = 0; size < whole.size(); ++size) {
    CAPTURE(size);
    const auto read = read_damaged(folder, whole.substr(0, size));
    REQUIRE_FALSE(read.has_value());
    CHECK(read.error().status() == Status::kDataLoss);
    CHECK(read.error().message().find("damaged: ") != std::string::npos);
  }
}

TEST_CASE("a snapshot with one changed byte is refused, whichever it is") {
  const ScratchFolder folder;
  const std::string whole = small_snapshot(folder);
  for (size_t offset = 0; offset < whole.size(); ++offset) {
    CAPTURE(offset);
    std::string changed = whole;
    changed[offset] = static_cast<char>(changed[offset] ^ (1 << (offset % 8)));
    const auto read = read_damaged(folder, changed);
    REQUIRE_FALSE(read.has_value());
    CHECK(read.error().status() == Status::kDataLoss);
  }
}

TEST_CASE("a snapshot with random changes is refused") {
  const ScratchFolder folder;
  const std::string whole = small_snapshot(folder);
  const bool held = rc::check([&] {
    std::string changed = whole;
    const int changes = *rc::gen::inRange(1, 20);
    for (int i = 0; i < changes; ++i) changed[*rc::gen::inRange<size_t>(0, whole.size())] = *rc::gen::arbitrary<char>();
    if (*rc::gen::arbitrary<bool>()) changed.append(*rc::gen::inRange<size_t>(1, 40), '\0');
    RC_PRE(changed != whole);
    RC_ASSERT_FALSE(read_damaged(folder, changed).has_value());
  });
  CHECK(held);
}

/// What three ranks write side by side, each a run of every array, and one of them finishes.
struct Parts {
  static constexpr uint64_t kElements = 900;
  static constexpr uint64_t kArrayBytes = kElements * sizeof(float);
  static constexpr uint64_t kArrays = 3;
  SnapshotHeader header{8, "00ff", "lr", "run-1", "weights f32[900]\nfirst f32[900]\nsecond f32[900]\n", "0123"};
  std::filesystem::path file;
  std::filesystem::path draft;
  uint64_t begin = head_of_snapshot(header).size();  ///< of the state

  explicit Parts(const ScratchFolder& folder, int64_t generation = 1, const std::string& agent = "07af")
      : file(folder / "step-00000008.snapshot"), draft(draft_of(file, generation, agent)) {}
  void write(uint64_t rank) const {
    auto part = SnapshotDraft::open(draft);
    REQUIRE(part.has_value());
    const std::vector<float> values(kElements / 3, static_cast<float>(rank + 1));
    for (uint64_t array = 0; array < kArrays; ++array) {
      const uint64_t at = begin + array * kArrayBytes + rank * values.size() * sizeof(float);
      REQUIRE(part->write(at, values.data(), values.size() * sizeof(float)).has_value());
    }
    REQUIRE(part->sync().has_value());
  }
  [[nodiscard]] Result<> finish() const {
    return finish_draft(draft, file, header, kArrays * kArrayBytes, test::spool_of(file.parent_path(), "rest"));
  }
  [[nodiscard]] std::string whole() const {
    for (const uint64_t rank : {uint64_t{2}, uint64_t{0}, uint64_t{1}}) write(rank);
    REQUIRE(finish().has_value());
    return test::read_all(file);
  }
};

/// Refused as damaged, in words that name the file and say what to do.
void check_damaged(const ScratchFolder& folder, const std::string& bytes) {
  const auto read = read_damaged(folder, bytes);
  REQUIRE_FALSE(read.has_value());
  CHECK(read.error().status() == Status::kDataLoss);
  const std::string& message = read.error().message();
  CHECK(message.find("the snapshot " + (folder / "damaged").string() + " is damaged: ") == 0);
  CHECK(message.find("restore it from a copy, or remove it to resume from an older snapshot") != std::string::npos);
}

TEST_CASE("a snapshot of parts that is cut, or has one other bit in any array, is refused and says what to do") {
  const ScratchFolder folder;
  const Parts parts(folder);
  const std::string whole = parts.whole();
  const uint64_t rest = parts.begin + Parts::kArrays * Parts::kArrayBytes;
  REQUIRE(whole.size() == rest + 4 + 24);
  std::vector<uint64_t> ends{0,        8,        15,        16,        parts.begin - 1, rest,
                             rest + 4, rest + 5, rest + 12, rest + 20, whole.size() - 1};
  for (uint64_t array = 0; array < Parts::kArrays; ++array) {
    const uint64_t first = parts.begin + array * Parts::kArrayBytes;
    for (uint64_t rank = 0; rank < 3; ++rank) ends.push_back(first + rank * Parts::kArrayBytes / 3);
    ends.push_back(first + 2);
  }
  for (const uint64_t end : ends) {
    CAPTURE(end);
    check_damaged(folder, whole.substr(0, end));
    std::string changed = whole;
    changed[end] = static_cast<char>(changed[end] ^ 4);
    check_damaged(folder, changed);
  }
  check_damaged(folder, whole + std::string(Parts::kArrayBytes, '\0'));
}

TEST_CASE("a draft with a part missing becomes no snapshot, says so, and leaves what was there before") {
  const ScratchFolder folder;
  const Parts before(folder);
  const std::string whole = before.whole();
  const Parts parts(folder, 2);
  for (uint64_t rank = 0; rank < 2; ++rank) parts.write(rank);
  const Result<> finished = parts.finish();
  REQUIRE_FALSE(finished.has_value());
  CHECK(finished.error().status() == Status::kDataLoss);
  CHECK(finished.error().message().find(parts.draft.string()) != std::string::npos);
  CHECK(finished.error().message().find("a part of it is missing") != std::string::npos);
  CHECK(folder.names() == std::vector<std::string>{"step-00000008.snapshot"});
  CHECK(test::read_all(parts.file) == whole);
  const Result<> none = parts.finish();  // nobody has written any
  REQUIRE_FALSE(none.has_value());
  CHECK(none.error().message().find(parts.draft.string()) != std::string::npos);
}

TEST_CASE("a draft that whoever finished it left half way is no snapshot, and the next one begins over it") {
  const ScratchFolder folder;
  const Parts parts(folder);
  const std::string whole = parts.whole();
  std::filesystem::rename(parts.file, parts.draft);
  std::filesystem::resize_file(parts.draft, whole.size() - 8);  // all but the checksum
  CHECK_FALSE(read_snapshot(parts.file, [](std::istream&, const SnapshotHeader&) {}).has_value());
  check_damaged(folder, test::read_all(parts.draft));
  const Parts again(folder, 1, "90bc");  // agents count from 1
  CHECK(again.whole() == whole);
  CHECK(folder.names() == std::vector<std::string>{"damaged", "step-00000008.snapshot"});
}

TEST_CASE("a snapshot of nothing that could be cut has no parts, and is a snapshot") {
  const ScratchFolder folder;
  const std::filesystem::path file = folder / "step-00000008.snapshot";
  const std::filesystem::path draft = draft_of(file, 1, "07af");
  const SnapshotHeader header{8, "00ff", "lr", "run-1", "weights f32[0]\n", "0123"};
  for (int rank = 0; rank < 3; ++rank) {
    auto part = SnapshotDraft::open(draft);
    REQUIRE(part.has_value());
    REQUIRE(part->sync().has_value());
  }
  REQUIRE(finish_draft(draft, file, header, 0, test::spool_of(file.parent_path(), "rest")).has_value());
  std::string state;
  const auto read = read_snapshot(file, [&state](std::istream& in, const SnapshotHeader&) { in >> state; });
  REQUIRE(read.has_value());
  CHECK(read->step == 8);
  CHECK(state == "rest");
}

TEST_CASE("all drafts of a folder are removed, and nothing else in it") {
  const ScratchFolder folder;
  for (const char* const name : {"step-00000008.snapshot", "step-00000009.snapshot.generation-1-of-07af.draft",
                                 "step-00000008.snapshot.generation-2.draft", "step-00000010.snapshot.0123.partial"}) {
    test::write_all(folder / name, "some");
  }
  remove_drafts(folder.path());
  CHECK(folder.names() == std::vector<std::string>{"step-00000008.snapshot", "step-00000010.snapshot.0123.partial"});
  remove_drafts(folder / "none");
}

TEST_CASE("files that are no snapshots are refused") {
  const ScratchFolder folder;
  CHECK_FALSE(read_damaged(folder, "").has_value());
  CHECK_FALSE(read_damaged(folder, std::string(4096, '\xff')).has_value());
  CHECK_FALSE(read_snapshot(folder.path(), [](std::istream&, const SnapshotHeader&) {}).has_value());
  const auto held =
      rc::check([&] { RC_ASSERT_FALSE(read_damaged(folder, *rc::gen::arbitrary<std::string>()).has_value()); });
  CHECK(held);
}

TEST_CASE("a pipe or a folder in the place of a snapshot is refused at once") {
  const ScratchFolder folder;
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  for (const char* name : {"pipe", "."}) {
    const auto read = read_snapshot(folder / name, [](std::istream&, const SnapshotHeader&) {});
    REQUIRE_FALSE(read.has_value());
    CHECK(read.error().message().find("it is not a regular file") != std::string::npos);
  }
}

TEST_CASE("a program that refuses the state is quoted with the file") {
  const ScratchFolder folder;
  small_snapshot(folder);
  const auto read = read_snapshot(folder / "whole", [](std::istream&, const SnapshotHeader&) {
    throw std::runtime_error("weights of another model");
  });
  REQUIRE_FALSE(read.has_value());
  CHECK(read.error().message().find("whole: weights of another model") != std::string::npos);
}

}  // namespace
}  // namespace pliant::elastic
