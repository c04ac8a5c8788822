// Reads what the kernel says of memory.
#include "common/processes/memory_left.hpp"

#include <algorithm>
#include <fstream>
#include <optional>

namespace pliant::accelerator {

namespace {

uint64_t left_of_machine(const std::string& root) {
  std::ifstream meminfo(root + "/proc/meminfo");
  std::string key;
  uint64_t kib = 0;
  uint64_t total = 0;
  bool known = false;
  while (meminfo >> key >> kib) {
    if (key == "MemAvailable:" || key == "SwapFree:") total += kib * 1024;
    known = known || key == "MemAvailable:";
    meminfo.ignore(64, '\n');
  }
  return known ? total : UINT64_MAX;
}

/// Nothing where there is no such file or it holds no number; "max" is none.
std::optional<uint64_t> number_in(const std::string& file) {
  std::ifstream in(file);
  uint64_t number = 0;
  if (in >> number) return number;
  return std::nullopt;
}

uint64_t entry_of(const std::string& file, const std::string& wanted) {
  std::ifstream in(file);
  std::string key;
  for (uint64_t value = 0; in >> key >> value;) {
    if (key == wanted) return value;
  }
  return 0;
}

/// Files that nobody uses now count as used, and are given up.
uint64_t left_of(const std::optional<uint64_t>& limit, const std::optional<uint64_t>& used, uint64_t idle_files) {
  if (!limit || !used) return UINT64_MAX;
  const uint64_t taken = *used - std::min(*used, idle_files);
  return *limit - std::min(*limit, taken);
}

/// Of cgroup 2: a group has no more than those around it.
uint64_t left_of_groups(const std::string& root, std::string group) {
  uint64_t least = UINT64_MAX;
  for (;;) {
    const std::string folder = root + "/sys/fs/cgroup" + group + "/";
    least = std::min(least, left_of(number_in(folder + "memory.max"), number_in(folder + "memory.current"),
                                    entry_of(folder + "memory.stat", "inactive_file")));
    if (group.empty()) return least;
    group.resize(group.find_last_of('/'));
  }
}

/// Of cgroup 1. In a container the group's own folder may be all that is seen.
uint64_t left_of_old_group(const std::string& root, const std::string& group) {
  uint64_t least = UINT64_MAX;
  for (const std::string& seen : {group, std::string()}) {
    const std::string folder = root + "/sys/fs/cgroup/memory" + seen + "/";
    least = std::min(least,
                     left_of(number_in(folder + "memory.limit_in_bytes"), number_in(folder + "memory.usage_in_bytes"),
                             entry_of(folder + "memory.stat", "total_inactive_file")));
  }
  return least;
}

}  // namespace

uint64_t memory_left(const std::string& root) {
  uint64_t least = left_of_machine(root);
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "0::/path", "4:memory:/path"
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    std::string group = line.substr(second + 1);
    if (group == "/") group.clear();
    if (controllers == ",,") least = std::min(least, left_of_groups(root, group));
    if (controllers.find(",memory,") != std::string::npos) least = std::min(least, left_of_old_group(root, group));
  }
  return least;
}

}  // namespace pliant::accelerator
