// Ledger lines in JSON. Digests are hex strings and non-finite doubles are strings, because JSON numbers hold neither.
#include "elastic/ledger_line.hpp"

#include <fmt/format.h>

#include <array>
#include <boost/crc.hpp>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/json_depth.hpp"

namespace pliant::elastic {

namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kFormatVersion = 1;
constexpr int kDeepestRecord = 4;  // {"shares": [[[first, count]]]}
constexpr std::string_view kChecksumOpens = R"(,"crc":")";
constexpr std::string_view kChecksumCloses = R"("})";
constexpr size_t kChecksumDigits = 8;
constexpr size_t kChecksumSize = kChecksumOpens.size() + kChecksumDigits + kChecksumCloses.size();

/// Words of causes; kUnknown has none.
constexpr std::array<std::pair<GroupCause, const char*>, 5> kCauses{{{GroupCause::kStart, "start"},
                                                                     {GroupCause::kLoss, "loss"},
                                                                     {GroupCause::kLeave, "leave"},
                                                                     {GroupCause::kJoin, "join"},
                                                                     {GroupCause::kFault, "fault"}}};

/// Why a line is refused.
struct Refusal {
  std::string reason;
};

uint32_t checksum(std::string_view bytes) {
  boost::crc_32_type crc;
  crc.process_bytes(bytes.data(), bytes.size());
  return crc.checksum();
}

Json real(double value) {
  if (std::isfinite(value)) return value;
  if (std::isnan(value)) return "nan";
  return value > 0 ? "inf" : "-inf";
}

Json to_json(const HeaderRecord& record) {
  return {
      {"record", "ledger"}, {"version", kFormatVersion}, {"run", record.run_id}, {"fingerprint", record.fingerprint}};
}

/// [first, count], or a list of them when a rank has not just one.
Json share_json(const std::vector<RowRange>& share) {
  Json ranges = Json::array();
  for (const RowRange& range : share) ranges.push_back(Json::array({range.first, range.count}));
  return share.size() == 1 ? ranges.front() : ranges;
}

Json reals(const std::map<std::string, double>& values) {
  Json json = Json::object();
  for (const auto& [name, value] : values) json[name] = real(value);
  return json;
}

Json to_json(const CommitRecord& record) {
  Json shares = Json::array();
  for (const std::vector<RowRange>& share : record.shares) shares.push_back(share_json(share));
  Json json{{"record", "commit"},
            {"step", record.step},
            {"generation", record.generation},
            {"epoch", record.epoch},
            {"batch", record.batch_index},
            {"rows", record.size.rows},
            {"sequences", record.size.sequences},
            {"tokens", record.size.tokens},
            {"loss_tokens", record.size.loss_tokens},
            {"shares", std::move(shares)},
            {"digest", fmt::format("{:016x}", record.digest)},
            {"loss", real(record.loss)},
            {"lr", real(record.learning_rate)}};
  if (record.size.padding_rows > 0) json["padding_rows"] = record.size.padding_rows;
  if (record.skipped) json["skipped"] = true;
  if (record.state) json["state"] = fmt::format("{:016x}", *record.state);
  if (!record.metrics.empty()) json["metrics"] = reals(record.metrics);
  return json;
}

Json to_json(const Evaluation& record) {
  Json json{{"record", "evaluation"}, {"step", record.step}, {"ranks", record.ranks}};
  if (record.lost > 0) json["lost"] = record.lost;
  json["metrics"] = reals(record.values);
  return json;
}

Json to_json(const EndRecord& record) {
  return {{"record", "end"}, {"step", record.step}, {"reason", record.reason}};
}

Json to_json(const GenerationRecord& record) {
  Json json{{"record", "generation"},
            {"generation", record.generation},
            {"world_size", record.world_size},
            {"next_step", record.next_step},
            {"reason", record.reason}};
  if (!record.config.empty()) json["config"] = record.config;
  for (const auto& [cause, word] : kCauses) {
    if (cause == record.cause) json["cause"] = word;
  }
  return json;
}

Json to_json(const SnapshotRecord& record) {
  Json json{{"record", "snapshot"}, {"step", record.step}, {"file", record.file}};
  if (record.state) json["state"] = fmt::format("{:016x}", *record.state);
  if (record.unconfirmed) json["unconfirmed"] = true;
  return json;
}

