// The sample embed_c, a trainer in C: it learns, and ends with the same bits whatever happens to its job.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "integration/given_rows.hpp"
#include "integration/job_runner.hpp"
#include "pliant.h"
#include "sharded/files/safetensors.hpp"

using namespace pliant::test;

namespace {

/// The sample's own config, with other keys for [run].
std::string embed_config(const std::string& run_keys) {
  std::string text = read_all(std::string(PLIANT_SOURCE_DIR) + "/samples/embed_c/pliant.toml");
  const std::string workers = "workers = 4\n";
  const size_t at = text.find(workers);
  REQUIRE(at != std::string::npos);
  return text.replace(at, workers.size(), "name = \"toy\"\n" + run_keys + "\n");
}

void check_whole(const JobRunner& job, const Ended& ended) {
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  REQUIRE(ended.summary.is_object());
  CHECK(ended.summary["samples_expected"] == 2400);
  CHECK(ended.summary["samples_used_once"] == 2400);
  CHECK(ended.summary["samples_repeated"] == 0);
  CHECK(ended.summary["samples_missing"] == 0);
  CHECK(job.processes_left() == 0);
}

/// One worker, undisturbed.
const std::string& undisturbed() {
  static const std::string one = [] {
    JobRunner job;
    job.config(embed_config("workers = 1"));
    check_whole(job, job.run_json());
    return job.snapshot();
  }();
  return one;
}

/// The same over rows that another program packed, which lie beside it.
std::string config_of_rows(const JobRunner& job, const std::string& run_keys) {
  write_rows(job.folder(), packed(600));
  std::string text = embed_config(run_keys);
  return text.replace(text.find("[lr]"), 0,
                      "[sampler]\nuse = \"rows\"\n[sampler.rows]\noffsets = \"offsets.npy\"\nids = \"ids.npy\"\n"
                      "order = \"random\"\n\n");
}

/// The config of another program of the sample's source.
std::string variant_config(const char* program, const std::string& run_keys = "workers = 2") {
  std::string config = embed_config(run_keys);
  const std::string command = "command = [\"embed_c\"]";
  REQUIRE(config.find(command) != std::string::npos);
  config.replace(config.find(command), command.size(),
                 fmt::format("command = [\"{}/{}\"]", PLIANT_TEST_BIN_DIR, program));
  return config;
}

/// A socket of that abstract name that listens, and that processes which this one starts have, too.
int listening_at(const std::string& address) {
  const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  std::memcpy(at.sun_path + 1, address.data(), address.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + address.size());
  REQUIRE(::bind(listener, reinterpret_cast<const sockaddr*>(&at), length) == 0);
  REQUIRE(::listen(listener, 16) == 0);
  return listener;
}

/// What a launcher starts as rank `rank` of two.
pid_t start_called(const std::string& address, int rank) {
  const Environment environment({{"TEST_ADDRESS", address}, {"RANK", std::to_string(rank)}, {"WORLD_SIZE", "2"}});
  const std::string program = std::string(PLIANT_TEST_BIN_DIR) + "/embed_c_called";
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::execl(program.c_str(), program.c_str(), nullptr);
    ::_exit(127);
  }
  return pid;
}

int exit_code_of(pid_t pid) {
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/// The bytes of a tensor of a .safetensors file.
std::string tensor_of(const std::string& file, const char* name) {
  const auto reader = pliant::sharded::SafetensorsReader::open(file);
  REQUIRE(reader.has_value());
  const pliant::sharded::Tensor* const tensor = reader->find(name);
  REQUIRE(tensor != nullptr);
  std::string bytes(tensor->bytes, '\0');
  REQUIRE(reader->read(*tensor, 0, tensor->bytes, bytes.data()).has_value());
  return bytes;
}

void check_variant(const char* program) {
  JobRunner job;
  job.config(variant_config(program));
  check_whole(job, job.run_json());
  CHECK(job.snapshot() == undisturbed());
}

/// A job whose program is wrong once: in call `at` of callback `name`, and says so with `words`. It ends whole.
struct Breaking {
  std::string name;
  int64_t at;
  const char* words;
  int64_t workers = 1;
  int64_t restarts = 0;
};
void check_breaking(const Breaking& one, const std::string& expected) {
  CAPTURE(one.name);
  CAPTURE(one.at);
  JobRunner job;
  const auto once = job.folder() / "once";
  job.config(variant_config("embed_c_breaks", fmt::format("workers = {}\nsnapshot_every = 25\nkeep_snapshots = 9\n"
                                                          "digest_every = 0",
                                                          one.workers)));
  const Ended ended =
      job.run_json({"--show-logs", "--set", fmt::format("app.breaks=\"{}\"", one.name), "--set",
                    fmt::format("app.breaks_at={}", one.at), "--set", fmt::format("app.once=\"{}\"", once.string())});
  check_whole(job, ended);
  CHECK(has(ended.err, one.words));
  CHECK(std::filesystem::exists(once));
  CHECK(ended.summary["restarts"] == one.restarts);
  CHECK(job.snapshot() == expected);
}

}  // namespace

