// /proc tells who belongs to a job.
#include "chaos/processes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>

#include "scratch_folder.hpp"

namespace pliant::test {
namespace {

std::optional<std::string> variable(const std::string& environment, const std::string& name) {
  const std::string wanted = std::string(1, '\0') + name + "=";
  const std::string all = std::string(1, '\0') + environment;
  const size_t at = all.find(wanted);
  if (at == std::string::npos) return std::nullopt;
  const size_t begin = at + wanted.size();
  return all.substr(begin, all.find('\0', begin) - begin);
}

std::string name_of(pid_t pid) {
  std::string name = read_all(fmt::format("/proc/{}/comm", pid));
  if (!name.empty()) name.pop_back();
  return name;
}

bool lives(pid_t pid) {
  const std::string stat = read_all(fmt::format("/proc/{}/stat", pid));
  const size_t state = stat.rfind(')');
  return state != std::string::npos && state + 2 < stat.size() && stat[state + 2] != 'Z' && stat[state + 2] != 'X';
}

}  // namespace

std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> pids;
  std::error_code gone;
  for (std::filesystem::directory_iterator task(fmt::format("/proc/{}/task", parent), gone), end; !gone && task != end;
       task.increment(gone)) {
    std::ifstream in(task->path() / "children");
    for (pid_t pid = 0; in >> pid;) {
      if (lives(pid)) pids.push_back(pid);
    }
  }
  return pids;
}

std::vector<WorkerSeen> workers_of(pid_t agent, int64_t initial) {
  std::vector<WorkerSeen> workers;
  for (const pid_t pid : children_of(agent)) {
    const std::string environment = read_all(fmt::format("/proc/{}/environ", pid));
    const auto rank = variable(environment, "RANK");
    const auto restarts = variable(environment, "TORCHELASTIC_RESTART_COUNT");
    if (!rank || !restarts || name_of(pid) == "pliant-warden") continue;
    const int64_t count = std::atoll(restarts->c_str());
    workers.push_back({pid, count == 0 ? std::atoll(rank->c_str()) : initial - 1 + count});
  }
  std::sort(workers.begin(), workers.end(), [](const WorkerSeen& a, const WorkerSeen& b) { return a.id < b.id; });
  return workers;
}

pid_t warden_of(pid_t agent) {
  for (const pid_t pid : children_of(agent)) {
    if (name_of(pid) == "pliant-warden") return pid;
  }
  return 0;
}

std::vector<pid_t> grandchildren_of(pid_t agent, int64_t initial) {
  std::vector<pid_t> all;
  for (const WorkerSeen& worker : workers_of(agent, initial)) {
    const auto own = children_of(worker.pid);
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

std::vector<pid_t> processes_in(const std::string& folder) {
  std::vector<pid_t> pids;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const auto directory = variable(read_all(entry.path() / "environ"), "PLIANT_RUN_DIR");
    const pid_t pid = std::atoi(name.c_str());
    if (directory && directory->rfind(folder, 0) == 0 && lives(pid)) pids.push_back(pid);
  }
  return pids;
}

}  // namespace pliant::test
