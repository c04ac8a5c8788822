// The only file of core that knows spdlog.
#include "base/log.hpp"

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/spdlog.h>

#include <array>
#include <atomic>
#include <functional>
#include <mutex>
#include <set>
#include <utility>

#include "base/environment.hpp"
#include "base/no_fork.hpp"
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

/// The program's sink. One for the process, like the streams that it stands for.
struct Program {
  ProcessLock lock;  // one line at a time
  LogSink sink;
  std::atomic<LogLevel> least{LogLevel::kOff};
};

Program& program() {
  static constinit std::atomic<Program*> one{nullptr};
  return made_once(one, [] { return std::make_unique<Program>(); });
}

void write_to_program(LogLevel level, std::string_view logger, std::string_view line) {
  Program& to = program();
  const ProcessLock::Held one_line(to.lock);
  if (to.sink && level >= to.least) to.sink(level, logger, line);
}

constexpr size_t kMostRemembered = 1024;  // warnings of one logger

std::string_view name_of(LogLevel level) {
  constexpr std::array<std::string_view, 5> kNames{"debug", "info", "warning", "error", "off"};
  return kNames[static_cast<size_t>(level)];
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

void set_log_sink(LogSink sink, LogLevel least) {
  Program& to = program();
  const ProcessLock::Held between_lines(to.lock);
  const NoFork whole;
  to.least = sink ? least : LogLevel::kOff;
  to.sink = std::move(sink);
}

void log_to_stderr(LogLevel least) {
  const char* const word = environment_variable("PLIANT_LOG");
  set_log_sink([](LogLevel level, std::string_view logger,
                  std::string_view line) { write_stderr(fmt::format("{}: {}: {}\n", logger, name_of(level), line)); },
               word == nullptr ? least : log_level_from(word).value_or(least));
}

struct Log::State {
  std::string name;
  std::shared_ptr<spdlog::logger> logger;  // of the program, of this name; mostly none
  std::mutex mutex;
  std::set<size_t> warnings;  // hashes of those that were written

  [[nodiscard]] bool is_heard(LogLevel level) const {
    return logger ? logger->should_log(to_spdlog(level)) : level >= program().least.load();
  }
  bool said_before(std::string_view line) {
    const NoFork whole;
    const std::lock_guard lock(mutex);
    const size_t hash = std::hash<std::string_view>{}(line);
    if (warnings.size() >= kMostRemembered) return warnings.count(hash) > 0;
    return !warnings.insert(hash).second;
  }
};

Log::Log(const std::string& name) : state_(std::make_unique<State>()) {
  state_->name = name;
  const NoFork whole;  // spdlog has a lock around all names
  state_->logger = spdlog::get(name);
}

Log::~Log() = default;
Log::Log(Log&&) noexcept = default;
Log& Log::operator=(Log&&) noexcept = default;

void Log::write(LogLevel level, std::string_view line) const noexcept {
  try {
    if (!state_->is_heard(level)) return;
    if (level == LogLevel::kWarning && state_->said_before(line)) return;
    const std::string shown = printable(line);
    if (!state_->logger) return write_to_program(level, state_->name, shown);
    const NoFork whole;  // and one in each of its sinks
    state_->logger->log(to_spdlog(level), spdlog::string_view_t(shown.data(), shown.size()));
  } catch (...) {  // a line that cannot be written is lost; its writer goes on
  }
}

}  // namespace pliant
