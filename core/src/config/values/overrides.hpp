// What changes a config beside its file: --set, flags and PLIANT__ variables.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/values/diagnostics.hpp"
#include "config/values/value.hpp"

namespace pliant::config {

/// Applies "key=value" texts in order. `label`: how messages name one of them ("--set run.workers=2").
struct Assignment {
  std::string text;
  Layer layer = Layer::kSet;
  std::string label;
};
void apply_assignments(const std::vector<Assignment>& assignments, Value& root, Diagnostics& diagnostics);

/// RUN__WORKERS for {"run", "workers"}: letters upper-cased, digits kept, anything else `_`.
std::string environment_name(const KeyPath& path);

/// The PLIANT__ variables of this process. Each is applied once the key that it means is known.
class Environment {
 public:
  /// Reads the environment; none of it when `read` is false.
  explicit Environment(bool read);

  /// Applies the variable that means `path`, unless something stronger has set it.
  void apply(const KeyPath& path, Value& root);
  /// Applies APP__... variables: to a key of [app] that is there, else to its letters in lower case.
  void apply_app(Value& root);
  /// Applies variables below `path`, whose keys are not known, to their letters in lower case.
  void apply_below(const KeyPath& path, Value& root);
  /// Drops variables below `path`: a plugin that is not in use.
  void ignore_below(const KeyPath& path);
  /// Reports every variable that nothing has claimed.
  void report_unknown(Diagnostics& diagnostics) const;

 private:
  struct Variable {
    std::string name;
    std::string suffix;  ///< after PLIANT__
    std::string value;
    bool claimed = false;
  };
  static void put(Variable& variable, const KeyPath& path, Value& root);
  std::vector<Variable> variables_;
  std::vector<std::string> known_;  ///< every suffix that was asked for
};

}  // namespace pliant::config
