// Lists of parameters by module.
#include "layout.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace pliant::coordinator::zero3 {
namespace {

/// Adds the numbers of `more` that `list` does not have from `begin` on.
void add_new(std::vector<uint32_t>& list, size_t begin, std::span<const uint32_t> more, std::vector<bool>& known) {
  for (size_t i = begin; i < list.size(); ++i) known[list[i]] = true;
  for (const uint32_t number : more) {
    if (known[number]) continue;
    known[number] = true;
    list.push_back(number);
  }
  for (size_t i = begin; i < list.size(); ++i) known[list[i]] = false;
}

size_t numbers_needed(const std::vector<sdk::Module>& modules) {
  uint32_t most = 0;
  for (const sdk::Module& module : modules) {
    for (const uint32_t number : module.own) most = std::max(most, number);
    for (const uint32_t number : module.external) most = std::max(most, number);
  }
  return size_t{most} + 1;
}

/// What `write` adds for each of `numbers`.
template <class Write>
std::vector<pliant_action> answer_of(const std::vector<uint32_t>& numbers, Write&& write) {
  std::vector<pliant_action> made(2 * numbers.size());
  pliant_action_list list{sizeof(pliant_action_list), 0, made.size(), 0, made.data()};
  {
    sdk::Actions to(list);
    for (const uint32_t number : numbers) write(number, to);
  }
  made.resize(static_cast<size_t>(list.count));
  made.shrink_to_fit();
  return made;
}

void check_tree(const std::vector<sdk::Module>& modules) {
  std::vector<bool> has_parent(modules.size());
  for (const sdk::Module& module : modules) {
    for (const uint32_t child : module.children) {
      sdk::require(child != 0, "the root, module 0, is the child of another module");
      sdk::require(!has_parent[child], [&] { return "module " + std::to_string(child) + " has two parents"; });
      has_parent[child] = true;
    }
  }
}

void check_elements(const std::vector<sdk::Parameter>& parameters) {
  uint64_t sum = 0;
  for (const sdk::Parameter& parameter : parameters) {
    sdk::require(parameter.elements < kMostElements && (sum += parameter.elements) < kMostElements,
                 "the parameters of the model have more than 2^48 elements");
  }
}

}  // namespace

Layout::Layout(const sdk::Model& model, bool whole_leaf) : modules_(model.modules), whole_leaf_(whole_leaf) {
  sdk::require(!modules_.empty(), "the model has no module");
  check_tree(modules_);
  check_elements(model.parameters);
  has_leaves_ = std::any_of(modules_.begin(), modules_.end(), [](const sdk::Module& module) { return module.leaf; });
  for (const sdk::Parameter& parameter : model.parameters) elements_.push_back(parameter.elements);
  find_used();
}

void Layout::set_parameters(uint32_t module, std::span<const uint32_t> own, std::span<const uint32_t> external) {
  modules_[module].own.assign(own.begin(), own.end());
  modules_[module].external.assign(external.begin(), external.end());
  ++version_;
  find_used();
}

std::vector<uint32_t> Layout::subtree(uint32_t module) const {
  std::vector<uint32_t> found;
  std::vector<uint32_t> open{module};
  while (!open.empty() && found.size() < modules_.size()) {
    const uint32_t next = open.back();
    open.pop_back();
    found.push_back(next);
    const std::vector<uint32_t>& children = modules_[next].children;
    open.insert(open.end(), children.rbegin(), children.rend());
  }
  return found;
}

std::vector<uint32_t> Layout::listed(uint32_t module, bool deep) const {
  std::vector<uint32_t> list;
  std::vector<bool> known(numbers_needed(modules_));
  if (!deep) {
    add_new(list, 0, modules_[module].own, known);
  } else {
    for (const uint32_t one : subtree(module)) add_new(list, 0, modules_[one].own, known);
  }
  add_new(list, list.size(), modules_[module].external, known);
  return list;
}

void Layout::find_used() {
  uses_.clear();
  for (uint32_t module = 0; module < modules_.size(); ++module) {
    std::vector<uint32_t> list = listed(module, modules_[module].leaf);
    if (whole_leaf_ && modules_[module].leaf) {
      for (const uint32_t one : subtree(module)) {
        list.insert(list.end(), modules_[one].external.begin(), modules_[one].external.end());
      }
    }
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    uses_.push_back(use_of(std::move(list)));
  }
}

ModuleUse Layout::use_of(std::vector<uint32_t> numbers) const {
  ModuleUse made;
  for (const uint32_t number : numbers) {
    if (made.slices.empty() || made.slices.back().word != number / 64) made.slices.push_back({number / 64, 0});
    made.slices.back().bits |= uint64_t{1} << number % 64;
    made.elements_of_last = elements_[number];
    made.elements += elements_[number];
    made.has_empty = made.has_empty || elements_[number] == 0;
  }
  made.numbers = std::move(numbers);
  made.gathers =
      answer_of(made.numbers, [](uint32_t number, sdk::Actions& to) { to.gather(number, kFirstGroup, true); });
  made.waits = answer_of(made.numbers, [](uint32_t number, sdk::Actions& to) {
    to.bound_waits(kUnfinishedWaits);
    to.wait(number);
  });
  made.releases = answer_of(made.numbers, [](uint32_t number, sdk::Actions& to) { to.release(number); });
  return made;
}

std::vector<uint32_t> Layout::listers() const {
  std::vector<uint32_t> found(elements_.size(), kSeveral);
  std::vector<bool> known(elements_.size());
  for (uint32_t module = 0; module < uses_.size(); ++module) {
    for (const uint32_t number : uses_[module].numbers) {
      found[number] = known[number] ? kSeveral : module;
      known[number] = true;
    }
  }
  return found;
}

std::vector<uint32_t> Layout::persistent(const PersistenceRule& rule,
                                         const std::vector<sdk::Parameter>& parameters) const {
  std::vector<uint32_t> taken;
  int64_t sum = 0;
  std::vector<bool> known(parameters.size());
  for (const uint32_t module : subtree(0)) {
    for (const uint32_t number : modules_[module].own) {
      const auto elements = static_cast<int64_t>(parameters[number].elements);
      if (known[number] || elements > rule.model - sum || elements > rule.parameter) continue;
      known[number] = true;
      sum += elements;
      taken.push_back(number);
    }
  }
  return taken;
}

}  // namespace pliant::coordinator::zero3
