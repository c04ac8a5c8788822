// Run directories: each is one run's, and one agent's at a time.
#include <doctest/doctest.h>

#include <stdlib.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "elastic/agent/resume_choice.hpp"
#include "elastic/ledger.hpp"
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

TEST_CASE("a worker's command has the words that it finds in its environment, and none where there are none") {
  ::setenv(kProgramVariable, shell_words({"python3", "my train.py"}).c_str(), 1);
  CHECK(resume_command_of_worker(RunDirectory("/runs/1")) ==
        "pliant run /runs/1/config.toml --resume /runs/1 -- python3 'my train.py'");
  ::setenv(kProgramVariable, "", 1);
  CHECK(resume_command_of_worker(RunDirectory("/runs/1")) == "pliant run /runs/1/config.toml --resume /runs/1");
  ::unsetenv(kProgramVariable);
  CHECK(resume_command_of_worker(RunDirectory("/runs/1")) == "pliant run /runs/1/config.toml --resume /runs/1");
}

/// A run that was made in second `second`; `saves`: with a snapshot.
RunDirectory made_in(const ScratchFolder& folder, const std::string& second, bool saves) {
  const JobFacts facts{"20261124-0230" + second + "-0123456789ab", "toy", 8, 2};
  RunDirectory run = or_throw(RunDirectory::create(folder.path(), facts));
  or_throw(run.fill(facts, ""));
  or_throw(run.become_latest());
  if (saves) test::write_all(run.snapshots() / "step-00000001.snapshot", "");
  return run;
}

TEST_CASE("the newest run that has something to resume is chosen, and those that are newer are said") {
  const ScratchFolder folder;
  std::vector<RunDirectory> passed_over;
  CHECK_FALSE(newest_to_resume(folder.path(), "toy", passed_over));
  const RunDirectory first = made_in(folder, "01", false);
  CHECK(or_throw(newest_to_resume(folder.path(), "toy", passed_over)).path() == first.path());  // for want of a better
  made_in(folder, "02", true);
  const RunDirectory saved = made_in(folder, "03", true);
  const RunDirectory failed = made_in(folder, "04", false);
  const RunDirectory last = made_in(folder, "05", false);
  CHECK(or_throw(newest_to_resume(folder.path(), "toy", passed_over)).path() == saved.path());
  REQUIRE(passed_over.size() == 2);
  CHECK(passed_over.front().path() == last.path());
  CHECK(passed_over.back().path() == failed.path());
  passed_over.clear();
  const auto lock = DirectoryLock::take(last);  // an agent is at work there
  CHECK(or_throw(newest_to_resume(folder.path(), "toy", passed_over)).path() == last.path());
  CHECK(passed_over.empty());
}

TEST_CASE("a run whose ledger has a commit has something to resume, and one that cannot be read may have") {
  const ScratchFolder folder;
  std::vector<RunDirectory> passed_over;
  made_in(folder, "01", true);
  const RunDirectory run = made_in(folder, "02", false);
  {
    Ledger ledger = or_throw(Ledger::create(run.ledger(), "20261124-023002-0123456789ab", "f"));
    CHECK(or_throw(newest_to_resume(folder.path(), "toy", passed_over)).path() != run.path());
    or_throw(ledger.append(CommitRecord{}));
  }
  CHECK(or_throw(newest_to_resume(folder.path(), "toy", passed_over)).path() == run.path());
  test::write_all(run.ledger(), "this is no ledger\nand no line of it\n");
  CHECK(or_throw(newest_to_resume(folder.path(), "toy", passed_over)).path() == run.path());
}

TEST_CASE("a directory that is another run's is refused and left as it is") {
  const ScratchFolder folder;
  const auto first = RunDirectory::create(folder.path(), kFacts);
  REQUIRE(first.has_value());
  REQUIRE(first->fill(kFacts, "mine").has_value());
  const auto second = RunDirectory::create(folder.path(), kFacts);
  REQUIRE_FALSE(second.has_value());
  CHECK(second.error().origin() == Origin::kInput);
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
