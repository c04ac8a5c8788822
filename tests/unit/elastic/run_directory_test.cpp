// Run directories: each is one run's, and one agent's at a time.
#include <doctest/doctest.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "elastic/run_directory.hpp"
#include "scratch_folder.hpp"

namespace pliant::elastic {
namespace {

namespace fs = std::filesystem;
using test::ScratchFolder;

const JobFacts kFacts{"run-1", "toy", 8, 2};

TEST_CASE("run ids that are made in one second by one process differ") {
  std::set<std::string> ids;
  for (int i = 0; i < 1000; ++i) ids.insert(fresh_run_id());
  CHECK(ids.size() == 1000);
}

TEST_CASE("the command that resumes a run is one that a shell takes, whatever its words are") {
  CHECK(resume_command(RunDirectory("/runs/toy/1")) == "pliant run /runs/toy/1/config.toml --resume /runs/toy/1");
  CHECK(resume_command(RunDirectory("/my runs/1"), {"python3", "train.py", "it's", ""}) ==
        "pliant run '/my runs/1/config.toml' --resume '/my runs/1' -- python3 train.py 'it'\\''s' ''");
}

TEST_CASE("a directory that is another run's is refused and left as it is") {
  const ScratchFolder folder;
  const auto first = RunDirectory::create(folder.path(), kFacts);
  REQUIRE(first.has_value());
  REQUIRE(first->fill(kFacts, "mine").has_value());
  const auto second = RunDirectory::create(folder.path(), kFacts);
  REQUIRE_FALSE(second.has_value());
  CHECK(second.error().exit_code() == ExitCode::kUsage);
  CHECK(second.error().message().find("run-1 exists already") != std::string::npos);
  CHECK(test::read_all(first->config()) == "mine");
}

TEST_CASE("nothing is in a directory before its lock is held, and two do not hold it") {
  const ScratchFolder folder;
  const auto run = RunDirectory::create(folder.path(), kFacts);
  REQUIRE(run.has_value());
  CHECK(fs::is_empty(run->path()));
  {
    const auto lock = DirectoryLock::take(*run);
    REQUIRE(lock.has_value());
    const auto other = DirectoryLock::take(*run);
    REQUIRE_FALSE(other.has_value());
    CHECK(other.error().message().find("another `pliant run` is using") != std::string::npos);
  }
  CHECK(DirectoryLock::take(*run).has_value());
}

TEST_CASE("pages of visits have the names of their workers, and are removed alone") {
  const ScratchFolder folder;
  const auto run = RunDirectory::create(folder.path(), kFacts);
  REQUIRE(run.has_value());
  REQUIRE(run->fill(kFacts, "config").has_value());
  CHECK(RunDirectory::visits_of(3) == "logs/.visits-3");
  for (const std::string& file : {RunDirectory::visits_of(3), RunDirectory::visits_of(71), RunDirectory::trace_of(3)}) {
    test::write_all(run->path() / file, "kept by an agent that was killed");
  }
  run->remove_visits();
  CHECK_FALSE(fs::exists(run->path() / RunDirectory::visits_of(3)));
  CHECK_FALSE(fs::exists(run->path() / RunDirectory::visits_of(71)));
  REQUIRE(run->traces().size() == 1);
  run->remove_traces();
  CHECK(fs::is_empty(run->logs()));
}

TEST_CASE("the path of `latest` is resolved when it is opened, and leaves nothing else behind when it moves") {
  const ScratchFolder folder;
  for (const char* id : {"run-1", "run-2"}) {
    const JobFacts facts{id, "toy", 8, 2};
    const auto made = RunDirectory::create(folder.path(), facts);
    REQUIRE(made.has_value());
    REQUIRE(made->fill(facts, "config").has_value());
    REQUIRE(made->become_latest().has_value());
    const auto opened = RunDirectory::open(folder / "toy/latest");
    REQUIRE(opened.has_value());
    CHECK(opened->path() == folder / "toy" / id);
    const auto facts_there = opened->read_facts();
    REQUIRE(facts_there.has_value());
    CHECK(facts_there->run_id == id);
  }
  CHECK(folder.names("toy") == std::vector<std::string>{"latest", "run-1", "run-2"});
  CHECK_FALSE(RunDirectory::open(folder / "toy/none").has_value());
}

}  // namespace
}  // namespace pliant::elastic