Json to_json(const RestartRecord& record) {
  return {{"record", "restart"}, {"step", record.step}};
}

Json to_json(const NotFiniteRecord& record) {
  return {{"record", "not_finite"}, {"step", record.step}, {"reason", record.reason}};
}

const Json& field(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) throw Refusal{fmt::format("it has no `{}`", key)};
  return *found;
}

int64_t count_of(const Json& value, const char* key) {
  const bool fits =
      value.is_number_integer() &&
      (!value.is_number_unsigned() || value.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()});
  if (!fits || value.get<int64_t>() < 0) throw Refusal{fmt::format("its `{}` is not a whole number >= 0", key)};
  return value.get<int64_t>();
}

int64_t count_field(const Json& object, const char* key) {
  return count_of(field(object, key), key);
}

std::string text_field(const Json& object, const char* key) {
  const Json& value = field(object, key);
  if (!value.is_string()) throw Refusal{fmt::format("its `{}` is not a string", key)};
  return value.get<std::string>();
}

double real_of(const Json& value, const char* key) {
  if (value.is_number()) return value.get<double>();
  if (value == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (value == "inf") return std::numeric_limits<double>::infinity();
  if (value == "-inf") return -std::numeric_limits<double>::infinity();
  throw Refusal{fmt::format("its `{}` is not a number", key)};
}

double real_field(const Json& object, const char* key) {
  return real_of(field(object, key), key);
}

std::map<std::string, double> reals_of(const Json& object) {
  const auto found = object.find("metrics");
  if (found == object.end()) return {};
  if (!found->is_object()) throw Refusal{"its `metrics` are not an object"};
  std::map<std::string, double> values;
  for (const auto& [name, value] : found->items()) values[name] = real_of(value, name.c_str());
  return values;
}

template <class Integer>
std::optional<Integer> hex(std::string_view digits) {
  Integer value = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, status] = std::from_chars(digits.data(), end, value, 16);
  if (status != std::errc() || stop != end || digits.size() != 2 * sizeof(Integer)) return std::nullopt;
  return value;
}

RowRange range_of(const Json& value) {
  if (!value.is_array() || value.size() != 2) throw Refusal{"one of its `shares` is not [first, count]"};
  return {count_of(value[0], "shares"), count_of(value[1], "shares")};
}

std::vector<RowRange> share_of_rank(const Json& value) {
  if (!value.is_array() || (!value.empty() && !value[0].is_array())) return {range_of(value)};
  std::vector<RowRange> share;
  share.reserve(value.size());
  for (const Json& range : value) share.push_back(range_of(range));
  return share;
}

std::vector<std::vector<RowRange>> shares_field(const Json& object) {
  const Json& value = field(object, "shares");
  if (!value.is_array()) throw Refusal{"its `shares` are not a list"};
  std::vector<std::vector<RowRange>> shares;
  shares.reserve(value.size());
  for (const Json& share : value) shares.push_back(share_of_rank(share));
  return shares;
}

std::optional<uint64_t> state_of(const Json& object) {
  if (!object.contains("state")) return std::nullopt;
  const auto state = hex<uint64_t>(text_field(object, "state"));
  if (!state) throw Refusal{"its `state` is not 16 hexadecimal digits"};
  return state;
}

bool flag_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return false;
  if (!found->is_boolean()) throw Refusal{fmt::format("its `{}` is not true or false", key)};
  return found->get<bool>();
}

/// kUnknown for a word of a later release.
GroupCause cause_of(const Json& object) {
  if (!object.contains("cause")) return GroupCause::kUnknown;
  const std::string text = text_field(object, "cause");
  for (const auto& [cause, word] : kCauses) {
    if (text == word) return cause;
  }
  return GroupCause::kUnknown;
}

