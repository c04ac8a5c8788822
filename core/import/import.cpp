// DeepSpeed's config to Pliant's: parse, translate block by block, account for every key.
#include "pliant/import.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/result.hpp"
#include "config/values/source.hpp"
#include "import/draft.hpp"

namespace pliant {

namespace {

namespace deepspeed = config::deepspeed;
using config::Diagnostics;
using config::deepspeed::Draft;
using config::deepspeed::Json;
using config::deepspeed::Source;

bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t size = config::character_size(text, at);
    if (size == 0) return false;
    at += size;
  }
  return true;
}

/// `name` as a shell and a comment take it; FILE where it has other characters than most names have.
std::string word_for(std::string_view name) {
  const bool is_plain = is_utf8(name) && std::all_of(name.begin(), name.end(), [](char c) {
                          const auto byte = static_cast<unsigned char>(c);
                          return byte >= 0x80 || std::isalnum(byte) != 0 ||
                                 std::string_view("._-/+,@%").find(c) != std::string_view::npos;
                        });
  return name.empty() || !is_plain ? "FILE" : std::string(name);
}

std::vector<std::string> advice(const Source& root) {
  if (root.at("max_train_batch_size") || root.at("micro_batch_sizes")) {
    return {"this looks like the contents of an elasticity block; wrap it: {\"elasticity\": {\"enabled\": true, ...}}"};
  }
  std::vector<std::string> notes;
  const Source elasticity = root.at("elasticity");
  notes.push_back(elasticity ? "elasticity.enabled is off: set it to true to carry the block"
                             : "there is no elasticity block: {\"elasticity\": {\"enabled\": true, ...}}");
  notes.emplace_back("data_efficiency.data_sampling.dynamic_batching is not enabled either");
  if (root.at("zero_optimization")) {
    notes.emplace_back("zero_optimization is imported only with stage 3");
  }
  return notes;
}

Result<ImportedConfig> imported(const Json& root, std::string_view name, std::string_view target,
                                Diagnostics& diagnostics) {
  Draft draft(root, diagnostics, word_for(target));
  if (!root.is(Json::Type::kObject)) {
    draft.error(draft.root(), "a DeepSpeed config is a JSON object: {\"elasticity\": {...}}");
    return tl::unexpected<Error>(diagnostics.to_error());
  }
  draft.comment(is_utf8(name) ? fmt::format("Written by `pliant config import` from {}.", config::toml_quoted(name))
                              : "Written by `pliant config import`.");
  const std::string plan =
      deepspeed::is_elastic(draft.root()) ? fmt::format(", then `pliant plan {} --world-size N`", draft.target()) : "";
  draft.comment(fmt::format("Next: `pliant config check {}`{}.", draft.target(), plan));
  draft.comment("");
  draft.add("config_version", config::Value::of(int64_t{1}), {});
  const bool elastic = deepspeed::import_elasticity(draft);
  if (!deepspeed::import_dynamic_batching(draft, elastic)) deepspeed::import_rate(draft, nullptr);
  deepspeed::import_zero(draft);
  if (!diagnostics.failed() && !draft.carried_anything()) {
    draft.error(draft.root(), "nothing in this file can be imported", advice(draft.root()));
  }
  if (diagnostics.failed()) return tl::unexpected<Error>(diagnostics.to_error());
  return std::move(draft).finish();
}

}  // namespace

std::vector<NotCarriedBlock> by_block(const std::vector<ImportedConfig::NotCarried>& keys) {
  std::vector<NotCarriedBlock> blocks;
  for (const auto& entry : keys) {
    const std::string& key = entry.key;
    const std::string& reason = entry.reason;
    // A quoted key may have any character in it.
    const size_t end = key.starts_with('"') ? key.size() : std::min(key.find('.'), key.size());
    const std::string block = key.substr(0, end);
    const auto same = [&](const NotCarriedBlock& one) { return one.block == block && one.reason == reason; };
    auto found = std::find_if(blocks.begin(), blocks.end(), same);
    if (found == blocks.end()) found = blocks.insert(blocks.end(), {block, reason, {}});
    found->keys.push_back(end == key.size() ? "" : key.substr(end + 1));
  }
  for (NotCarriedBlock& block : blocks) {
    if (block.keys.size() > 1) continue;
    if (!block.keys.front().empty()) block.block += "." + block.keys.front();
    block.keys.clear();
  }
  return blocks;
}

std::string line_of(const NotCarriedBlock& block) {
  std::string text = block.block + ": " + block.reason;
  if (!block.keys.empty()) text += fmt::format(" ({})", fmt::join(block.keys, ", "));
  return text;
}

ImportedConfig import_deepspeed(std::string_view json, std::string_view name, std::string_view target) {
  Diagnostics diagnostics{std::string(name), json};
  const std::optional<Json> root = deepspeed::parse_json(json, diagnostics);
  if (!root) throw diagnostics.to_error();
  return or_throw(imported(*root, name, target, diagnostics));
}

}  // namespace pliant
