#include "integration/job_runner.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <utility>

#include "base/durable_file.hpp"
#include "base/result.hpp"
#include "elastic/snapshot.hpp"

namespace pliant::test {

namespace fs = std::filesystem;

std::string toy_config(const std::string& run_keys, const std::string& app_keys) {
  return fmt::format(R"(config_version = 1
[elasticity]
use = "v0.1"
[elasticity."v0.1"]
max_train_batch_size = 8
micro_batch_sizes = [2, 4]
[sampler]
use = "fixed"
[sampler.fixed]
order = "random"
[lr]
use = "sqrt"
base_lr = 0.01
[run]
name = "toy"
command = ["{}/toy_worker"]
attach = "required"
{}
[app]
{}
)",
                     PLIANT_TEST_BIN_DIR, run_keys, app_keys);
}

std::string misbehaving(const std::string& how, int rank, int64_t step) {
  return fmt::format("misbehave = \"{}\"\nmisbehave_rank = {}\nmisbehave_step = {}\n", how, rank, step);
}

Environment::Environment(const std::map<std::string, std::string>& values) {
  for (const auto& [name, value] : values) {
    const char* const now = std::getenv(name.c_str());
    before_[name] = now == nullptr ? std::nullopt : std::optional<std::string>(now);
    ::setenv(name.c_str(), value.c_str(), 1);
  }
}

Environment::~Environment() {
  for (const auto& [name, value] : before_) {
    if (value) {
      ::setenv(name.c_str(), value->c_str(), 1);
    } else {
      ::unsetenv(name.c_str());
    }
  }
}

void forge_ledger(const fs::path& file, const std::function<void(elastic::CommitRecord&)>& change) {
  const elastic::Lineage lineage = or_throw(elastic::Ledger::replay(file));
  fs::remove(file);
  auto forged = or_throw(elastic::Ledger::create(file, lineage.run_id, lineage.fingerprint));
  size_t began = 0;
  for (size_t i = 0; i < lineage.commits.size(); ++i) {
    while (began < lineage.began_before[i]) or_throw(forged.append(lineage.generations[began++]));
    elastic::CommitRecord commit = lineage.commits[i];
    change(commit);
    or_throw(forged.append(commit));
  }
  for (const auto& snapshot : lineage.snapshots) or_throw(forged.append(snapshot));
}

void JobRunner::config(const std::string& text) {
  std::ofstream(folder_ / "pliant.toml") << text;
}

std::vector<std::string> words_of_shell(const std::string& line) {
  std::vector<std::string> words;
  bool is_quoted = false;
  bool is_open = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == ' ' && !is_quoted) {
      is_open = false;
      continue;
    }
    if (!std::exchange(is_open, true)) words.emplace_back();
    if (line[i] == '\'') {
      is_quoted = !is_quoted;
    } else {
      if (line[i] == '\\' && !is_quoted) ++i;
      words.back() += line[i];
    }
  }
  return words;
}

