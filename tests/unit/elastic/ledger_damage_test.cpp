// What the ledger makes of torn, changed and random bytes.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <rapidcheck.h>

#include <algorithm>
#include <boost/crc.hpp>

#include "elastic/ledger.hpp"
#include "elastic/ledger_line.hpp"
#include "ledger_samples.hpp"
#include "scratch_folder.hpp"

namespace pliant::elastic {
namespace {

using test::commit_of;
using test::filled_ledger;
using test::same;
using test::ScratchFolder;

/// `content` (a JSON object without its closing brace) with a checksum that is right.
std::string sealed(const std::string& content) {
  boost::crc_32_type crc;
  crc.process_bytes(content.data(), content.size());
  return fmt::format("{},\"crc\":\"{:08x}\"}}", content, crc.checksum());
}

int64_t line_of(const std::string& bytes, size_t offset) {
  return 1 + std::count(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(offset), '\n');
}

TEST_CASE("a last line that is cut anywhere costs exactly its record") {
  const ScratchFolder folder;
  const auto file = folder / "ledger.jsonl";
  { const Ledger ledger = filled_ledger(file, 3); }
  const std::string whole = test::read_all(file);
  const size_t last_line = whole.rfind('\n', whole.size() - 2) + 1;
  for (size_t size = last_line; size < whole.size(); ++size) {
    CAPTURE(size);
    test::write_all(file, whole.substr(0, size));
    const auto read = Ledger::replay(file);
    REQUIRE(read.has_value());
    CHECK(read->commits.size() == 2);
    auto ledger = Ledger::open(file);
    REQUIRE(ledger.has_value());
    CHECK(test::read_all(file) == whole.substr(0, last_line));
    REQUIRE(ledger->append(commit_of(2)).has_value());
    CHECK(test::read_all(file) == whole);
  }
}

TEST_CASE("a ledger cut within its header is refused") {
  const ScratchFolder folder;
  const auto file = folder / "ledger.jsonl";
  { const Ledger ledger = filled_ledger(file, 0); }
  const std::string whole = test::read_all(file);
  for (size_t size = 0; size <= whole.find('\n'); ++size) {
    test::write_all(file, whole.substr(0, size));
    const auto read = Ledger::open(file);
    REQUIRE_FALSE(read.has_value());
    CHECK(read.error().status() == Status::kDataLoss);
    CHECK(read.error().message().find("ledger.jsonl:1:") != std::string::npos);
    CHECK(test::read_all(file) == whole.substr(0, size));
  }
}

TEST_CASE("a changed byte is reported with its line, wherever it is") {
  const ScratchFolder folder;
  const auto file = folder / "ledger.jsonl";
  {
    Ledger ledger = filled_ledger(file, 2);
    REQUIRE(ledger.append(SnapshotRecord{2, "two"}).has_value());
    REQUIRE(ledger.append(RestartRecord{1}).has_value());
  }
  const std::string whole = test::read_all(file);
  // The final newline alone looks like a line that was never finished.
  for (size_t offset = 0; offset + 1 < whole.size(); ++offset) {
    for (const int change : {1, 128, whole[offset] ^ '\n', int{whole[offset]}}) {
      if (change == 0) continue;
      std::string damaged = whole;
      damaged[offset] = static_cast<char>(damaged[offset] ^ change);
      test::write_all(file, damaged);
      const auto read = Ledger::replay(file);
      CAPTURE(offset);
      CAPTURE(change);
      REQUIRE_FALSE(read.has_value());
      CHECK(read.error().status() == Status::kDataLoss);
      CHECK(read.error().message().find(fmt::format("ledger.jsonl:{}:", line_of(whole, offset))) != std::string::npos);
    }
  }
}

TEST_CASE("the remedy in the message works") {
  const ScratchFolder folder;
  const auto file = folder / "ledger.jsonl";
  { const Ledger ledger = filled_ledger(file, 4); }
  std::string bytes = test::read_all(file);
  size_t third_commit = 0;
  for (int line = 0; line < 4; ++line) third_commit = bytes.find('\n', third_commit) + 1;
  bytes[third_commit + 30] = '#';
  test::write_all(file, bytes);
  const auto read = Ledger::open(file);
  REQUIRE_FALSE(read.has_value());
  const std::string remedy = fmt::format("`truncate -s {} {}`", third_commit, file.string());
  REQUIRE(read.error().message().find(remedy) != std::string::npos);
  std::filesystem::resize_file(file, third_commit);
  const auto mended = Ledger::open(file);
  REQUIRE(mended.has_value());
  CHECK(mended->lineage().commits.size() == 2);
}

TEST_CASE("a line that is missing, doubled or moved is reported") {
  const ScratchFolder folder;
  const auto file = folder / "ledger.jsonl";
  const std::string header = encode_line(HeaderRecord{"run", "f"});
  const std::string zero = encode_line(commit_of(0));
  const std::string one = encode_line(commit_of(1));
  for (const std::string& lines : {header + one, header + zero + zero, header + one + zero, zero + one, header + header,
                                   header + encode_line(RestartRecord{1}), header + "\n" + zero}) {
    test::write_all(file, lines);
    const auto read = Ledger::replay(file);
    REQUIRE_FALSE(read.has_value());
    CHECK(read.error().status() == Status::kDataLoss);
  }
}

TEST_CASE("a ledger of a newer format says so") {
  const ScratchFolder folder;
  const auto file = folder / "ledger.jsonl";
  test::write_all(file, sealed(R"({"record":"ledger","version":2,"run":"r","fingerprint":"f")") + "\n");
  const auto read = Ledger::replay(file);
  REQUIRE_FALSE(read.has_value());
  CHECK(read.error().message().find("format version 2, this release reads 1") != std::string::npos);
}

TEST_CASE("a file without line ends is refused before it fills the memory") {
  const ScratchFolder folder;
  const auto file = folder / "ledger.jsonl";
  test::write_all(file, "");
  std::filesystem::resize_file(file, uint64_t{1} << 33);  // 8 GiB of holes
  const auto read = Ledger::replay(file);
  REQUIRE_FALSE(read.has_value());
  CHECK(read.error().message().find("longer than any record") != std::string::npos);
}

TEST_CASE("replay of random bytes never crashes and never invents a lineage") {
  const ScratchFolder folder;
  const auto file = folder / "ledger.jsonl";
  const bool held = rc::check([&] {
    const auto bytes = *rc::gen::container<std::string>(
        rc::gen::oneOf(rc::gen::arbitrary<char>(), rc::gen::elementOf(std::string("{}[]\",:\n0123456789"))));
    test::write_all(file, bytes);
    RC_ASSERT_FALSE(Ledger::replay(file).has_value());
  });
  CHECK(held);
}

TEST_CASE("replay of random JSON behind a right checksum never crashes") {
  const std::vector<std::string> contents = [] {
    std::vector<std::string> made;
    for (const LedgerRecord& record :
         {LedgerRecord(HeaderRecord{"r", "f"}), LedgerRecord(commit_of(0)),
          LedgerRecord(GenerationRecord{1, 2, 0, "start"}), LedgerRecord(SnapshotRecord{0, "s"}),
          LedgerRecord(RestartRecord{0}), LedgerRecord(Evaluation{0, 1, 1, {{"valid", 0.5}}}),
          LedgerRecord(EndRecord{0, "r"})}) {
      const std::string line = encode_line(record);
      made.push_back(line.substr(0, line.rfind(",\"crc\"")));
    }
    return made;
  }();
  const std::vector<std::string> pieces = {
      "null", "-1",   "1e999", "18446744073709551615", "{", "}", "[[", "]", "\"", ",", "\\u", "0.5", "",
      "[]",   "true", "\xff"};
  const ScratchFolder folder;
  const auto file = folder / "ledger.jsonl";
  const bool held = rc::check([&] {
    std::string bytes = encode_line(HeaderRecord{"run", "f"});
    const int lines = *rc::gen::inRange(1, 5);
    for (int line = 0; line < lines; ++line) {
      std::string content = *rc::gen::elementOf(contents);
      const int changes = *rc::gen::inRange(0, 4);
      for (int change = 0; change < changes; ++change) {
        const auto at = *rc::gen::inRange<size_t>(0, content.size());
        const auto drop = *rc::gen::inRange<size_t>(0, 12);
        content.replace(at, drop, *rc::gen::elementOf(pieces));
      }
      bytes += sealed(content) + "\n";
    }
    test::write_all(file, bytes);
    if (const auto read = Ledger::replay(file); read.has_value()) {
      for (size_t i = 0; i < read->commits.size(); ++i) RC_ASSERT(read->commits[i].step == static_cast<int64_t>(i));
    } else {
      RC_ASSERT(read.error().status() == Status::kDataLoss);
    }
  });
  CHECK(held);
}

TEST_CASE("deeply nested JSON behind a right checksum is refused without deep recursion") {
  for (const std::string& content : {sealed(std::string(200000, '[')),
                                     sealed(R"({"record":)" + std::string(200000, '[') + std::string(200000, ']'))}) {
    CHECK_FALSE(decode_line(content).has_value());
  }
}

}  // namespace
}  // namespace pliant::elastic
