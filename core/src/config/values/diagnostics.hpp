// Findings about a config: collected, sorted by position, written in the form that editors understand.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/values/value.hpp"
#include "pliant/error.hpp"

namespace pliant::config {

enum class Severity { kError, kWarning };

struct Finding {
  ValueOrigin origin;              ///< the value that it is about
  std::string message;             ///< one line
  std::vector<std::string> notes;  ///< what helps: the near key, the allowed values
  Origin error_origin = Origin::kInput;
  Status status = Status::kInvalidArgument;
  Severity severity = Severity::kError;
  std::string block{};  ///< the whole of it as it is shown, where somebody has rendered it
};

/// All findings of one config. `name` is the file as the user wrote it, `text` what it holds.
class Diagnostics {
 public:
  Diagnostics(std::string name, std::string_view text);

  void error(const ValueOrigin& origin, std::string message, std::vector<std::string> notes = {});
  void warning(const ValueOrigin& origin, std::string message, std::vector<std::string> notes = {});
  void add(Finding finding) { findings_.push_back(std::move(finding)); }

  [[nodiscard]] bool failed() const { return error_count() > 0; }
  [[nodiscard]] size_t error_count() const;
  /// All errors as one Error: of Origin::kInput when one of them is, else of kPlugin.
  [[nodiscard]] Error to_error() const;
  /// The warnings, one block each, sorted.
  [[nodiscard]] std::vector<std::string> warnings() const;
  /// `pliant.toml:8:1`, or the label of an override.
  [[nodiscard]] std::string where(const ValueOrigin& origin) const;
  /// The source line of `origin` and a caret below it, each behind a newline; empty where there is none to show.
  [[nodiscard]] std::string quote(const ValueOrigin& origin) const;
  /// `where: error: message`, the source line, a caret, the notes.
  [[nodiscard]] std::string render(const Finding& finding) const;
  /// The finding as a field of an Error.
  [[nodiscard]] ConfigFinding found(const Finding& finding) const;

 private:
  [[nodiscard]] std::vector<const Finding*> sorted(Severity severity) const;
  std::string name_;
  std::vector<std::string> lines_;
  std::vector<Finding> findings_;
};

}  // namespace pliant::config
