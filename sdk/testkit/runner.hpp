// Runs checks, each in a process of its own, and keeps what became of them.
#pragma once

#include <string>

#include "testkit/arguments.hpp"
#include "testkit/check.hpp"

namespace pliant::testkit {

enum class Result { kPass, kWarn, kSkip, kFail, kCrash };

constexpr const char* name_of(Result result) {
  switch (result) {
    case Result::kPass:
      return "pass";
    case Result::kWarn:
      return "warn";
    case Result::kSkip:
      return "skip";
    case Result::kFail:
      return "fail";
    case Result::kCrash:
      return "crash";
  }
  return "?";
}

struct Verdict {
  Result result = Result::kPass;
  std::string reason;  ///< empty for a pass
  int signal = 0;      ///< of a crash
  double seconds = 0;
};

/// What a file says it is.
struct Identity {
  std::string kind;
  std::string name;
  std::string version;
};

/// The file is no plugin, in the loader's words; exit code 3.
struct NotAPlugin : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Opens the file in another process. Throws NotAPlugin, and UsageError for options that it does not have.
Identity identify(const Subject& subject);
/// `limit_s` 0: the check's own. Time in which the threads of the check stood ready without a CPU is added, up to ten
/// limits.
Verdict run_check(const Check& check, const Subject& subject, int32_t limit_s);

/// The other side of identify() and run_check(): what the started process does.
void answer_probe(const Subject& subject);
void perform_check(const Arguments& arguments);

}  // namespace pliant::testkit
