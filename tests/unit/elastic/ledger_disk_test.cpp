// The ledger on a disk that fills up and under a writer that is killed.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "elastic/ledger.hpp"
#include "file_size_limit.hpp"
#include "ledger_samples.hpp"
#include "scratch_folder.hpp"

namespace pliant::elastic {
namespace {

using test::commit_of;
using test::filled_ledger;
using test::same;
using test::ScratchFolder;

TEST_CASE("an append that finds no room leaves the ledger as it was, and works once there is room") {
  const ScratchFolder folder;
  const auto file = folder / "ledger.jsonl";
  Ledger ledger = filled_ledger(file, 2);
  const std::string before = test::read_all(file);
  for (const auto room : std::initializer_list<rlim_t>{0, 1, 17, 100}) {
    CAPTURE(room);
    Result<> refused;
    {
      const test::FileSizeLimit limit(before.size() + room);
      refused = ledger.append(commit_of(2));
    }
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().status() == Status::kResourceExhausted);
    CHECK(refused.error().message().find(file.string()) != std::string::npos);
    CHECK(refused.error().message().find("ulimit -f") != std::string::npos);
    CHECK(test::read_all(file) == before);
    CHECK(ledger.lineage().commits.size() == 2);
  }
  REQUIRE(ledger.append(commit_of(2)).has_value());
  const auto read = Ledger::replay(file);
  REQUIRE(read.has_value());
  CHECK(read->commits.size() == 3);
}

TEST_CASE("a ledger that finds no room for its header leaves no file") {
  const ScratchFolder folder;
  {
    const test::FileSizeLimit limit(10);
    const auto ledger = Ledger::create(folder / "ledger.jsonl", "run", "f");
    REQUIRE_FALSE(ledger.has_value());
    CHECK(ledger.error().status() == Status::kResourceExhausted);
  }
  CHECK(folder.names().empty());
}

/// Appends commits for ever and writes one byte to `reports` after each.
[[noreturn]] void append_for_ever(const std::filesystem::path& file, int reports) {
  auto ledger = Ledger::open(file);
  for (int64_t step = 0; ledger.has_value(); ++step) {
    if (!ledger->append(commit_of(step)) || ::write(reports, "+", 1) != 1) break;
  }
  ::_exit(1);
}

TEST_CASE("every commit that was reported outlives kill -9 of the writer") {
  const ScratchFolder folder;
  for (int64_t round = 1; round <= 12; ++round) {
    const auto file = folder / std::to_string(round);
    { const Ledger ledger = filled_ledger(file, 0); }
    int pipe_ends[2];
    REQUIRE(::pipe(pipe_ends) == 0);
    const pid_t writer = ::fork();
    REQUIRE(writer >= 0);
    if (writer == 0) {
      ::close(pipe_ends[0]);
      append_for_ever(file, pipe_ends[1]);
    }
    ::close(pipe_ends[1]);
    int64_t reported = 0;
    char byte = 0;
    while (reported < round * 3 && ::read(pipe_ends[0], &byte, 1) == 1) ++reported;
    REQUIRE(::kill(writer, SIGKILL) == 0);
    REQUIRE(::waitpid(writer, nullptr, 0) == writer);
    while (::read(pipe_ends[0], &byte, 1) == 1) ++reported;
    ::close(pipe_ends[0]);
    CHECK(reported >= round * 3);
    auto ledger = Ledger::open(file);
    REQUIRE(ledger.has_value());
    const auto committed = static_cast<int64_t>(ledger->lineage().commits.size());
    CHECK(committed >= reported);
    CHECK(committed <= reported + 1);
    for (int64_t step = 0; step < committed; ++step) {
      CHECK(same(ledger->lineage().commits[static_cast<size_t>(step)], commit_of(step)));
    }
    CHECK(ledger->append(commit_of(committed)).has_value());
  }
}

}  // namespace
}  // namespace pliant::elastic
