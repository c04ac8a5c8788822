// `pliant-lr 1 <rule> <digest of rule and state, 16 hex digits>\n<state>`
#include "data/lr_state.hpp"

#include <fmt/format.h>

#include "data/digest.hpp"

namespace pliant::data {

namespace {

constexpr std::string_view kTag = "pliant-lr 1 ";

std::string digest_text(std::string_view rule, std::string_view state) {
  Digest digest;
  digest.add(rule);
  digest.add(state);
  return fmt::format("{:016x}", digest.value());
}

}  // namespace

std::string pack_lr_state(std::string_view rule, std::string_view state) {
  return fmt::format("{}{} {}\n{}", kTag, rule, digest_text(rule, state), state);
}

Result<std::string> unpack_lr_state(std::string_view packed, std::string_view rule) {
  const auto damaged = [&] {
    return failed(Status::kDataLoss,
                  fmt::format("the saved state of the learning-rate rule is damaged ({} bytes)", packed.size()));
  };
  const size_t line_end = packed.find('\n');
  if (line_end == std::string_view::npos || packed.substr(0, kTag.size()) != kTag) return damaged();
  const std::string_view head = packed.substr(kTag.size(), line_end - kTag.size());
  const size_t space = head.find(' ');
  if (space == std::string_view::npos) return damaged();
  const std::string_view writer = head.substr(0, space);
  const std::string_view state = packed.substr(line_end + 1);
  if (head.substr(space + 1) != digest_text(writer, state)) return damaged();
  if (writer != rule) {
    return failed(
        Status::kFailedPrecondition,
        fmt::format("the saved learning-rate state is that of rule '{}', but [lr] use = \"{}\"; use '{}' to resume",
                    writer, rule, writer),
        ExitCode::kUsage);
  }
  return std::string(state);
}

}  // namespace pliant::data
