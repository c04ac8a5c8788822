// ModelTables: the parameters and modules of a sharded model, and where each parameter lies in the flat space.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/result.hpp"
#include "pliant/sharded.hpp"

namespace pliant::sharded {

struct ParameterRow {
  std::string name;
  std::vector<int64_t> shape;
  uint64_t elements = 0;
  uint64_t offset = 0;  ///< of its first element in the flat space: all parameters, end to end
  bool frozen = false;
  bool persistent = false;
  bool external = false;
  std::function<void(std::span<float>)> initialise;
  [[nodiscard]] uint64_t end() const { return offset + elements; }
};

struct ModuleRow {
  std::string name;
  std::vector<uint32_t> own;
  std::vector<uint32_t> external;
  std::vector<uint32_t> children;
  bool leaf = false;
  std::vector<uint32_t> used;  ///< own, external and, for a leaf, those of all modules below; each once, ascending
  /// Other modules are entered while this one is.
  [[nodiscard]] bool has_inner() const { return !leaf && !children.empty(); }
};

/// Throws kInvalidArgument for a name that is empty or has other characters than letters, digits and ".-_/:".
void check_name(const std::string& name, const char* what);

class ModelTables {
 public:
  /// Throw kInvalidArgument, naming what is wrong.
  uint32_t add(ParameterSpec spec);
  uint32_t add(ModuleSpec spec);
  /// Other parameters of a module that is there.
  void set_parameters(uint32_t module, const std::vector<ParameterId>& own, const std::vector<ParameterId>& external);
  /// Has its first values come from elsewhere.
  void set_initialise(uint32_t parameter, std::function<void(std::span<float>)> initialise) {
    parameters_[parameter].initialise = std::move(initialise);
  }
  /// Once all are there. Throws kFailedPrecondition for a model without modules.
  void close();

  [[nodiscard]] const std::vector<ParameterRow>& parameters() const { return parameters_; }
  [[nodiscard]] const std::vector<ModuleRow>& modules() const { return modules_; }
  [[nodiscard]] const ParameterRow& parameter(uint32_t number) const { return parameters_[number]; }
  /// Throws kNotFound where there is none.
  [[nodiscard]] uint32_t module_number(ModuleId module) const;
  [[nodiscard]] uint32_t parameter_number(ParameterId parameter) const;
  [[nodiscard]] uint64_t elements() const { return elements_; }
  [[nodiscard]] bool is_closed() const { return closed_; }
  /// Of what each module has of its own and external.
  [[nodiscard]] uint32_t digest_of_uses() const;
  /// Names, shapes and flags: equal text, equal models.
  [[nodiscard]] std::string description() const;

 private:
  [[nodiscard]] std::vector<uint32_t> numbers(const std::vector<ParameterId>& ids, const std::string& module) const;
  void collect(uint32_t module, std::vector<uint32_t>& used) const;
  void find_used(uint32_t module);

  std::vector<ParameterRow> parameters_;
  std::vector<ModuleRow> modules_;
  std::unordered_set<std::string> names_;  ///< of parameters
  uint64_t elements_ = 0;
  bool closed_ = false;
};

}  // namespace pliant::sharded