pid_t JobRunner::start(const std::vector<std::string>& arguments, uint64_t file_kib) {
  std::vector<std::string> words{std::string(PLIANT_BIN_DIR) + "/pliant"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    const int out = ::open((folder_ / "stdout").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    const int err = ::open((folder_ / "stderr").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    ::dup2(out, STDOUT_FILENO);
    ::dup2(err, STDERR_FILENO);
    if (file_kib > 0) {
      const rlimit limit{file_kib * 1024, file_kib * 1024};
      ::signal(SIGXFSZ, SIG_IGN);
      ::setrlimit(RLIMIT_FSIZE, &limit);
    }
    if (::chdir(folder_.path().c_str()) == 0) ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  return pid;
}

Ended JobRunner::wait(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  Ended ended;
  ended.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  ended.out = read_all(folder_ / "stdout");
  ended.err = read_all(folder_ / "stderr");
  std::istringstream lines(ended.out);
  std::string last;
  for (std::string line; std::getline(lines, line);) last = line;
  ended.summary = nlohmann::json::parse(last, nullptr, false);
  return ended;
}

Ended JobRunner::run_json(std::vector<std::string> more) {
  more.insert(more.begin(), {"run", "pliant.toml", "--json"});
  return run(more);
}

Ended JobRunner::paste(const std::string& text) {
  const size_t begin = text.find("`pliant ");
  REQUIRE(begin != std::string::npos);
  const size_t end = text.find('`', begin + 1);
  std::vector<std::string> arguments = words_of_shell(text.substr(begin + 1, end - begin - 1));
  arguments.erase(arguments.begin());  // "pliant"
  arguments.insert(arguments.begin() + 1, "--json");
  return run(arguments);
}

Ended JobRunner::run_limited(uint64_t file_kib, const std::vector<std::string>& arguments) {
  return wait(start(arguments, file_kib));
}

Ended JobRunner::run(const std::vector<std::string>& arguments) {
  return wait(start(arguments));
}

fs::path JobRunner::latest() const {
  return fs::canonical(folder_ / "pliant-runs" / "toy" / "latest");
}

std::vector<nlohmann::json> JobRunner::ledger(const std::string& kind) const {
  std::vector<nlohmann::json> records;
  std::istringstream lines(read_all(latest() / "ledger.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    nlohmann::json record = nlohmann::json::parse(line, nullptr, false);
    if (record.is_object() && record.value("record", "") == kind) records.push_back(std::move(record));
  }
  return records;
}

nlohmann::json JobRunner::parts_of_state(int64_t step) const {
  nlohmann::json parts;
  std::istringstream lines(read_all(latest() / "digests.jsonl"));
  for (std::string text; std::getline(lines, text);) {
    const auto line = nlohmann::json::parse(text);
    if (line["step"] == step) parts = line["parts"];
  }
  parts.erase("(lr)");
  return parts;
}

bool JobRunner::wait_until(pid_t pid, const std::function<bool()>& condition) {
  while (!condition()) {
    siginfo_t ended{};
    if (::waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOWAIT | WNOHANG) == 0 && ended.si_pid == pid)
      return condition();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));  // polls a file; no order of events depends on it
  }
  return true;
}

bool JobRunner::wait_for_commits(pid_t pid, int64_t commits) {
  return wait_for_records(pid, "commit", commits);
}

bool JobRunner::wait_for_records(pid_t pid, const std::string& kind, int64_t count) {
  return wait_until(pid, [&] {
    std::error_code absent;
    return fs::exists(folder_ / "pliant-runs" / "toy" / "latest", absent) &&
           static_cast<int64_t>(ledger(kind).size()) >= count;
  });
}

bool JobRunner::wait_for_words(pid_t pid, const std::string& words) {
  return wait_until(pid, [&] { return read_all(folder_ / "stderr").find(words) != std::string::npos; });
}

std::string JobRunner::snapshot() const {
  fs::path newest;
  for (const auto& entry : fs::directory_iterator(latest() / "snapshots")) {
    if (newest.empty() || entry.path().filename() > newest.filename()) newest = entry.path();
  }
  if (newest.empty()) return "";
  std::ostringstream state;
  const auto header = or_throw(elastic::read_snapshot(
      newest, [&state](std::istream& in, const elastic::SnapshotHeader&) { state << in.rdbuf(); }));
  return fmt::format("{} {} {} {} {}", header.step, header.fingerprint, header.lr_state, header.arrays, state.str());
}

std::map<pid_t, std::string> JobRunner::processes() const {
  std::map<pid_t, std::string> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::string environment = read_all(entry.path() / "environ");
    if (environment.find("PLIANT_RUN_DIR=" + folder_.path().string()) == std::string::npos) continue;
    const std::string stat = read_all(entry.path() / "stat");
    const size_t state = stat.rfind(')') + 2;
    if (state < stat.size() && stat[state] != 'Z' && stat[state] != 'X')
      found[std::stoi(name)] = std::move(environment);
  }
  return found;
}

int JobRunner::processes_left() const {
  return static_cast<int>(processes().size());
}

void JobRunner::wait_for_processes() const {
  for (auto left = processes(); !left.empty(); left = processes()) {
    const FileDescriptor process(static_cast<int>(::syscall(SYS_pidfd_open, left.begin()->first, 0)));
    pollfd ends{process.get(), POLLIN, 0};
    if (process.get() >= 0) ::poll(&ends, 1, -1);
  }
}

pid_t JobRunner::process_with(const std::string& variable) const {
  const std::string wanted = std::string(1, '\0') + variable + std::string(1, '\0');
  for (const auto& [pid, environment] : processes()) {
    if ((std::string(1, '\0') + environment).find(wanted) != std::string::npos) return pid;
  }
  return 0;
}

pid_t JobRunner::worker(int64_t rank) const {
  return process_with(fmt::format("RANK={}", rank));
}

pid_t JobRunner::replacement(int64_t restart) const {
  return process_with(fmt::format("TORCHELASTIC_RESTART_COUNT={}", restart));
}

std::vector<elastic::CommitRecord> commits_of(const JobRunner& job) {
  return or_throw(elastic::Ledger::replay(job.latest() / "ledger.jsonl")).commits;
}

void check_commits(const std::vector<elastic::CommitRecord>& commits, const std::vector<elastic::CommitRecord>& others,
                   bool deterministic) {
  REQUIRE(!commits.empty());
  REQUIRE(commits.size() <= others.size());
  for (size_t i = 0; i < commits.size(); ++i) {
    CAPTURE(i);
    CHECK(commits[i].digest == others[i].digest);
    CHECK(commits[i].loss == doctest::Approx(others[i].loss).epsilon(1e-5));
    if (!deterministic) continue;
    CHECK(commits[i].loss == others[i].loss);
    CHECK(commits[i].state.value() == others[i].state.value());
  }
}

}  // namespace pliant::test
