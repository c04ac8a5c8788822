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

TEST_CASE("the line that says why a program failed is found, whatever came after it") {
  const Lines banner{"tinylm: 31813 sequences, 1072013 tokens", "goodbye"};
  const auto cause = [&banner](Lines lines) {
    lines.insert(lines.end(), banner.begin(), banner.end());
    return cause_among(lines);
  };
  CHECK(cause({"starts", "tinylm: error: no device"}) == "tinylm: error: no device");
  CHECK(cause({"Traceback (most recent call last):", "  File \"train.py\", line 3, in <module>",
               "    raise ValueError('error: of the source')", "torch.cuda.OutOfMemoryError: out of memory"}) ==
        "torch.cuda.OutOfMemoryError: out of memory");
  CHECK(cause({"Traceback (most recent call last):", "  File \"train.py\", line 3, in <module>",
               "KeyboardInterrupt"}) == "KeyboardInterrupt");
  CHECK(cause({"terminate called after throwing an instance of 'std::runtime_error'", "  what():  no file"}) ==
        "what():  no file");
  CHECK(cause({"train: main.cpp:7: int main(): Assertion `false' failed."}) ==
        "train: main.cpp:7: int main(): Assertion `false' failed.");
  CHECK(cause({"train: error: the first", "train: error: that follows from it"}) == "train: error: the first");
  Lines long_ago{"train: error: that it got over", "train: error: no device"};
  long_ago.resize(100, "a banner");
  CHECK(cause_among(long_ago) == "train: error: no device");
  CHECK(cause({"line"}) == "goodbye");
  CHECK(cause_among({"last", "  ", ""}) == "last");
  CHECK(cause_among({}).empty());
  CHECK(cause_among({std::string(300, 'x')}) == std::string(300, 'x'));
  CHECK(cause_among({std::string(1000, 'x')}) == std::string(297, 'x') + "...");
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
