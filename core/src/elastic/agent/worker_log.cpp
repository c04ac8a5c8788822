// WorkerLog: shows people what a worker has written to its log.
#include "elastic/agent/worker_log.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <string_view>
#include <system_error>

namespace pliant::elastic {
namespace {

constexpr int64_t kLastBytes = 32768;
constexpr int64_t kMostAtOnce = int64_t{1} << 20;
constexpr size_t kLongestLine = size_t{64} << 10;
constexpr size_t kLongestCause = 300;
constexpr size_t kNearEnd = 12;  // lines

/// "ValueError: no such file": what a traceback ends with, at the beginning of a line.
bool is_python_exception(const std::string& line) {
  constexpr std::string_view kName = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.";
  const std::string_view name = std::string_view(line).substr(0, line.find_first_not_of(kName));
  const std::string_view rest = std::string_view(line).substr(name.size());
  if (!rest.empty() && rest.front() != ':') return false;
  constexpr std::array<std::string_view, 4> kEnds{"Error", "Exception", "Interrupt", "Exit"};
  return std::any_of(kEnds.begin(), kEnds.end(), [name](std::string_view end) { return name.ends_with(end); });
}

}  // namespace

WorkerLog::WorkerLog(std::filesystem::path file) : file_(std::move(file)), shown_(size()) {}

int64_t WorkerLog::size() const {
  std::error_code absent;
  const auto size = std::filesystem::file_size(file_, absent);
  return absent ? 0 : static_cast<int64_t>(size);
}

int64_t WorkerLog::skip_to_last() {
  const int64_t skipped = std::max<int64_t>(0, size() - shown_ - kMostAtOnce);
  shown_ += skipped;
  return skipped;
}

std::vector<std::string> WorkerLog::added_lines(bool all) {
  const int64_t added = size() - shown_;
  if (added <= 0) return {};
  const bool last = added <= kMostAtOnce;
  std::string bytes(static_cast<size_t>(last ? added : kMostAtOnce), '\0');
  std::ifstream in(file_, std::ios::binary);
  in.seekg(shown_);
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<size_t>(in.gcount()));
  std::vector<std::string> lines;
  size_t begin = 0;
  while (begin < bytes.size()) {
    const size_t end = std::min(bytes.find('\n', begin), bytes.size());
    const bool whole = end < bytes.size();
    if (!whole && !(all && last) && end - begin <= kLongestLine) break;
    const size_t length = std::min(end - begin, kLongestLine);
    lines.push_back(bytes.substr(begin, length));
    begin += length + (whole && begin + length == end ? 1 : 0);
  }
  shown_ += static_cast<int64_t>(begin);
  return lines;
}

std::vector<std::string> WorkerLog::last_lines() const {
  std::ifstream in(file_, std::ios::binary | std::ios::ate);
  if (!in) return {};
  const auto size = static_cast<int64_t>(in.tellg());
  const int64_t from = std::max<int64_t>(0, size - kLastBytes);
  in.seekg(from);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  if (from > 0 && !lines.empty()) lines.erase(lines.begin());
  return lines;
}

/// What a foreign program prints has no fields: its words are all that there is, and they are only shown.
std::string cause_among(const std::vector<std::string>& lines) {
  const auto shown = [](const std::string& line) {
    const size_t first = line.find_first_not_of(" \t\r");
    if (first == std::string::npos) return std::string();
    if (line.size() - first <= kLongestCause) return line.substr(first);
    return line.substr(first, kLongestCause - 3) + "...";
  };
  const auto first_with = [&lines](auto... words) {
    return std::find_if(lines.begin(), lines.end(),
                        [&](const std::string& line) { return ((line.find(words) != std::string::npos) || ...); });
  };
  if (first_with("Traceback (most recent call last)") != lines.end()) {
    const auto raised = std::find_if(lines.rbegin(), lines.rend(), is_python_exception);
    if (raised != lines.rend()) return shown(*raised);
  }
  const auto is_error = [](const std::string& line) {
    return line.find("error:") != std::string::npos || line.find("Error:") != std::string::npos;
  };
  // Of the last lines the first one, for others may follow from it; else the newest, for what came long before was got
  // over.
  const auto near = lines.end() - static_cast<std::ptrdiff_t>(std::min(lines.size(), kNearEnd));
  if (const auto said = std::find_if(near, lines.end(), is_error); said != lines.end()) return shown(*said);
  if (const auto said = std::find_if(lines.rbegin(), lines.rend(), is_error); said != lines.rend()) return shown(*said);
  if (const auto thrown = first_with("  what():  "); thrown != lines.end()) return shown(*thrown);
  if (const auto failed = first_with("Assertion", "terminate called", "FATAL", "fatal", "panicked");
      failed != lines.end())
    return shown(*failed);
  const auto last =
      std::find_if(lines.rbegin(), lines.rend(), [&](const std::string& line) { return !shown(line).empty(); });
  return last == lines.rend() ? std::string() : shown(*last);
}

}  // namespace pliant::elastic
