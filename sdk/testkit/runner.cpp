// Starts one process for each check and waits for its verdict or its end.
#include "testkit/runner.hpp"

#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <stdexcept>

#include "testkit/plugin.hpp"
#include "testkit/process.hpp"

namespace pliant::testkit {

namespace {

constexpr int kProbeMs = 20000;
/// A process that has said its verdict has this long to end.
constexpr int kEndMs = 5000;
/// Time in which a check had no CPU does not count against it, up to its limit this many times.
constexpr int64_t kMostLimits = 10;
constexpr int64_t kLookMs = 1000;
constexpr char kLoader = 'L';
constexpr char kSetting = 'U';
constexpr char kSeparator = '\x1f';

std::string orderly(const char* text) {
  return text == nullptr ? "" : text;
}

std::vector<std::string> with(std::vector<std::string> words, const Subject& subject) {
  for (std::string& word : words_for(subject)) words.push_back(std::move(word));
  return words;
}

std::string seconds_text(int32_t seconds) {
  return std::to_string(seconds) + (seconds == 1 ? " second" : " seconds");
}

/// The verdict that the messages of a process make.
void take(const std::string& message, Verdict& verdict, bool& decided) {
  const std::string text = message.substr(1);
  if (message[0] == kWarned) {
    verdict.result = Result::kWarn;
    verdict.reason += (verdict.reason.empty() ? "" : "; ") + text;
    return;
  }
  decided = true;
  if (message[0] == kPassed) return;
  verdict.result = message[0] == kSkipped ? Result::kSkip : Result::kFail;
  verdict.reason = text;
}

}  // namespace

Identity identify(const Subject& subject) {
  Process probe(with({"--probe"}, subject));
  bool gone = false;
  const auto said = receive_message(probe.socket(), kProbeMs, gone);
  if (!said && !gone) throw NotAPlugin("opening it hung: no answer after " + seconds_text(kProbeMs / 1000));
  if (!said) throw NotAPlugin("the process that opened it " + words_of(probe.wait_status(kEndMs).value_or(0)));
  if ((*said)[0] == kLoader) throw NotAPlugin(said->substr(1));
  if ((*said)[0] == kSetting) throw UsageError(said->substr(1));
  const size_t first = said->find(kSeparator);
  const size_t second = said->find(kSeparator, first + 1);
  return {said->substr(1, first - 1), said->substr(first + 1, second - first - 1), said->substr(second + 1)};
}

void answer_probe(const Subject& subject) {
  std::string answer;
  try {
    const OpenedPlugin plugin(subject.file);
    const pliant_plugin& record = plugin.record();
    answer = kAnswer + orderly(record.kind) + kSeparator + orderly(record.name) + kSeparator + orderly(record.version);
    if (!subject.settings.empty()) OptionRow(plugin, subject.settings);
  } catch (const BadSetting& wrong) {
    answer = kSetting + std::string(wrong.what());
  } catch (const std::exception& refused) {
    answer = kLoader + std::string(refused.what());
  }
  static_cast<void>(send_message(kOwnSocket, answer));
}

Verdict run_check(const Check& check, const Subject& subject, int32_t limit_s) {
  const int32_t limit = limit_s > 0 ? limit_s : check.limit_s;
  const int64_t begin_ns = now_ns();
  const int64_t limit_ns = int64_t{limit} * 1000000000;
  int64_t waited_ns = 0;
  Process process(with({"--check", check.id}, subject));
  Verdict verdict;
  bool decided = false;
  bool gone = false;
  bool late = false;
  while (!decided && !gone && !late) {
    const int64_t left_ns = begin_ns + std::min(limit_ns + waited_ns, kMostLimits * limit_ns) - now_ns();
    const int64_t left_ms = std::clamp<int64_t>(left_ns / 1000000, 0, kLookMs);
    const auto message = receive_message(process.socket(), static_cast<int>(left_ms), gone);
    if (message) take(*message, verdict, decided);
    late = !message && !gone && left_ns <= 0;
    waited_ns = process.waited_for_cpu_ns();
  }
  std::optional<int> ended;
  if (!late) ended = process.wait_status(kEndMs);
  const int status = ended.value_or(0);
  verdict.seconds = static_cast<double>(now_ns() - begin_ns) * 1e-9;
  const bool failed = verdict.result == Result::kFail || verdict.result == Result::kSkip;
  if (late) {
    verdict.result = Result::kFail;
    verdict.reason = "it hung: no verdict after " + seconds_text(static_cast<int32_t>(verdict.seconds));
  } else if (!ended) {
    if (!failed) verdict = {Result::kFail, "the process did not end after the check", 0, verdict.seconds};
  } else if (WIFSIGNALED(status) && !failed) {
    const std::string when = decided ? " after the check, at the end of the process" : "";
    verdict = {Result::kCrash, "it " + words_of(status) + when, WTERMSIG(status), verdict.seconds};
  } else if (status != 0 && !failed) {
    verdict = {Result::kFail, "the process " + words_of(status), 0, verdict.seconds};
  } else if (!decided) {
    verdict = {Result::kFail, "the plugin ended the process", 0, verdict.seconds};
  }
  return verdict;
}

void perform_check(const Arguments& arguments) {
  report_to(kOwnSocket);
  try {
    const std::vector<Check> all = every_check();
    const auto asked = std::find_if(all.begin(), all.end(), [&](const Check& one) { return arguments.name == one.id; });
    if (asked == all.end()) fail("there is no check " + arguments.name);
    asked->run(arguments.subject);
  } catch (const std::exception& thrown) {
    fail(thrown.what());
  }
  pass();
}

}  // namespace pliant::testkit
