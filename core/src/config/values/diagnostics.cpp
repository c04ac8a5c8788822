// How findings are sorted and shown.
#include "config/values/diagnostics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

namespace pliant::config {

namespace {

constexpr size_t kMostShown = 100;         // findings
constexpr size_t kLongestLineShown = 200;  // bytes of a source line

std::vector<std::string> split_lines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    lines.emplace_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

/// False for a line that would garble a terminal.
bool showable(const std::string& line) {
  return line.size() <= kLongestLineShown && std::all_of(line.begin(), line.end(), [](char c) {
           const auto byte = static_cast<unsigned char>(c);
           return byte == '\t' || (byte >= 0x20 && byte != 0x7f);
         });
}

/// Spaces up to `column`, with the tabs of the line kept so that the caret stands under the right character.
std::string padding(const std::string& line, uint32_t column) {
  std::string result;
  uint32_t at = 1;
  for (const char c : line) {
    if (at >= column) break;
    if ((static_cast<unsigned char>(c) & 0xC0U) == 0x80U) continue;  // not the first byte of a character
    result += c == '\t' ? '\t' : ' ';
    ++at;
  }
  return result;
}

}  // namespace

Diagnostics::Diagnostics(std::string name, std::string_view text) : name_(std::move(name)), lines_(split_lines(text)) {}

void Diagnostics::error(const ValueOrigin& origin, std::string message, std::vector<std::string> notes) {
  findings_.push_back({origin, std::move(message), std::move(notes), Origin::kInput, Status::kInvalidArgument});
}

void Diagnostics::warning(const ValueOrigin& origin, std::string message, std::vector<std::string> notes) {
  findings_.push_back({origin, std::move(message), std::move(notes), Origin::kInput, Status::kOk, Severity::kWarning});
}

size_t Diagnostics::error_count() const {
  return static_cast<size_t>(std::count_if(findings_.begin(), findings_.end(),
                                           [](const Finding& f) { return f.severity == Severity::kError; }));
}

std::vector<const Finding*> Diagnostics::sorted(Severity severity) const {
  std::vector<const Finding*> order;
  for (const Finding& finding : findings_) {
    if (finding.severity == severity) order.push_back(&finding);
  }
  const auto key = [](const Finding* f) {
    return std::make_tuple(f->origin.label.empty() ? 0 : 1, f->origin.line, f->origin.column);
  };
  std::stable_sort(order.begin(), order.end(), [&](const Finding* a, const Finding* b) { return key(a) < key(b); });
  return order;
}

Error Diagnostics::to_error() const {
  const std::vector<const Finding*> errors = sorted(Severity::kError);
  std::string text;
  std::vector<ConfigFinding> all;
  Origin origin = Origin::kPlugin;
  for (size_t i = 0; i < errors.size(); ++i) {
    if (errors[i]->error_origin == Origin::kInput) origin = Origin::kInput;
    all.push_back(found(*errors[i]));
    if (i < kMostShown) text += (text.empty() ? "" : "\n") + render(*errors[i]);
  }
  if (errors.size() > kMostShown) text += fmt::format("\n{}: {} more errors", name_, errors.size() - kMostShown);
  return Error(errors.empty() ? Status::kInternal : errors.front()->status, text, origin).set_findings(std::move(all));
}

ConfigFinding Diagnostics::found(const Finding& finding) const {
  const ValueOrigin& origin = finding.origin;
  if (!origin.label.empty()) return {origin.label, 0, 0, finding.message};
  return {name_, origin.line, origin.column, finding.message};
}

std::vector<std::string> Diagnostics::warnings() const {
  std::vector<std::string> blocks;
  for (const Finding* finding : sorted(Severity::kWarning)) blocks.push_back(render(*finding));
  return blocks;
}

std::string Diagnostics::where(const ValueOrigin& origin) const {
  if (!origin.label.empty()) return origin.label;
  if (origin.line == 0) return name_;
  return fmt::format("{}:{}:{}", name_, origin.line, origin.column);
}

std::string Diagnostics::quote(const ValueOrigin& origin) const {
  if (!origin.label.empty() || origin.line == 0 || origin.line > lines_.size()) return origin.quote;
  const std::string& line = lines_[origin.line - 1];
  if (!showable(line)) return {};
  const std::string number = fmt::format("{:>5}", origin.line);
  const size_t tail = origin.length > 1 ? std::min<size_t>(origin.length, kLongestLineShown) - 1 : 0;
  return fmt::format("\n{} | {}\n{} | {}^{}", number, line, std::string(number.size(), ' '),
                     padding(line, origin.column), std::string(tail, '~'));
}

std::string Diagnostics::render(const Finding& finding) const {
  if (!finding.block.empty()) return finding.block;
  std::string text =
      fmt::format("{}: {}: {}{}", where(finding.origin), finding.severity == Severity::kError ? "error" : "warning",
                  finding.message, quote(finding.origin));
  for (const std::string& note : finding.notes) text += fmt::format("\n  note: {}", note);
  return text;
}

}  // namespace pliant::config
