// Log: named loggers for core and plugins, whose lines go where the program wants them (pliant/log.hpp).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "pliant/log.hpp"

namespace pliant {

/// "debug", "info", "warning", "error" or "off"; nullopt for anything else.
std::optional<LogLevel> log_level_from(std::string_view word);

/// One named logger. Thread-safe. An spdlog logger that the program registered under the same name before gets the
/// lines instead of the sink.
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
