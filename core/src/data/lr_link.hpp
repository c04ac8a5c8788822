// LrLink: one rule of the chain, with what it says about itself and every answer checked.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.hpp"
#include "pliant/abi/lr_rule.h"
#include "plugin/plugin.hpp"

namespace pliant::data {

/// The number of an optimizer family by its name in [lr] optimizer; PLIANT_OPTIMIZER_UNKNOWN for any other word.
int32_t optimizer_of(const std::string& name);

class LrLink {
 public:
  /// Asks the rule to describe itself; kInternal (kPlugin) when it breaks its contract.
  static Result<LrLink> make(plugin::Instance instance);

  [[nodiscard]] std::string name() const { return instance_.plugin().record().name; }
  /// The families that it is valid for, by name; "any" for all.
  [[nodiscard]] std::string optimizers() const;
  [[nodiscard]] bool wants(uint32_t flag) const { return (flags_ & flag) != 0; }
  /// kFailedPrecondition (kInput) with the rule's reason when it is not valid for that family.
  [[nodiscard]] Result<> check_optimizer(int32_t optimizer) const;

  /// The answer to `input`, whose `previous` is set.
  [[nodiscard]] Result<pliant_lr_output> scale(const pliant_lr_input& input) const;
  [[nodiscard]] Result<> commit(const pliant_lr_input& input, const pliant_lr_output& answer,
                                const pliant_lr_committed& committed);

  [[nodiscard]] Result<std::string> save() const { return instance_.save(); }
  [[nodiscard]] Result<> load(const std::string& saved) { return instance_.load(saved); }

 private:
  explicit LrLink(plugin::Instance instance) : instance_(std::move(instance)) {}
  [[nodiscard]] tl::unexpected<Error> broke(const std::string& how) const;
  [[nodiscard]] tl::unexpected<Error> refused(int32_t status, const pliant_error& error) const;
  [[nodiscard]] const pliant_lr_rule& slots() const { return instance_.table<pliant_lr_rule>(); }

  plugin::Instance instance_;
  uint32_t flags_ = 0;
  uint32_t optimizers_ = 0;
  std::string reason_;
};

}  // namespace pliant::data
