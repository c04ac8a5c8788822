#include "sharded/shards/model_tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/printable.hpp"
#include "data/digest.hpp"
#include "pliant/error.hpp"
#include "sharded/shards/layout.hpp"

namespace pliant::sharded {
namespace {

constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_/:";

uint64_t elements_of(const ParameterSpec& spec) {
  uint64_t count = 1;
  for (const int64_t size : spec.shape) {
    if (size < 0 || (size > 0 && count > std::numeric_limits<uint64_t>::max() / 8 / static_cast<uint64_t>(size))) {
      throw Error(
          Status::kInvalidArgument,
          fmt::format(
              "the parameter {} has a dimension of {}; dimensions must be 0 or more, and all together must fit memory",
              spec.name, size));
    }
    count *= static_cast<uint64_t>(size);
  }
  return count;
}

}  // namespace

void check_name(const std::string& name, const char* what) {
  if (!name.empty() && name.find_first_not_of(kAllowed) == std::string::npos) return;
  throw Error(Status::kInvalidArgument,
              fmt::format("the {} \"{}\" needs a name of letters, digits and any of \".-_/:\"", what, printable(name)),
              Origin::kInput);
}

uint32_t ModelTables::add(ParameterSpec spec) {
  if (closed_) {
    throw Error(Status::kFailedPrecondition,
                fmt::format("the parameter {} was added too late: add all before Session::start", spec.name));
  }
  check_name(spec.name, "parameter");
  if (names_.count(spec.name) > 0) {
    throw Error(Status::kInvalidArgument, fmt::format("two parameters have the name {}; give each a unique name, and "
                                                      "share a parameter by naming its number in several modules",
                                                      spec.name));
  }
  if (!spec.initialise) {
    throw Error(
        Status::kInvalidArgument,
        fmt::format("the parameter {} has no initialise callback, which must write the first values", spec.name));
  }
  const uint64_t elements = elements_of(spec);
  if (elements > static_cast<uint64_t>(FlatLayout::kMostElements) - elements_) {
    throw Error(Status::kInvalidArgument,
                fmt::format("with the {} elements of {} the model exceeds the limit of {} elements", elements,
                            spec.name, FlatLayout::kMostElements));
  }
  names_.insert(spec.name);
  parameters_.push_back({std::move(spec.name), std::move(spec.shape), elements, elements_, spec.frozen, spec.persistent,
                         spec.external, std::move(spec.initialise)});
  elements_ += elements;
  return static_cast<uint32_t>(parameters_.size() - 1);
}

std::vector<uint32_t> ModelTables::numbers(const std::vector<ParameterId>& ids, const std::string& module) const {
  std::vector<uint32_t> made;
  std::unordered_set<uint32_t> known;
  for (const ParameterId id : ids) {
    const auto number = static_cast<uint32_t>(id);
    if (number >= parameters_.size()) {
      throw Error(Status::kInvalidArgument, fmt::format("the module {} names parameter {}, but {} were added", module,
                                                        number, parameters_.size()));
    }
    if (!known.insert(number).second) {
      throw Error(Status::kInvalidArgument,
                  fmt::format("the module {} names {} twice", module, parameters_[number].name));
    }
    made.push_back(number);
  }
  return made;
}

uint32_t ModelTables::add(ModuleSpec spec) {
  if (closed_) {
    throw Error(Status::kFailedPrecondition,
                fmt::format("the module {} was added too late: add all before Session::start", spec.name));
  }
  check_name(spec.name, "module");
  if (spec.parent.has_value() == modules_.empty()) {
    throw Error(Status::kInvalidArgument,
                modules_.empty()
                    ? fmt::format("the module {} is the first module, the root, and cannot have a parent", spec.name)
                    : fmt::format("the module {} needs a parent: {} is the root", spec.name, modules_.front().name));
  }
  ModuleRow row{std::move(spec.name), {}, {}, {}, spec.leaf, {}};
  row.own = numbers(spec.own, row.name);
  row.external = numbers(spec.external, row.name);
  const auto number = static_cast<uint32_t>(modules_.size());
  if (spec.parent) modules_[module_number(*spec.parent)].children.push_back(number);
  modules_.push_back(std::move(row));
  return number;
}

void ModelTables::set_parameters(uint32_t module, const std::vector<ParameterId>& own,
                                 const std::vector<ParameterId>& external) {
  ModuleRow& row = modules_[module];
  std::vector<uint32_t> own_numbers = numbers(own, row.name);
  row.external = numbers(external, row.name);
  row.own = std::move(own_numbers);
  for (uint32_t number = 0; number < modules_.size(); ++number) {
    if (number == module || modules_[number].leaf) find_used(number);
  }
}

// Modules may lie as deep in one another as a file says.
void ModelTables::collect(uint32_t module, std::vector<uint32_t>& used) const {
  for (std::vector<uint32_t> left{module}; !left.empty();) {
    const ModuleRow& row = modules_[left.back()];
    left.pop_back();
    used.insert(used.end(), row.own.begin(), row.own.end());
    used.insert(used.end(), row.external.begin(), row.external.end());
    left.insert(left.end(), row.children.begin(), row.children.end());
  }
}

void ModelTables::find_used(uint32_t module) {
  ModuleRow& row = modules_[module];
  row.used.clear();
  if (row.leaf) {
    collect(module, row.used);
  } else {
    row.used = row.own;
    row.used.insert(row.used.end(), row.external.begin(), row.external.end());
  }
  std::sort(row.used.begin(), row.used.end());
  row.used.erase(std::unique(row.used.begin(), row.used.end()), row.used.end());
}

void ModelTables::close() {
  if (modules_.empty()) {
    throw Error(Status::kFailedPrecondition, "the sharded model has no modules; add at least a root");
  }
  for (uint32_t number = 0; number < modules_.size(); ++number) find_used(number);
  closed_ = true;
}

uint32_t ModelTables::module_number(ModuleId module) const {
  const auto number = static_cast<uint32_t>(module);
  if (number < modules_.size()) return number;
  throw Error(Status::kNotFound,
              fmt::format("the sharded model has no module {}; {} were added", number, modules_.size()));
}

uint32_t ModelTables::parameter_number(ParameterId parameter) const {
  const auto number = static_cast<uint32_t>(parameter);
  if (number < parameters_.size()) return number;
  throw Error(Status::kNotFound,
              fmt::format("the sharded model has no parameter {}; {} were added", number, parameters_.size()));
}

uint32_t ModelTables::digest_of_uses() const {
  data::Digest digest;
  for (const ModuleRow& row : modules_) {
    digest.add(std::span<const uint32_t>(row.own));
    digest.add(std::span<const uint32_t>(row.external));
  }
  return static_cast<uint32_t>(digest.value() ^ digest.value() >> 32U);
}

std::string ModelTables::description() const {
  std::string text;
  for (const ParameterRow& row : parameters_) {
    text += fmt::format("{} [{}]{}{}{}\n", row.name, fmt::join(row.shape, ","), row.frozen ? " frozen" : "",
                        row.persistent ? " persistent" : "", row.external ? " external" : "");
  }
  for (const ModuleRow& row : modules_) {
    text += fmt::format("{} own {} external {} children {}{}\n", row.name, fmt::join(row.own, ","),
                        fmt::join(row.external, ","), fmt::join(row.children, ","), row.leaf ? " leaf" : "");
  }
  return text;
}

}  // namespace pliant::sharded
