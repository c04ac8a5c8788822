// A run over files of rows: counts, the first differing rows, and the report.
#pragma once

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "parity/parity.hpp"

namespace pliant::parity {

struct RunOptions {
  Options rows;
  std::vector<std::string> only;  ///< ids of RowKinds; rows of other kinds are not looked at. Empty: all rows
  int64_t show = 10;              ///< differing rows printed in full
  std::optional<int64_t> passed;  ///< so many must pass, no more and no fewer
};

class Run {
 public:
  Run(RunOptions options, std::filesystem::path plugin_folder, std::ostream& report);
  /// Checks every row of `file`. A file that cannot be read or has no row counts as one failed row.
  void file(const std::filesystem::path& file);
  /// Rules with their counts, then the last line: `N passed, M failed, K skipped`.
  void summary() const;
  [[nodiscard]] bool ok() const { return failed_ == 0 && options_.passed.value_or(passed_) == passed_; }

 private:
  void line(const std::string& where, const std::string& text);
  void row(const std::string& where, const Json& row);
  void fail(const std::string& where, const std::string& difference);

  RunOptions options_;
  Plugins plugins_;
  std::ostream& report_;
  std::vector<RowKind> kinds_ = row_kinds();
  int64_t passed_ = 0;
  int64_t failed_ = 0;
  int64_t left_out_ = 0;                    ///< by RunOptions::only
  std::map<std::string, int64_t> skipped_;  ///< by rule
};

/// Every rule of every kind, one line each.
void list_rules(std::ostream& out);

}  // namespace pliant::parity
