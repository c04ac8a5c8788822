// What reading makes of snapshots that are cut, changed or lengthened.
#include <doctest/doctest.h>
#include <rapidcheck.h>
#include <sys/stat.h>

#include <istream>
#include <ostream>
#include <stdexcept>

#include "elastic/snapshot.hpp"
#include "scratch_folder.hpp"

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
