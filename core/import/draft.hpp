// The draft of an imported config: which key of the source went where, and the TOML so far.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/values/diagnostics.hpp"
#include "config/values/value.hpp"
#include "import/json_text.hpp"
#include "pliant/import.hpp"

namespace pliant::config::deepspeed {

/// A value of the source and its dotted path there.
struct Source {
  const Json* value = nullptr;  ///< nullptr: the key is absent
  std::string path;

  explicit operator bool() const { return value != nullptr; }
  [[nodiscard]] Source at(std::string_view key) const;
};

class Draft {
 public:
  /// `target`: what commands of the comments call the TOML.
  Draft(const Json& root, Diagnostics& diagnostics, std::string target)
      : root_(root), diagnostics_(diagnostics), target_(std::move(target)) {}

  [[nodiscard]] const std::string& target() const { return target_; }
  [[nodiscard]] Source root() const { return {&root_, ""}; }

  /// Starts the TOML table `path`; later lines stand in it.
  void table(KeyPath path);
  /// `key = value` in the present table, carried from `from`. The comment names `from` where the name changed, and
  /// `note`.
  void carry(const Source& from, std::string_view key, const Value& value, const std::string& note = {});
  /// `key = value` that no key of the source gave.
  void add(std::string_view key, const Value& value, const std::string& note);
  /// Comment lines, wrapped; an empty text gives an empty line.
  void comment(std::string_view text);
  /// One comment line, as it is.
  void comment_line(const std::string& line);
  /// `from` has had its effect in that `to` is there.
  void carried(const Source& from, std::string to);
  /// `path` and what lies below is not carried for `reason`.
  void leave(const std::string& path, std::string reason) { reasons_[path] = std::move(reason); }

  /// Leaves every key of `block` that is not among `known`, with the near one.
  void leave_unknown(const Source& block, const std::vector<std::string>& known, const std::string& reason);

  void error(const Source& at, std::string message, std::vector<std::string> notes = {},
             Status status = Status::kInvalidArgument);
  [[nodiscard]] const Diagnostics& diagnostics() const { return diagnostics_; }
  [[nodiscard]] bool carried_anything() const { return !made_.carried.empty(); }

  /// Everything, with an account of every key of the source.
  ImportedConfig finish() &&;

 private:
  void line(std::string_view key, const Value& value, const std::string& note);
  void account(const std::string& path, const JsonMember& member, const std::string& inherited);
  [[nodiscard]] std::string reason_at(const std::string& path, const std::string& inherited) const;
  [[nodiscard]] std::string unknown(std::string_view key, const std::vector<std::string>& known, std::string reason);

  const Json& root_;
  Diagnostics& diagnostics_;
  std::string target_;
  KeyPath table_;
  ImportedConfig made_;
  std::map<std::string, std::string, std::less<>> reasons_;
  std::map<std::string, bool, std::less<>> taken_;
  int suggestions_ = 0;
};

/// The source has an enabled block of elasticity.
bool is_elastic(const Source& root);
/// Fills [elasticity]. False when the source has no enabled block.
bool import_elasticity(Draft& draft);
/// Fills [sampler], [lr] and [run] seed. False when dynamic batching is not enabled.
bool import_dynamic_batching(Draft& draft, bool has_elasticity);

/// How dynamic batching scales the rate.
struct ScalingRule {
  std::string rule;
  Source from;
  std::string note;
  std::function<void()> write_base_batch;  ///< adds base_batch to [lr], or says what is to be set
};
/// Fills [lr] from optimizer and scheduler. `scaling`: nullptr without dynamic batching; then there is no section where
/// neither gives anything. True when it wrote one.
bool import_rate(Draft& draft, const ScalingRule* scaling);
/// Fills [coordinator] for stage 3 of zero_optimization.
void import_zero(Draft& draft);

/// Why Pliant has no place for key `path` of a DeepSpeed config; "" when it does not know the key.
std::string_view known_reason(std::string_view path);
/// The names of all top-level keys that are known.
std::vector<std::string> known_keys();

}  // namespace pliant::config::deepspeed
