// Where log lines of Pliant and its plugins go. A library prints nothing: until the program says otherwise they go
// nowhere.
#pragma once

#include <functional>
#include <string_view>

namespace pliant {

enum class LogLevel { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3, kOff = 4 };

/// Takes one line, without a newline and fit for a terminal. `logger`: "session", "pliant.plugin.seqlen".
using LogSink = std::function<void(LogLevel level, std::string_view logger, std::string_view line)>;

/// Lines of the whole process from `least` on go to `sink` from now on; an empty one takes none. The calls come from
/// any thread, one after the other; what the sink throws is dropped with its line, and it must not call Pliant.
/// [any-thread]
void set_log_sink(LogSink sink, LogLevel least = LogLevel::kWarning);

/// set_log_sink() with one that writes "logger: level: line" to stderr. The level is the one that the environment names
/// in PLIANT_LOG (debug, info, warning, error or off), else `least`. [any-thread]
void log_to_stderr(LogLevel least = LogLevel::kWarning);

}  // namespace pliant
