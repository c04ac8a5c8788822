// Positions as JSON lines, and what must be the same to go on from one.
#include "data/position.hpp"

#include <fmt/format.h>

#include <boost/crc.hpp>
#include <nlohmann/json.hpp>

namespace pliant::data {

namespace {

using PositionJson = nlohmann::json;

constexpr int64_t kPositionVersion = 2;
constexpr std::string_view kPositionFormat = "pliant position";

uint32_t checksum(std::string_view text) {
  boost::crc_32_type crc;
  crc.process_bytes(text.data(), text.size());
  return crc.checksum();
}

tl::unexpected<Error> damaged(const std::string& how) {
  return failed(Status::kDataLoss, fmt::format("this is not a saved position: {}", how), Origin::kInput);
}
tl::unexpected<Error> differs(const std::string& how) {
  return failed(Status::kFailedPrecondition, how, Origin::kInput);
}
tl::unexpected<Error> other_options() {
  return differs("the position was saved with other sampler options than those of the config");
}

uint64_t hex_of(const PositionJson& line, const char* key) {
  return std::stoull(line.at(key).get<std::string>(), nullptr, 16);
}

/// What version 2 brought.
void read_epoch(const PositionJson& line, Position& position) {
  position.options = hex_of(line, "options");
  line.at("epoch").get_to(position.epoch);
  line.at("first_step").get_to(position.first_step);
  position.rows = hex_of(line, "rows");
}

bool is_possible(const Position& position) {
  if (position.step < 0 || position.epoch < -1) return false;
  return position.epoch < 0 || (position.first_step >= position.epoch && position.first_step <= position.step);
}

}  // namespace

std::string to_bytes(const Position& position) {
  const PositionJson line{{"format", kPositionFormat},
                          {"version", kPositionVersion},
                          {"sampler", position.sampler},
                          {"source", position.source},
                          {"sequences", position.sequences},
                          {"data_digest", fmt::format("{:016x}", position.data_digest)},
                          {"seed", position.seed},
                          {"global_batch", position.global_batch},
                          {"fingerprint", fmt::format("{:016x}", position.fingerprint)},
                          {"step", position.step},
                          {"options", fmt::format("{:016x}", position.options)},
                          {"epoch", position.epoch},
                          {"first_step", position.first_step},
                          {"rows", fmt::format("{:016x}", position.rows)}};
  const std::string text = line.dump(-1, ' ', true, PositionJson::error_handler_t::replace);
  return fmt::format("{}\n{:08x}\n", text, checksum(text));
}

Result<Position> parse_position(std::string_view bytes) {
  const size_t end = bytes.find('\n');
  if (end == std::string_view::npos) return damaged("it ends within its first line");
  const std::string_view text = bytes.substr(0, end);
  const PositionJson line = PositionJson::parse(text, nullptr, false);
  if (!line.is_object() || line.value("format", PositionJson()) != kPositionFormat)
    return damaged("its first line is not that of a position");
  if (bytes.substr(end + 1) != fmt::format("{:08x}\n", checksum(text))) {
    return damaged("its checksum does not match its contents");
  }
  const PositionJson version = line.value("version", PositionJson());
  if (version != kPositionVersion && version != 1) {
    return failed(Status::kUnimplemented,
                  fmt::format("this saved position has format version {}; this Pliant reads versions up to {}",
                              version.dump(), kPositionVersion),
                  Origin::kInput);
  }
  try {
    Position position;
    line.at("sampler").get_to(position.sampler);
    line.at("source").get_to(position.source);
    line.at("sequences").get_to(position.sequences);
    position.data_digest = hex_of(line, "data_digest");
    line.at("seed").get_to(position.seed);
    line.at("global_batch").get_to(position.global_batch);
    position.fingerprint = hex_of(line, "fingerprint");
    line.at("step").get_to(position.step);
    if (version != 1) read_epoch(line, position);
    if (!is_possible(position)) return damaged("its step or its epoch cannot be");
    return position;
  } catch (const std::exception&) {
    return damaged("a field is missing or has another type");
  }
}

namespace {

/// All but the options.
Result<> check_same_inputs(const Position& saved, const Position& now) {
  if (saved.sampler != now.sampler) {
    return differs(
        fmt::format("the position was saved with sampler {}; the config has {}", saved.sampler, now.sampler));
  }
  if (saved.data_digest != now.data_digest) {
    return differs(
        fmt::format("{} has changed since the position was saved: {} sequences with digest {:016x} then, {} with "
                    "{:016x} now. Restore it, or start the epoch again",
                    now.source, saved.sequences, saved.data_digest, now.sequences, now.data_digest));
  }
  if (saved.seed != now.seed) {
    return differs(fmt::format("the position was saved with seed {}; the config has {}", saved.seed, now.seed));
  }
  if (saved.global_batch != now.global_batch) {
    return differs(fmt::format("the position was saved with batches of {} rows; the plan has {}", saved.global_batch,
                               now.global_batch));
  }
  return {};
}

}  // namespace

Result<> check_same_batches(const Position& saved, const Position& now) {
  if (auto same = check_same_inputs(saved, now); !same) return same;
  if (saved.fingerprint != now.fingerprint) return other_options();
  return {};
}

Result<> check_same_options(const Position& saved, const Position& now) {
  if (auto same = check_same_inputs(saved, now); !same) return same;
  if (saved.options != now.options) return other_options();
  return {};
}

}  // namespace pliant::data
