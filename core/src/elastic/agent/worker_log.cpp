// WorkerLog: shows people what a worker has written to its log.
#include "elastic/agent/worker_log.hpp"

#include <algorithm>
#include <fstream>
#include <system_error>

namespace pliant::elastic {
namespace {

constexpr size_t kLastLines = 12;
constexpr int64_t kLastBytes = 8192;
constexpr int64_t kMostAtOnce = int64_t{1} << 20;
constexpr size_t kLongestLine = size_t{64} << 10;

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
  if (lines.size() > kLastLines) lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(kLastLines));
  return lines;
}

/// What a foreign program prints has no fields: its words are all that there is, and they are only shown.
std::string cause_among(const std::vector<std::string>& lines) {
  const auto said = std::find_if(lines.begin(), lines.end(),
                                 [](const std::string& line) { return line.find("error:") != std::string::npos; });
  if (said != lines.end()) return said->substr(0, 300);
  const auto last = std::find_if(lines.rbegin(), lines.rend(), [](const std::string& line) {
    return line.find_first_not_of(" \t\r") != std::string::npos;
  });
  return last == lines.rend() ? std::string() : last->substr(0, 300);
}

}  // namespace pliant::elastic
