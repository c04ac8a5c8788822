// The only file of core that knows spdlog.
#include "base/log.hpp"

#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <functional>
#include <mutex>
#include <set>

#include "base/environment.hpp"
#include "base/printable.hpp"
#include "base/stderr_writer.hpp"

namespace pliant {

namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      return spdlog::level::off;
  }
  return spdlog::level::warn;
}

class StderrSink final : public spdlog::sinks::base_sink<std::mutex> {
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    write_stderr({line.data(), line.size()});
  }
  void flush_() override {}
};

constexpr size_t kMostRemembered = 1024;  // warnings of one logger

LogLevel level_of_environment() {
  const char* word = environment_variable("PLIANT_LOG");
  return word == nullptr ? LogLevel::kWarning : log_level_from(word).value_or(LogLevel::kWarning);
}

}  // namespace

std::optional<LogLevel> log_level_from(std::string_view word) {
  if (word == "debug") return LogLevel::kDebug;
  if (word == "info") return LogLevel::kInfo;
  if (word == "warning") return LogLevel::kWarning;
  if (word == "error") return LogLevel::kError;
  if (word == "off") return LogLevel::kOff;
  return std::nullopt;
}

struct Log::State {
  std::shared_ptr<spdlog::logger> logger;
  std::mutex mutex;
  std::set<size_t> warnings;  // hashes of those that were written

  bool said_before(std::string_view line) {
    const std::lock_guard lock(mutex);
    const size_t hash = std::hash<std::string_view>{}(line);
    if (warnings.size() >= kMostRemembered) return warnings.count(hash) > 0;
    return !warnings.insert(hash).second;
  }
};

Log::Log(const std::string& name) : state_(std::make_unique<State>()) {
  state_->logger = spdlog::get(name);
  if (state_->logger) return;
  state_->logger = std::make_shared<spdlog::logger>(name, std::make_shared<StderrSink>());
  state_->logger->set_pattern("%n: %l: %v");
  state_->logger->set_level(to_spdlog(level_of_environment()));
  state_->logger->flush_on(spdlog::level::debug);
}

Log::~Log() = default;
Log::Log(Log&&) noexcept = default;
Log& Log::operator=(Log&&) noexcept = default;

void Log::write(LogLevel level, std::string_view line) const noexcept {
  try {
    if (level == LogLevel::kWarning && state_->said_before(line)) return;
    if (!state_->logger->should_log(to_spdlog(level))) return;
    const std::string shown = printable(line);
    state_->logger->log(to_spdlog(level), spdlog::string_view_t(shown.data(), shown.size()));
  } catch (...) {  // a line that cannot be written is lost; its writer goes on
  }
}

}  // namespace pliant
