// What a shape of golden rows plugs into: outcomes, exception rules, plugins opened through the real host.
//
// A file of rows defines one function that returns its RowKinds and is named in row_kinds.cpp. check() gets the whole
// row and goes through the plugin ABI. A rule excuses a row because of its INPUT, and only a refusal: never a wrong
// number.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "pliant/config.hpp"
#include "plugin/plugin.hpp"

namespace pliant::parity {

/// Integers that fit no 64 bits are Json binaries with the decimal digits; NaN and the infinities are floats.
using Json = nlohmann::json;

/// Why rows may be left out.
struct Rule {
  std::string id;      ///< short and stable: "int64"
  std::string reason;  ///< one sentence
};

/// `text` cut to something that fits a terminal.
std::string shortened(const std::string& text, size_t longest = 1200);

struct Outcome {
  enum class Verdict { kPassed, kFailed, kSkipped };
  Verdict verdict = Verdict::kFailed;
  std::string detail;       ///< failed: expected and actual, one line each; skipped: the rule's id
  int64_t also_passed = 0;  ///< comparisons that passed beside this one, of a row that holds several

  static Outcome passed() { return {Verdict::kPassed, {}, 0}; }
  static Outcome failed(std::string difference) { return {Verdict::kFailed, std::move(difference), 0}; }
  static Outcome failed(const std::string& expected, const std::string& actual) {
    return failed("expected: " + shortened(expected) + "\nactual:   " + shortened(actual));
  }
  static Outcome skipped(std::string rule) { return {Verdict::kSkipped, std::move(rule), 0}; }
};

/// Plugins opened once each with the real host, and instances with options that the real option table checked.
class Plugins {
 public:
  explicit Plugins(std::filesystem::path folder) : folder_(std::move(folder)) {}
  /// Opens `<section>-<name>.pliant.so`, or gives the one that is open.
  Result<std::shared_ptr<const plugin::Plugin>> open(const std::string& section, const std::string& name);
  /// The config `toml`, opened with these plugins.
  [[nodiscard]] Result<Config> open_config(const std::string& toml, const ConfigNeeds& needs) const;
  /// `options`: a JSON object, key -> value, checked as if it stood in [section."name"] of a pliant.toml.
  Result<plugin::Instance> make(const std::string& section, const std::string& name, const Json& options);

 private:
  std::filesystem::path folder_;
  std::map<std::string, std::shared_ptr<const plugin::Plugin>> open_;
};

struct Options {
  /// Elasticity policies run with this option on, and rows are held against `out_seed` where they have it.
  bool lcm_may_exceed_max = false;
  /// Elasticity rows go through import_deepspeed() and the config that it writes, not through the row's own options.
  bool through_import = false;
};

/// One shape of rows. The first kind whose matches() is true takes the row.
struct RowKind {
  std::string id;
  std::function<bool(const Json& row)> matches;
  std::vector<Rule> rules;
  std::function<Outcome(const Json& row, Plugins& plugins, const Options& options)> check;
};

std::vector<RowKind> elasticity_rows();        // elasticity.cpp
std::vector<RowKind> immutable_rows();         // immutable.cpp
std::vector<RowKind> variable_batch_rows();    // variable_batch.cpp
std::vector<RowKind> lr_trace_rows();          // lr_trace.cpp
std::vector<RowKind> dynamic_batching_rows();  // dynamic_batching.cpp
std::vector<RowKind> metric_file_rows();       // metric_files.cpp
std::vector<RowKind> loader_rows();            // loader.cpp
std::vector<RowKind> zero3_trace_rows();       // zero3_trace.cpp

/// All of them.
std::vector<RowKind> row_kinds();

}  // namespace pliant::parity