TEST_CASE("the trainer in C has at most 150 lines") {
  const std::string text = read_all(std::string(PLIANT_SOURCE_DIR) + "/samples/embed_c/main.c");
  CHECK(std::count(text.begin(), text.end(), '\n') <= 150);
}

TEST_CASE("the trainer in C learns") {
  JobRunner job;
  job.config(embed_config("workers = 4"));
  check_whole(job, job.run_json());
  const auto commits = commits_of(job);
  CHECK(commits.back().loss < commits.front().loss / 2);
}

TEST_CASE("the trainer in C ends with the same bits at every number of workers") {
  for (const int workers : {2, 4}) {
    JobRunner job;
    job.config(embed_config(fmt::format("workers = {}", workers)));
    check_whole(job, job.run_json());
    CHECK(job.snapshot() == undisturbed());
  }
}

TEST_CASE("the trainer in C that takes its gradient where it lies on the device ends with the same bits") {
  check_variant("embed_c_on_device");
}

TEST_CASE("a start in C that was refused for its arrays is tried again with others, and no bit changes") {
  check_variant("embed_c_starts_again");
}

TEST_CASE("a callback in C that ends wrongly is named, and the job loses nothing by it") {
  JobRunner alone;
  alone.config(variant_config("embed_c_breaks", "workers = 1"));
  check_whole(alone, alone.run_json());
  const std::string expected = alone.snapshot();
  const char* const unsaved = "the program's own save of its state ended with status 99";
  for (const Breaking& one : {
           Breaking{"save", 1, unsaved},  // asked for its size
           Breaking{"save", 2, unsaved},
           Breaking{"most of save", 1, "save announced 18446744073709551615 bytes"},
           Breaking{"bytes of save", 1, "save wrote another number of bytes than it announced"},
           Breaking{"before", 1, "before a snapshot failed: it ended with status 99"},
           Breaking{"save", 1, unsaved, 2},  // for the worker that joins, which loads nothing then
           Breaking{"load", 1, "the program's own load of its state ended with status 99", 2, 1},
       })
    check_breaking(one, expected);
}

TEST_CASE("the trainer in C whose workers another launcher starts ends with the same bits") {
  JobRunner job;
  job.config(embed_config("workers = 4"));
  const std::string address = "pliant-test-" + job.folder().filename().string();
  const int listener = listening_at(address);
  const pid_t agent =
      job.start({"run", "pliant.toml", "--json", "--workers", "2", "--listen", std::to_string(listener)});
  ::close(listener);
  const std::array<pid_t, 2> workers{start_called(address, 0), start_called(address, 1)};
  for (const pid_t worker : workers) CHECK(exit_code_of(worker) == 0);
  check_whole(job, job.wait(agent));
  CHECK(job.snapshot() == undisturbed());
}

TEST_CASE("a trainer in C says what it is busy with, gives metrics and results, looks ahead, and ends the job early") {
  JobRunner job;
  job.config(variant_config("embed_c_long_lived"));
  const Ended ended = job.run_json({"--set", "lr.groups.head=0.1"});
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(ended.summary["restarts"] == 0);
  CHECK(ended.summary["outcome"] == "ended early");
  CHECK(has(ended.summary["reason"].get<std::string>(), "it is good"));
  CHECK(ended.summary["steps"] == 12);
  CHECK(ended.summary["metrics"]["half"] == 0.5);
  CHECK(ended.summary["metrics"]["ranks"] == 2);
  CHECK(ended.summary["evaluations"].size() == 12);
  const std::string log = read_all((job.latest() / "logs" / "rank-0.log").string());
  CHECK(has(log, "wrote a snapshot"));
  CHECK(has(log, ": 11 steps as foretold, 0 shared out anew\n"));  // all but the first one
}

TEST_CASE("the steps that a trainer in C was foretold come also where a rank is killed, then maybe with other rows") {
  JobRunner job;
  job.config(variant_config("embed_c_long_lived"));
  const Ended ended = job.run_json({"--set", "lr.groups.head=0.1", "--inject", "kill:rank=1,step=5,at=vote"});
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(ended.summary["restarts"] == 1);
  const std::string log = read_all((job.latest() / "logs" / "rank-0.log").string());
  CHECK(has(log, " shared out anew\n"));
  CHECK_FALSE(has(log, " 0 shared out anew\n"));
}

