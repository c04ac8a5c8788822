// A worker that does not read what it is told is found out, and its agent's memory has an end.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <cstdint>
#include <string>

#include "elastic/agent/worker_process.hpp"
#include "scratch_folder.hpp"

using namespace pliant::elastic;

TEST_CASE("what a worker does not read is kept up to a MiB") {
  const pliant::test::ScratchFolder folder;
  auto worker = WorkerProcess::start({{"/bin/sh", "-c", "kill -STOP $$"}, {}, folder / "log", ""});
  REQUIRE(worker);
  const std::string line(size_t{64} << 10, 'x');
  int64_t taken = 0;
  while (taken < (int64_t{16} << 20) && worker->send(line)) taken += static_cast<int64_t>(line.size());
  CHECK(taken >= int64_t{1} << 20);
  CHECK(taken < int64_t{4} << 20);
}

TEST_CASE("a pipe in the place of a worker's log is refused, and its reader not waited for") {
  const pliant::test::ScratchFolder folder;
  REQUIRE(::mkfifo((folder / "log").c_str(), 0600) == 0);
  const auto worker = WorkerProcess::start({{"/bin/true"}, {}, folder / "log", ""});
  REQUIRE_FALSE(worker);
  CHECK(worker.error().message().find("log") != std::string::npos);
}
