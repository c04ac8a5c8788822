// Lines of TOML, and the account of keys in the order of the source.
#include "import/draft.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/suggest.hpp"

namespace pliant::config::deepspeed {

namespace {

constexpr size_t kCommentColumn = 40;
constexpr size_t kWidth = 120;
constexpr int kMostSuggestions = 20;

std::string below(const std::string& path, std::string_view key) {
  return path.empty() ? quoted_key(key) : path + "." + quoted_key(key);
}

}  // namespace

Source Source::at(std::string_view key) const {
  return {value == nullptr ? nullptr : value->find(key), below(path, key)};
}

void Draft::table(KeyPath path) {
  made_.toml += fmt::format("\n[{}]\n", dotted(path));
  table_ = std::move(path);
}

void Draft::line(std::string_view key, const Value& value, const std::string& note) {
  std::string text = fmt::format("{} = {}", quoted_key(key), to_toml(value));
  if (!note.empty()) {
    text.resize(std::max(text.size() + 2, kCommentColumn), ' ');
    text += "# " + note;
  }
  made_.toml += text + "\n";
}

void Draft::carry(const Source& from, std::string_view key, const Value& value, const std::string& note) {
  const size_t dot = from.path.rfind('.');
  const bool renamed = from.path.substr(dot == std::string::npos ? 0 : dot + 1) != key;
  std::string said = renamed ? "from " + from.path : std::string{};
  if (!note.empty()) said += (said.empty() ? "" : "; ") + note;
  line(key, value, said);
  KeyPath to = table_;
  to.emplace_back(key);
  carried(from, dotted(to));
}

void Draft::add(std::string_view key, const Value& value, const std::string& note) {
  line(key, value, note);
}

void Draft::comment(std::string_view text) {
  if (text.empty()) made_.toml += '\n';
  while (!text.empty()) {
    size_t end = text.size();
    if (end > kWidth) {
      end = text.rfind(' ', kWidth);
      if (end == std::string_view::npos) end = text.find(' ');
      if (end == std::string_view::npos) end = text.size();
    }
    made_.toml += fmt::format("# {}\n", text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

void Draft::comment_line(const std::string& line) {
  made_.toml += (line.empty() ? "#" : "# " + line) + "\n";
}

void Draft::carried(const Source& from, std::string to) {
  taken_[from.path] = true;
  made_.carried.push_back({from.path, std::move(to)});
}

void Draft::error(const Source& at, std::string message, std::vector<std::string> notes, Status status) {
  Finding finding;
  if (at) finding.origin = at.value->origin;
  finding.message = std::move(message);
  finding.notes = std::move(notes);
  finding.status = status;
  diagnostics_.add(std::move(finding));
}

std::string Draft::unknown(std::string_view key, const std::vector<std::string>& known, std::string reason) {
  if (suggestions_++ >= kMostSuggestions) return reason;
  const auto near = nearest(key, known);
  return near.empty() ? reason : fmt::format("{}; did you mean {}?", reason, near.front());
}

void Draft::leave_unknown(const Source& block, const std::vector<std::string>& known, const std::string& reason) {
  for (const JsonMember& member : block.value->members) {
    if (std::find(known.begin(), known.end(), member.key) != known.end()) continue;
    const std::string path = below(block.path, member.key);
    if (known_reason(path).empty()) leave(path, unknown(member.key, known, reason));
  }
}

std::string Draft::reason_at(const std::string& path, const std::string& inherited) const {
  if (const auto given = reasons_.find(path); given != reasons_.end()) return given->second;
  const std::string_view known = known_reason(path);
  return known.empty() ? inherited : std::string(known);
}

void Draft::account(const std::string& path, const JsonMember& member, const std::string& inherited) {
  if (member.times > 1) {
    made_.not_carried.push_back(
        {path, fmt::format("given {} times; the last one is used, as in Python", member.times)});
  }
  if (taken_.contains(path)) return;
  const std::string reason = reason_at(path, inherited);
  if (!member.value.is(Json::Type::kObject) || member.value.members.empty()) {
    made_.not_carried.push_back({path, reason});
    return;
  }
  for (const JsonMember& inner : member.value.members) account(below(path, inner.key), inner, reason);
}

ImportedConfig Draft::finish() && {
  leave_unknown(root(), known_keys(), "unknown to Pliant");
  for (const JsonMember& member : root_.members) account(below("", member.key), member, {});
  if (!made_.not_carried.empty()) {
    made_.toml += "\n# Not carried:\n";
    for (const NotCarriedBlock& block : by_block(made_.not_carried)) made_.toml += "# - " + line_of(block) + "\n";
  }
  return std::move(made_);
}

}  // namespace pliant::config::deepspeed