TEST_CASE(
    "the best snapshot of a job is exported in C: its tensors are those of the best step, which is not the last") {
  JobRunner job;
  job.config(variant_config("embed_c_long_lived",
                            "workers = 2\nsnapshot_every = 3\nkeep_snapshots = 1\nkeep_best = \"distance\""));
  const Ended ended = job.run_json({"--set", "lr.groups.head=0.1"});
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  REQUIRE(ended.summary["steps"] == 12);
  const std::string run = job.latest().string();
  const std::string best = (job.folder() / "best.safetensors").string();
  pliant_export_options_t options = PLIANT_INIT(pliant_export_options_t);
  options.flags = PLIANT_EXPORT_BEST;
  pliant_exported_t exported = PLIANT_INIT(pliant_exported_t);
  REQUIRE(pliant_export_snapshot(run.c_str(), &options, best.c_str(), &exported, nullptr) == PLIANT_OK);
  CHECK(exported.step == 6);
  CHECK(exported.value == 0);
  CHECK(exported.tensors == 2);

  // What a job that ends after the best step ends with: weights and momentum, one behind the other.
  JobRunner shorter;
  shorter.config(embed_config("workers = 1\nmax_steps = 6"));
  REQUIRE(shorter.run_json().exit_code == 0);
  const std::string state = shorter.snapshot();
  REQUIRE(state.size() > exported.bytes);
  CHECK(tensor_of(best, "weights") + tensor_of(best, "momentum") == state.substr(state.size() - exported.bytes));

  const std::string newest = (job.folder() / "newest.safetensors").string();
  REQUIRE(pliant_export_snapshot(run.c_str(), nullptr, newest.c_str(), &exported, nullptr) == PLIANT_OK);
  CHECK(exported.step == 12);
  CHECK(tensor_of(newest, "weights") != tensor_of(best, "weights"));
}

TEST_CASE("the trainer in C that is killed at every point of a step ends with the same bits") {
  JobRunner job;
  job.config(embed_config("workers = 4\nmax_restarts = 20"));
  std::vector<std::string> more;
  int step = 3;  // rank 0, which there is at every number of workers
  for (const char* at : {"forward", "reduce", "vote", "commit", "apply"}) {
    more.insert(more.end(), {"--inject", fmt::format("kill:rank=0,step={},at={}", step, at)});
    step += 6;
  }
  const Ended ended = job.run_json(more);
  check_whole(job, ended);
  CHECK(!has(ended.err, "never struck"));
  CHECK(ended.summary["generations"].get<int>() >= 6);
  CHECK(job.snapshot() == undisturbed());
}

TEST_CASE("the trainer in C all of whose workers die goes back to its snapshot, and ends with the same bits") {
  JobRunner job;
  job.config(embed_config("workers = 2\nsnapshot_every = 5\nmax_restarts = 9"));
  const Ended ended =
      job.run_json({"--inject", "kill:rank=0,step=13,at=apply", "--inject", "kill:rank=1,step=13,at=apply"});
  check_whole(job, ended);
  CHECK(job.ledger("restart").size() == 1);
  CHECK(job.snapshot() == undisturbed());
}

TEST_CASE("the trainer in C shrinks, is resumed at other sizes after its agent died, and ends with the same bits") {
  JobRunner job;
  job.config(embed_config("workers = 4\nsnapshot_every = 4\non_loss = \"shrink\""));
  const Ended killed =
      job.run_json({"--inject", "kill:rank=1,step=5,at=reduce", "--inject", "kill:agent,step=14,at=vote"});
  REQUIRE(killed.exit_code == 128 + SIGKILL);
  job.wait_for_processes();
  const Ended ended = job.run_json({"--resume", "--workers", "1"});
  check_whole(job, ended);
  CHECK(ended.summary["resumed_from"] == 12);
  CHECK(job.snapshot() == undisturbed());
}

TEST_CASE(
    "the trainer in C over rows of a packer is killed, and resumed at another size, and ends with the same bits") {
  JobRunner alone;
  alone.config(config_of_rows(alone, "workers = 1"));
  check_whole(alone, alone.run_json());
  CHECK(alone.snapshot() != undisturbed());  // whose rows are sequences
  JobRunner job;
  job.config(config_of_rows(job, "workers = 4\nsnapshot_every = 4"));
  const Ended killed =
      job.run_json({"--inject", "kill:rank=2,step=5,at=vote", "--inject", "kill:agent,step=14,at=commit"});
  REQUIRE(killed.exit_code == 128 + SIGKILL);
  job.wait_for_processes();
  const Ended ended = job.run_json({"--resume", "--workers", "2"});
  check_whole(job, ended);
  CHECK(ended.summary["resumed_from"] == 12);
  CHECK(job.snapshot() == alone.snapshot());
}

TEST_CASE("the trainer in C outside of a job says how to start it, and ends with exit code 2") {
  const std::string command = fmt::format("env -u PLIANT_RUN_DIR '{}/embed_c' 2>&1", PLIANT_BIN_DIR);
  FILE* const pipe = ::popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string said(4096, '\0');
  said.resize(std::fread(said.data(), 1, said.size(), pipe));
  const int status = ::pclose(pipe);
  CHECK(WEXITSTATUS(status) == 2);
  CHECK(has(said, "embed_c: this program is a worker of a job: start it with `pliant run"));
}
