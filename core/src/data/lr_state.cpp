// `pliant-lr 2 <rule+rule+...> <digest of rules and state, 16 hex digits>\n<state>`, where the state is: steps
// committed (i64), progress (f64), then for each rule the number of its bytes (u64) and those.
#include "data/lr_state.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "data/digest.hpp"

namespace pliant::data {

namespace {

constexpr std::string_view kTag = "pliant-lr 2 ";

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
        fmt::format(
            "the saved learning-rate state belongs to rule '{}', but [lr] uses '{}'; use the saved rule to resume",
            writer, rule),
        Origin::kInput);
  }
  return std::string(state);
}

std::string encode(const LrChainState& state) {
  std::string bytes;
  const auto put = [&bytes](const auto& value) { bytes.append(reinterpret_cast<const char*>(&value), sizeof(value)); };
  put(state.committed);
  put(state.progress);
  for (const std::string& link : state.links) {
    put(uint64_t{link.size()});
    bytes += link;
  }
  return bytes;
}

Result<LrChainState> decode(std::string_view bytes, size_t links) {
  const auto damaged = [] {
    return failed(Status::kDataLoss, "the saved state of the learning-rate chain is damaged: its parts do not match");
  };
  const auto take = [&bytes](auto& value) {
    if (bytes.size() < sizeof(value)) return false;
    std::memcpy(&value, bytes.data(), sizeof(value));
    bytes.remove_prefix(sizeof(value));
    return true;
  };
  LrChainState state;
  if (!take(state.committed) || !take(state.progress)) return damaged();
  if (state.committed < 0 || !std::isfinite(state.progress) || state.progress < 0) return damaged();
  for (size_t i = 0; i < links; ++i) {
    uint64_t size = 0;
    if (!take(size) || size > bytes.size()) return damaged();
    state.links.emplace_back(bytes.substr(0, static_cast<size_t>(size)));
    bytes.remove_prefix(static_cast<size_t>(size));
  }
  if (!bytes.empty()) return damaged();
  return state;
}

}  // namespace pliant::data
