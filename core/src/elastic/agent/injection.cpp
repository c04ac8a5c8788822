// Parses `--inject kill:rank=2,step=20,at=reduce`, the same with `stop`, and `--inject leave:rank=2,step=20`.
#include <fmt/format.h>

#include <charconv>
#include <set>

#include "base/result.hpp"
#include "elastic/message.hpp"
#include "pliant/job.hpp"

namespace pliant {
namespace {

[[noreturn]] void refuse(std::string_view text, const std::string& why) {
  throw Error(Status::kInvalidArgument,
              fmt::format("--inject {}: {}; write kill:rank=R,step=S[,at=forward|bucket|reduce|vote|commit|apply|copy|"
                          "gather|scatter|snapshot|finish], the same with stop:, kill:agent,step=S[,at=vote|commit] or "
                          "leave:rank=R,step=S",
                          text, why),
              Origin::kInput);
}

int64_t count(std::string_view text, std::string_view key, std::string_view digits) {
  int64_t value = -1;
  const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (end.ec != std::errc{} || end.ptr != digits.data() + digits.size() || value < 0) {
    refuse(text, fmt::format("{} is '{}', not a whole number of at least 0", key, digits));
  }
  return value;
}

}  // namespace

InjectedKill parse_injection(std::string_view text) {
  const std::string_view verb = text.substr(0, text.find(':'));
  if (verb.size() == text.size() || (verb != "kill" && verb != "stop" && verb != "leave")) {
    refuse(text, "it does not begin with kill:, stop: or leave:");
  }
  InjectedKill kill;
  kill.leave = verb == "leave";
  kill.stop = verb == "stop";
  kill.rank = -1;
  kill.step = -1;
  kill.at.clear();
  std::set<std::string_view> given;
  std::string_view rest = text.substr(verb.size() + 1);
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
    const size_t equals = part.find('=');
    const std::string_view key = part.substr(0, equals);
    const std::string_view value = equals == std::string_view::npos ? std::string_view{} : part.substr(equals + 1);
    if (!given.insert(key).second) refuse(text, fmt::format("{} is given twice", key));
    if (part == "agent") {
      kill.agent = true;
    } else if (key == "rank") {
      kill.rank = count(text, key, value);
    } else if (key == "step") {
      kill.step = count(text, key, value);
    } else if (key == "at") {
      if (const auto point = elastic::parse_injection_point(value); !point) refuse(text, point.error().message());
      kill.at = std::string(value);
    } else {
      refuse(text, fmt::format("'{}' is unknown", part));
    }
  }
  if (kill.step < 0) refuse(text, "step is missing");
  if (kill.leave && (kill.agent || !kill.at.empty()))
    refuse(text, "leave: takes a rank and a step, no agent and no at=");
  if (kill.stop && kill.agent) refuse(text, "stop: takes a rank, not the agent");
  if (kill.agent == (kill.rank >= 0)) refuse(text, "give either rank=R or agent");
  if (kill.at.empty()) kill.at = kill.agent ? "commit" : "forward";
  if (kill.agent && kill.at != "vote" && kill.at != "commit")
    refuse(text, fmt::format("at={} is not a point of the agent", kill.at));
  return kill;
}

}  // namespace pliant
