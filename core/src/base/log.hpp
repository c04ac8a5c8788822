// Log: named loggers for core and plugins, silent below warning unless PLIANT_LOG says otherwise.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace pliant {

enum class LogLevel { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3, kOff = 4 };

/// "debug", "info", "warning", "error" or "off"; nullopt for anything else.
std::optional<LogLevel> log_level_from(std::string_view word);

/// One named logger. Thread-safe. An spdlog logger that the program registered under the same name gets the lines;
/// without one they go to stderr. The default logger of spdlog is never touched.
class Log {
 public:
  explicit Log(const std::string& name);
  ~Log();
  Log(Log&&) noexcept;
  Log& operator=(Log&&) noexcept;
  /// One line, no newline; shown as printable() makes it. A warning is written once, however often it is said.
  void write(LogLevel level, std::string_view line) const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pliant
