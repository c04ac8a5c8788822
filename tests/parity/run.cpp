// Reads, dispatches by shape, counts, reports.
#include "parity/run.hpp"

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>

#include "parity/row_reader.hpp"

namespace pliant::parity {
namespace {

std::string indented(const std::string& text) {
  std::string lines = "    ";
  for (const char c : text) {
    lines += c;
    if (c == '\n') lines += "    ";
  }
  return lines;
}

}  // namespace

std::vector<RowKind> row_kinds() {
  std::vector<RowKind> kinds;
  for (std::vector<RowKind>& more : std::vector<std::vector<RowKind>>{
           elasticity_rows(), immutable_rows(), variable_batch_rows(), lr_trace_rows(), dynamic_batching_rows(),
           metric_file_rows(), loader_rows(), zero3_trace_rows()}) {
    std::move(more.begin(), more.end(), std::back_inserter(kinds));
  }
  return kinds;
}

std::string shortened(const std::string& text, size_t longest) {
  return text.size() > longest ? text.substr(0, longest) + " ..." : text;
}

void list_rules(std::ostream& out) {
  for (const RowKind& kind : row_kinds()) {
    for (const Rule& rule : kind.rules) fmt::print(out, "{}: {}: {}\n", kind.id, rule.id, rule.reason);
  }
}

Run::Run(RunOptions options, std::filesystem::path plugin_folder, std::ostream& report)
    : options_(std::move(options)), plugins_(std::move(plugin_folder)), report_(report) {}

void Run::file(const std::filesystem::path& file) {
  Result<LineReader> reader = LineReader::open(file);
  if (!reader) return fail(file.string(), reader.error().message());
  int64_t number = 0;
  bool any = false;
  for (;;) {
    Result<std::optional<std::string>> text = reader->next();
    ++number;
    const std::string where = fmt::format("{}:{}", file.string(), number);
    if (!text) return fail(where, text.error().message());
    if (!*text) break;
    if ((*text)->find_first_not_of(" \t\r") == std::string::npos) continue;
    any = true;
    line(where, **text);
  }
  if (!any) fail(file.string(), "the file has no rows");
}

void Run::line(const std::string& where, const std::string& text) {
  const std::optional<Json> parsed = parse_row(text);
  if (!parsed || !parsed->is_object()) return fail(where, "not a JSON object");
  const std::string id = parsed->contains("id") ? fmt::format("{}: row {}", where, (*parsed)["id"].dump()) : where;
  try {
    row(id, *parsed);
  } catch (const nlohmann::json::exception& malformed) {
    fail(id, fmt::format("the row is not in the format of its kind: {}", malformed.what()));
  }
}

void Run::row(const std::string& where, const Json& row) {
  const auto kind =
      std::find_if(kinds_.begin(), kinds_.end(), [&](const RowKind& known) { return known.matches(row); });
  const bool wanted =
      options_.only.empty() ||
      (kind != kinds_.end() && std::find(options_.only.begin(), options_.only.end(), kind->id) != options_.only.end());
  if (!wanted) {
    ++left_out_;
    return;
  }
  if (kind == kinds_.end()) {
    return fail(where, fmt::format("no check is implemented for this kind of row{}",
                                   row.contains("kind") ? ": " + row["kind"].dump() : std::string{}));
  }
  const Outcome outcome = kind->check(row, plugins_, options_.rows);
  passed_ += outcome.also_passed;
  switch (outcome.verdict) {
    case Outcome::Verdict::kPassed:
      ++passed_;
      return;
    case Outcome::Verdict::kSkipped:
      ++skipped_[fmt::format("{}: {}", kind->id, outcome.detail)];
      return;
    case Outcome::Verdict::kFailed:
      return fail(fmt::format("{} ({})", where, kind->id), outcome.detail);
  }
}

void Run::fail(const std::string& where, const std::string& difference) {
  if (failed_++ < options_.show) fmt::print(report_, "{}: differs\n{}\n", where, indented(difference));
}

void Run::summary() const {
  if (failed_ > options_.show) fmt::print(report_, "... and {} more\n", failed_ - options_.show);
  if (left_out_ > 0) fmt::print(report_, "{} rows of other kinds were not looked at\n", left_out_);
  int64_t skipped = 0;
  for (const auto& [rule, count] : skipped_) skipped += count;
  if (skipped > 0) fmt::print(report_, "skipped by rule:\n");
  for (const auto& [rule, count] : skipped_) {
    fmt::print(report_, "{:8} {}", count, rule);
    for (const RowKind& kind : kinds_) {
      for (const Rule& known : kind.rules) {
        if (rule == fmt::format("{}: {}", kind.id, known.id)) fmt::print(report_, ": {}", known.reason);
      }
    }
    fmt::print(report_, "\n");
  }
  if (options_.passed && *options_.passed != passed_) fmt::print(report_, "{} were to pass\n", *options_.passed);
  fmt::print(report_, "{} passed, {} failed, {} skipped\n", passed_, failed_, skipped);
}

}  // namespace pliant::parity
