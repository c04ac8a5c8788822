// WorkerLog: shows people what a worker has written to its log.
#include "elastic/agent/worker_log.hpp"

#include <algorithm>
#include <fstream>
#include <system_error>

namespace pliant::elastic {
namespace {

constexpr size_t kLastLines = 12;
constexpr int64_t kLastBytes = 8192;

}  // namespace

WorkerLog::WorkerLog(std::filesystem::path file) : file_(std::move(file)) {
  std::error_code absent;
  const auto size = std::filesystem::file_size(file_, absent);
  if (!absent) shown_ = static_cast<int64_t>(size);
}

std::vector<std::string> WorkerLog::added_lines(bool all) {
  std::vector<std::string> lines;
  std::ifstream in(file_, std::ios::binary);
  in.seekg(shown_);
  for (std::string line; std::getline(in, line);) {
    if (in.eof() && !all) break;
    shown_ += static_cast<int64_t>(line.size()) + 1;
    lines.push_back(std::move(line));
  }
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