CommitRecord commit_of(const Json& object) {
  CommitRecord record;
  record.step = count_field(object, "step");
  record.generation = count_field(object, "generation");
  record.epoch = count_field(object, "epoch");
  record.batch_index = count_field(object, "batch");
  record.size.rows = count_field(object, "rows");
  if (object.contains("padding_rows")) record.size.padding_rows = count_field(object, "padding_rows");
  record.size.sequences = count_field(object, "sequences");
  record.size.tokens = count_field(object, "tokens");
  record.size.loss_tokens = count_field(object, "loss_tokens");
  record.shares = shares_field(object);
  const std::optional<uint64_t> digest = hex<uint64_t>(text_field(object, "digest"));
  if (!digest) throw Refusal{"its `digest` is not 16 hexadecimal digits"};
  record.digest = *digest;
  record.loss = real_field(object, "loss");
  record.learning_rate = real_field(object, "lr");
  record.skipped = flag_of(object, "skipped");
  record.state = state_of(object);
  record.metrics = reals_of(object);
  return record;
}

LedgerRecord record_of(const Json& object) {
  if (!object.is_object()) throw Refusal{"it is not a JSON object"};
  const std::string kind = text_field(object, "record");
  if (kind == "commit") return commit_of(object);
  if (kind == "snapshot") {
    return SnapshotRecord{count_field(object, "step"), text_field(object, "file"), state_of(object),
                          flag_of(object, "unconfirmed")};
  }
  if (kind == "not_finite") return NotFiniteRecord{count_field(object, "step"), text_field(object, "reason")};
  if (kind == "end") return EndRecord{count_field(object, "step"), text_field(object, "reason")};
  if (kind == "evaluation") {
    return Evaluation{count_field(object, "step"), count_field(object, "ranks"),
                      object.contains("lost") ? count_field(object, "lost") : 0, reals_of(object)};
  }
  if (kind == "restart") return RestartRecord{count_field(object, "step")};
  if (kind == "generation") {
    return GenerationRecord{count_field(object, "generation"),
                            count_field(object, "world_size"),
                            count_field(object, "next_step"),
                            text_field(object, "reason"),
                            object.contains("config") ? text_field(object, "config") : std::string(),
                            cause_of(object)};
  }
  if (kind != "ledger") throw Refusal{fmt::format("this release does not know records of kind `{}`", kind)};
  const int64_t version = count_field(object, "version");
  if (version != kFormatVersion) {
    throw Refusal{fmt::format("the ledger has format version {}, this release reads {}", version, kFormatVersion)};
  }
  return HeaderRecord{text_field(object, "run"), text_field(object, "fingerprint")};
}

/// The part of `line` that its checksum covers.
std::string_view checked_part(std::string_view line) {
  if (line.size() <= kChecksumSize) throw Refusal{"it is too short to be a record"};
  const std::string_view content = line.substr(0, line.size() - kChecksumSize);
  std::string_view tail = line.substr(content.size());
  if (tail.substr(0, kChecksumOpens.size()) != kChecksumOpens ||
      tail.substr(kChecksumOpens.size() + kChecksumDigits) != kChecksumCloses) {
    throw Refusal{"it does not end in a checksum"};
  }
  const std::string_view digits = tail.substr(kChecksumOpens.size(), kChecksumDigits);
  // Compared as text: upper-case digits would be a change too.
  if (digits != fmt::format("{:08x}", checksum(content))) throw Refusal{"its checksum does not match"};
  return content;
}

}  // namespace

std::string encode_line(const LedgerRecord& record) {
  const Json object = std::visit([](const auto& value) { return to_json(value); }, record);
  std::string line = object.dump(-1, ' ', false, Json::error_handler_t::replace);
  line.pop_back();  // the closing brace: the checksum goes in front of it
  return fmt::format("{0}{1}{2:08x}{3}\n", line, kChecksumOpens, checksum(line), kChecksumCloses);
}

Result<LedgerRecord> decode_line(std::string_view line) {
  try {
    std::string document(checked_part(line));
    document += '}';
    if (nests_deeper(document, kDeepestRecord)) throw Refusal{"it nests deeper than any record"};
    const Json object = Json::parse(document, nullptr, false);
    if (object.is_discarded()) throw Refusal{"it is not JSON"};
    return record_of(object);
  } catch (const Refusal& refusal) {
    return failed(Status::kDataLoss, refusal.reason);
  }
}

}  // namespace pliant::elastic
