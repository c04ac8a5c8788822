// The index of a sharded snapshot as JSON.
#include "sharded/snapshot_index.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/json_depth.hpp"
#include "base/printable.hpp"

namespace pliant::sharded {

namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr int64_t kIndexFormat = 1;
constexpr int kDeepestIndex = 4;

tl::unexpected<Error> no_index(std::string_view reason) {
  return failed(Status::kDataLoss, fmt::format("the index of a snapshot is damaged: {}", reason));
}

std::string hex64(uint64_t value) {
  return fmt::format("{:016x}", value);
}

std::optional<uint64_t> number_of(std::string_view text, int base) {
  uint64_t value = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (fault != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// A name in the folder of parts that leads nowhere else.
bool is_part_name(std::string_view name) {
  constexpr std::string_view kOthers = ".-";
  return name.size() > 5 && name.substr(0, 5) == "rank-" && std::all_of(name.begin(), name.end(), [&](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || kOthers.find(c) != std::string_view::npos;
         });
}

std::optional<int64_t> count_of(const SnapshotParam& param) {
  int64_t count = 1;
  for (const int64_t length : param.shape) {
    if (length < 0 || (length > 0 && count > ShardLayout::kMostElements / length)) return std::nullopt;
    count *= length;
  }
  return count;
}

std::string described(const SnapshotParam* param) {
  if (param == nullptr) return "none";
  return fmt::format("'{}' of shape [{}]", printable(param->name), fmt::join(param->shape, ","));
}

/// Throws json::exception and Error for what is no index.
SnapshotIndex parse_index(std::string_view text) {
  const json root = json::parse(text);
  if (root.at("format").get<int64_t>() != kIndexFormat) {
    throw Error(Status::kDataLoss,
                fmt::format("its format is {}, this release reads {}", root.at("format").dump(), kIndexFormat));
  }
  SnapshotIndex index;
  SnapshotContent& content = index.content;
  content.run_id = root.at("run").get<std::string>();
  content.step = root.at("step").get<int64_t>();
  content.kinds = root.at("kinds").get<std::vector<std::string>>();
  for (const json& param : root.at("params")) {
    content.params.push_back({param.at(0).get<std::string>(), param.at(1).get<std::vector<int64_t>>()});
  }
  content.ownership = or_throw(Ownership::load(root.at("owners").get_ref<const std::string&>()));
  for (const json& part : root.at("parts")) {
    index.parts.push_back(or_throw(SnapshotPart::load(part.get_ref<const std::string&>())));
  }
  const ShardLayout layout = or_throw(content.checked_layout());
  if (root.at("layout").get<std::string>() != hex64(layout.digest())) {
    throw Error(Status::kDataLoss, "its parameters do not lie where this release lays them");
  }
  return index;
}

Result<> check_parts(const SnapshotIndex& index) {
  if (index.parts.size() != static_cast<size_t>(index.content.ownership.world_size())) {
    return no_index(fmt::format("{} parts are of {} ranks", index.parts.size(), index.content.ownership.world_size()));
  }
  std::set<std::string_view> files;
  for (const SnapshotPart& part : index.parts) {
    if (!files.insert(part.file).second) return no_index(fmt::format("{} is the part of two ranks", part.file));
  }
  return {};
}

bool is_utf8_name(std::string_view name) {
  for (size_t at = 0; at < name.size();) {
    const size_t size = character_size(name, at);
    if (size == 0) return false;
    at += size;
  }
  return !name.empty();
}

/// The first name that is none or comes twice.
template <class Items, class Name>
std::optional<std::string> bad_name(const Items& items, const Name& name_of) {
  std::set<std::string_view> names;
  for (const auto& item : items) {
    const std::string& name = name_of(item);
    if (!is_utf8_name(name)) return fmt::format("'{}' is no name", printable(name));
    if (!names.insert(name).second) return fmt::format("'{}' is the name of two", printable(name));
  }
  return std::nullopt;
}

}  // namespace

Result<ShardLayout> SnapshotContent::layout() const {
  std::vector<int64_t> counts;
  for (const SnapshotParam& param : params) {
    const std::optional<int64_t> count = count_of(param);
    if (!count) {
      return failed(Status::kInvalidArgument,
                    fmt::format("the parameter {} has a shape that no memory holds", described(&param)));
    }
    counts.push_back(*count);
  }
  return ShardLayout::create(counts);
}

Result<ShardLayout> SnapshotContent::checked_layout() const {
  const auto fault = [](std::string reason) { return failed(Status::kInvalidArgument, std::move(reason)); };
  if (step < 0) return fault(fmt::format("{} is no step", step));
  const auto bad_kind = bad_name(kinds, [](const std::string& kind) -> const std::string& { return kind; });
  if (bad_kind) return fault("of its arrays, " + *bad_kind);
  const auto bad_param = bad_name(params, [](const SnapshotParam& param) -> const std::string& { return param.name; });
  if (bad_param) return fault("of its parameters, " + *bad_param);
  Result<ShardLayout> found = layout();
  if (found && found->chunks() != ownership.chunks()) {
    return fault(fmt::format("its parameters have {} chunks, its owners {}", found->chunks(), ownership.chunks()));
  }
  return found;
}

std::string SnapshotPart::save() const {
  return fmt::format("{} {} {}", file, bytes, hex64(digest));
}

Result<SnapshotPart> SnapshotPart::load(std::string_view text) {
  const size_t first = text.find(' ');
  const size_t second = first == std::string_view::npos ? first : text.find(' ', first + 1);
  if (second == std::string_view::npos) return no_index(fmt::format("'{}' is no part", printable(text)));
  SnapshotPart part;
  part.file = text.substr(0, first);
  const std::optional<uint64_t> bytes = number_of(text.substr(first + 1, second - first - 1), 10);
  const std::optional<uint64_t> digest = number_of(text.substr(second + 1), 16);
  if (!is_part_name(part.file) || !bytes || !digest) {
    return no_index(fmt::format("'{}' is no part", printable(text)));
  }
  part.bytes = *bytes;
  part.digest = *digest;
  if (part.save() != text) return no_index(fmt::format("'{}' is no part", printable(text)));
  return part;
}

std::string SnapshotIndex::save() const {
  ordered_json root{{"format", kIndexFormat}, {"run", content.run_id}, {"step", content.step}};
  const Result<ShardLayout> layout = content.layout();
  root["layout"] = hex64(layout ? layout->digest() : 0);
  root["kinds"] = content.kinds;
  root["owners"] = content.ownership.save();
  ordered_json& listed = root["parts"] = ordered_json::array();
  for (const SnapshotPart& part : parts) listed.push_back(part.save());
  ordered_json& named = root["params"] = ordered_json::array();
  for (const SnapshotParam& param : content.params) {
    named.push_back(ordered_json::array({param.name, param.shape}));
  }
  return root.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

Result<SnapshotIndex> SnapshotIndex::load(std::string_view text) {
  if (nests_deeper(text, kDeepestIndex)) return no_index("it nests deeper than any index");
  SnapshotIndex index;
  try {
    index = parse_index(text);
  } catch (const json::exception& error) {
    return no_index(printable(error.what()));
  } catch (const Error& error) {
    return no_index(error.message());
  }
  if (Result<> sound = check_parts(index); !sound) return failed(std::move(sound));
  return index;
}

Result<> SnapshotIndex::require_params(std::span<const SnapshotParam> own, const std::filesystem::path& file) const {
  for (size_t i = 0; i < std::max(own.size(), content.params.size()); ++i) {
    const SnapshotParam* here = i < own.size() ? &own[i] : nullptr;
    const SnapshotParam* there = i < content.params.size() ? &content.params[i] : nullptr;
    if (here != nullptr && there != nullptr && *here == *there) continue;
    return failed(Status::kFailedPrecondition,
                  fmt::format("the snapshot {} is of another model: parameter {} is {} in this program, {} in the "
                              "snapshot; start the program that wrote it, or remove it to resume from an older one",
                              file.string(), i, described(here), described(there)),
                  ExitCode::kUsage);
  }
  return {};
}

}  // namespace pliant::sharded
