// What of a worker's log is shown, and how much at once.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "elastic/agent/worker_log.hpp"
#include "scratch_folder.hpp"

using namespace pliant::elastic;
using Lines = std::vector<std::string>;

TEST_CASE("whole lines are shown once, and one without an end when its worker has ended") {
  const pliant::test::ScratchFolder folder;
  const auto file = folder.write("log", "of another run\n");
  WorkerLog log(file);
  CHECK(log.added_lines(false).empty());
  folder.write("log", "of another run\none\n\nthr");
  CHECK(log.added_lines(false) == Lines{"one", ""});
  folder.write("log", "of another run\none\n\nthree\nfo");
  CHECK(log.added_lines(false) == Lines{"three"});
  CHECK(log.added_lines(true) == Lines{"fo"});
  CHECK(log.added_lines(true).empty());
  CHECK(log.shown() == log.size());
}

TEST_CASE("a line without an end comes in pieces, and no call returns more than a MiB") {
  const pliant::test::ScratchFolder folder;
  const auto file = folder.write("log", "");
  WorkerLog log(file);
  const std::string endless(size_t{5} << 20, 'x');
  folder.write("log", endless);
  std::string shown;
  for (int call = 0; call < 6; ++call) {
    size_t bytes = 0;
    for (const std::string& piece : log.added_lines(false)) {
      CHECK(piece.size() <= size_t{64} << 10);
      bytes += piece.size();
      shown += piece;
    }
    CHECK(bytes <= size_t{1} << 20);
  }
  CHECK(shown.size() > size_t{4} << 20);  // it does not wait for the line's end
  for (const std::string& piece : log.added_lines(true)) shown += piece;
  CHECK(shown == endless);
}

TEST_CASE("of a long rest the last MiB is shown, and what comes before is counted") {
  const pliant::test::ScratchFolder folder;
  const auto file = folder.write("log", "");
  WorkerLog log(file);
  CHECK(log.skip_to_last() == 0);
  folder.write("log", std::string(size_t{3} << 20, 'x') + "\nthe end\n");
  CHECK(log.skip_to_last() == (int64_t{2} << 20) + 9);
  CHECK(log.added_lines(true).back() == "the end");
  CHECK(log.skip_to_last() == 0);
}
