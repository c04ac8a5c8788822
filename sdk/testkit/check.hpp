// Check: one promise that a plugin is held to, and how a check says what it found.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace pliant::testkit {

/// Options of the plugin as the user wrote them: key and value.
using Settings = std::vector<std::pair<std::string, std::string>>;

/// The plugin under test, and what the run was given.
struct Subject {
  std::string file;  ///< absolute
  Settings settings;
  uint64_t seed = 1;
};

struct Check {
  const char* id;       ///< "memory.aligned": subject, dot, name
  const char* demands;  ///< one sentence
  void (*run)(const Subject& subject);
  int32_t limit_s = 20;  ///< past it the plugin counts as hung; time without a CPU is not counted (run_check)
};

/// Every check that a plugin of this kind is held to, by subject.
std::vector<Check> checks_of(const std::string& kind);

/// Those of all kinds, each once.
std::vector<Check> every_check();

/// Each check has a process of its own, and so has each rank; verdicts go through this descriptor to who started it.
void report_to(int descriptor);

/// End the process with a verdict, from any thread. Nothing is unwound: what hangs in the plugin cannot keep the reason
/// back.
[[noreturn]] void fail(const std::string& reason);
[[noreturn]] void skip(const std::string& reason);
/// The check goes on.
void warn(const std::string& reason);
/// The check, or the rank, came to its end.
void pass();

inline void expect(bool holds, const std::string& otherwise) {
  if (!holds) fail(otherwise);
}

}  // namespace pliant::testkit
