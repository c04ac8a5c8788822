// Parses the command line of pliant-check.
#include "testkit/arguments.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <sstream>

namespace pliant::testkit {

namespace {

uint64_t number(const std::string& flag, const std::string& text, uint64_t least, uint64_t most) {
  errno = 0;
  char* end = nullptr;
  const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  const uint64_t value = digits ? std::strtoull(text.c_str(), &end, 10) : 0;
  if (digits && errno == 0 && value >= least && value <= most) return value;
  throw UsageError(flag + " '" + text + "': a whole number from " + std::to_string(least) + " to " +
                   std::to_string(most));
}

uint64_t seed(const std::string& flag, const std::string& text) {
  return number(flag, text, 0, UINT64_MAX);
}

void set(Arguments& to, const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos) {
    throw UsageError("--set '" + text + "': an option of the plugin and its value, e.g. --set memory_bytes=1000000");
  }
  to.subject.settings.emplace_back(text.substr(0, equals), text.substr(equals + 1));
}

/// "memory.aligned:7": the check and the seed.
void reproduce(Arguments& to, const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == 0 || colon == std::string::npos) {
    throw UsageError("--reproduce '" + text + "': CHECK:SEED, as a failed check printed it, e.g. memory.aligned:1");
  }
  to.reproduce = text.substr(0, colon);
  to.subject.seed = seed("--reproduce '" + text + "': the seed", text.substr(colon + 1));
}

void numbers(Arguments& to, const std::string& text) {
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) to.numbers.push_back(std::strtoll(part.c_str(), nullptr, 10));
}

struct Flag {
  const char* name;
  std::function<void(const std::string&)> take;
};

std::vector<Flag> flags(Arguments& to) {
  using Text = const std::string&;
  return {
      {"--only", [&](Text text) { to.only = text; }},
      {"--seed", [&](Text text) { to.subject.seed = seed("--seed", text); }},
      {"--reproduce", [&](Text text) { reproduce(to, text); }},
      {"--set", [&](Text text) { set(to, text); }},
      {"--time-limit", [&](Text text) { to.limit_s = static_cast<int32_t>(number("--time-limit", text, 1, 86400)); }},
      // Below: for the kit itself and for the pliant command.
      {"--as", [&](Text text) { to.program = text; }},
      {"--check", [&](Text text) { to.role = Role::kCheck, to.name = text; }},
      {"--script", [&](Text text) { to.role = Role::kRank, to.name = text; }},
      {"--rank", [&](Text text) { to.rank = static_cast<int32_t>(number("--rank", text, 0, INT32_MAX)); }},
      {"--world-size",
       [&](Text text) { to.world_size = static_cast<int32_t>(number("--world-size", text, 1, INT32_MAX)); }},
      {"--numbers", [&](Text text) { numbers(to, text); }},
  };
}

}  // namespace

void parse(const std::vector<std::string>& words, Arguments& arguments) {
  arguments.json = std::find(words.begin(), words.end(), "--json") != words.end();
  const std::vector<Flag> known = flags(arguments);
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--json") continue;
    if (word == "--list") {
      arguments.role = Role::kList;
      continue;
    }
    if (word == "--probe") {
      arguments.role = Role::kProbe;
      continue;
    }
    const auto flag = std::find_if(known.begin(), known.end(), [&](const Flag& one) { return word == one.name; });
    if (flag != known.end()) {
      if (i + 1 == words.size()) throw UsageError(word + " needs a value");
      flag->take(words[++i]);
    } else if (word.rfind("--", 0) == 0) {
      throw UsageError("unknown option '" + word + "'");
    } else if (arguments.shown_file.empty()) {
      arguments.shown_file = word;
    } else {
      throw UsageError("unexpected argument '" + word + "': one plugin file at a time");
    }
  }
  if (arguments.shown_file.empty() && arguments.role != Role::kList) {
    throw UsageError("the plugin FILE is missing, e.g. ./accelerator-mine.pliant.so");
  }
  // dlopen searches the library path for a name without a slash.
  if (!arguments.shown_file.empty()) {
    arguments.subject.file = std::filesystem::absolute(arguments.shown_file).lexically_normal().string();
    std::error_code absent;  // the checks say that better
    if (std::filesystem::exists(arguments.subject.file, absent) &&
        !std::filesystem::is_regular_file(arguments.subject.file, absent)) {
      throw UsageError(arguments.shown_file + " is not a regular file");  // to open a pipe would never end
    }
  }
}

std::vector<std::string> words_for(const Subject& subject) {
  std::vector<std::string> words{subject.file, "--seed", std::to_string(subject.seed)};
  for (const auto& [key, value] : subject.settings) {
    words.emplace_back("--set");
    words.push_back(std::string(key).append("=").append(value));
  }
  return words;
}

}  // namespace pliant::testkit
