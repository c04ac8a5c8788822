// The host's books beside the coordinator's.
#include "program.hpp"

#include <algorithm>

#include "parity/parity.hpp"
#include "pliant/error.hpp"

namespace pliant::test {
namespace {

plugin::Instance open_coordinator(const std::string& name, const nlohmann::json& options) {
  static parity::Plugins plugins(PLIANT_PLUGIN_DIR);
  Result<plugin::Instance> made = plugins.make("coordinator", name, options);
  if (!made) throw made.error();
  return std::move(*made);
}

std::vector<uint32_t> all_used(const sdk::Model& model, uint32_t module) {
  const sdk::Module& one = model.modules[module];
  std::vector<uint32_t> used = one.own;
  used.insert(used.end(), one.external.begin(), one.external.end());
  if (one.leaf) {
    for (const uint32_t child : one.children) {
      sdk::Model below = model;
      below.modules[child].leaf = true;
      const std::vector<uint32_t> more = all_used(below, child);
      used.insert(used.end(), more.begin(), more.end());
    }
  }
  return used;
}

}  // namespace

bool has(const Words& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

Program::Program(const std::string& name, const nlohmann::json& options, sdk::Model model)
    : coordinator_(open_coordinator(name, options)),
      model_(std::move(model)),
      state_(model_.parameters.size()),
      depth_(model_.modules.size()),
      actions_(8 * model_.parameters.size() + 64) {
  std::vector<pliant_parameter_row> parameters;
  for (const sdk::Parameter& one : model_.parameters) {
    uint32_t flags = one.frozen ? uint32_t{PLIANT_PARAMETER_FROZEN} : 0;
    if (one.persistent) flags |= PLIANT_PARAMETER_PERSISTENT;
    if (one.external) flags |= PLIANT_PARAMETER_EXTERNAL;
    parameters.push_back(
        {one.elements, one.bytes, flags, PLIANT_F32, one.gradient_bytes, one.received_bytes, one.name.c_str()});
  }
  std::vector<pliant_module_row> modules;
  for (const sdk::Module& one : model_.modules) {
    modules.push_back({one.leaf ? uint32_t{PLIANT_MODULE_LEAF} : 0, static_cast<uint32_t>(one.own.size()),
                       static_cast<uint32_t>(one.external.size()), static_cast<uint32_t>(one.children.size()),
                       one.own.data(), one.external.data(), one.children.data(), one.name.c_str()});
  }
  pliant_model given{};
  given.struct_size = sizeof(given);
  given.parameter_count = parameters.size();
  given.parameter_stride = sizeof(pliant_parameter_row);
  given.parameters = parameters.data();
  given.module_count = modules.size();
  given.module_stride = sizeof(pliant_module_row);
  given.modules = modules.data();
  given.world_size = model_.world_size;
  given.tiers = model_.tiers;
  given.reduce_flags = model_.reduce_flags;
  expect(coordinator_.table<pliant_coordinator>().set_model(coordinator_.self(), &given, &error_));
}

void Program::expect(int32_t status) const {
  if (status != PLIANT_OK) throw plugin::to_error(coordinator_.plugin(), status, error_);
}

pliant_action_list* Program::list() {
  list_.struct_size = sizeof(list_);
  list_.capacity = actions_.size();
  list_.count = 0;
  list_.actions = actions_.data();
  return &list_;
}

Words Program::begin_pass(bool with_gradient) {
  const uint32_t flags = with_gradient ? 0 : uint32_t{PLIANT_PASS_NO_GRADIENT};
  expect(coordinator_.table<pliant_coordinator>().begin_pass(coordinator_.self(), flags, list(), &error_));
  return carry_out();
}

namespace {

pliant_visit visit_of(uint32_t module, bool backward, bool recompute, const std::vector<uint32_t>& complete) {
  return {sizeof(pliant_visit),
          module,
          backward ? uint32_t{PLIANT_BACKWARD} : uint32_t{PLIANT_FORWARD},
          recompute ? uint32_t{PLIANT_VISIT_RECOMPUTE} : 0,
          complete.data(),
          complete.size()};
}

}  // namespace

Words Program::enter(uint32_t module, bool backward, bool recompute) {
  const pliant_visit visit = visit_of(module, backward, recompute, {});
  expect(coordinator_.table<pliant_coordinator>().enter(coordinator_.self(), &visit, list(), &error_));
  ++depth_[module];
  Words words = carry_out();
  for (const uint32_t parameter : all_used(model_, module)) {
    if (state_[parameter] != State::kWaitedFor) broken("is used without a wait", parameter);
  }
  return words;
}

Words Program::leave(uint32_t module, bool backward, bool recompute, const std::vector<uint32_t>& complete) {
  const pliant_visit visit = visit_of(module, backward, recompute, complete);
  expect(coordinator_.table<pliant_coordinator>().leave(coordinator_.self(), &visit, list(), &error_));
  --depth_[module];
  return carry_out();
}

Words Program::end_pass() {
  expect(coordinator_.table<pliant_coordinator>().end_pass(coordinator_.self(), list(), &error_));
  std::fill(depth_.begin(), depth_.end(), 0U);
  return carry_out();
}

Words Program::end_step() {
  std::fill(depth_.begin(), depth_.end(), 0U);
  expect(coordinator_.table<pliant_coordinator>().end_step(coordinator_.self(), list(), &error_));
  Words words = carry_out();
  for (uint32_t parameter = 0; parameter < state_.size(); ++parameter) {
    if (whole(parameter)) broken("is whole after the step", parameter);
  }
  return words;
}

Words Program::drop_trace() {
  expect(coordinator_.table<pliant_coordinator>().drop_trace(coordinator_.self(), list(), &error_));
  return carry_out();
}

void Program::set_parameters(uint32_t module, const std::vector<uint32_t>& own, const std::vector<uint32_t>& external) {
  expect(coordinator_.table<pliant_coordinator>().set_module_parameters(
      coordinator_.self(), module, own.data(), static_cast<uint32_t>(own.size()), external.data(),
      static_cast<uint32_t>(external.size()), &error_));
  model_.modules[module].own = own;
  model_.modules[module].external = external;
}

void Program::pass(const std::vector<uint32_t>& layers, bool with_backward) {
  begin_pass(with_backward);
  enter(0);
  for (const uint32_t layer : layers) {
    enter(layer);
    leave(layer);
  }
  leave(0);
  if (with_backward) {
    enter(0, true);
    for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
      enter(*layer, true);
      leave(*layer, true);
    }
    leave(0, true);
  }
  end_pass();
}

pliant_coordinator_counts Program::counts() const {
  const auto* counters = or_throw(coordinator_.extension<pliant_coordinator_counters>(PLIANT_COORDINATOR_COUNTERS));
  pliant_coordinator_counts made{};
  made.struct_size = sizeof(made);
  expect(counters->read(coordinator_.self(), &made, &error_));
  return made;
}

uint64_t Program::live() const {
  uint64_t elements = 0;
  for (uint32_t parameter = 0; parameter < state_.size(); ++parameter) {
    if (whole(parameter)) elements += model_.parameters[parameter].elements;
  }
  return elements;
}

uint64_t Program::bound() const {
  uint64_t elements = 0;
  for (uint32_t parameter = 0; parameter < state_.size(); ++parameter) {
    const sdk::Parameter& one = model_.parameters[parameter];
    if (whole(parameter) && (one.persistent || one.external || entered_uses(parameter))) elements += one.elements;
  }
  return elements;
}

bool Program::entered_uses(uint32_t parameter) const {
  for (uint32_t module = 0; module < depth_.size(); ++module) {
    if (depth_[module] == 0) continue;
    const std::vector<uint32_t> used = all_used(model_, module);
    if (std::find(used.begin(), used.end(), parameter) != used.end()) return true;
  }
  return false;
}

void Program::broken(const std::string& what, uint32_t parameter) {
  broken_.push_back("parameter " + std::to_string(parameter) + " " + what);
}

Words Program::carry_out() {
  Words words;
  groups_.clear();
  for (uint64_t i = 0; i < list_.count; ++i) carry_out(actions_[i], words);
  return words;
}

void Program::carry_out(const pliant_action& action, Words& words) {
  const uint32_t parameter = action.parameter;
  const auto say = [&](const char* word) { words.push_back(word + (" " + std::to_string(parameter))); };
  switch (action.kind) {
    case PLIANT_ACTION_GATHER:
      if (whole(parameter)) broken("is gathered twice", parameter);
      state_[parameter] = State::kOnItsWay;
      say((action.flags & PLIANT_ACTION_PREFETCH) != 0 ? "prefetch" : "gather");
      groups_.resize(std::max<size_t>(groups_.size(), action.group));
      groups_[action.group - 1].push_back(parameter);
      return;
    case PLIANT_ACTION_WAIT:
      if (!whole(parameter)) broken("is waited for and not on its way", parameter);
      state_[parameter] = State::kWaitedFor;
      return say("wait");
    case PLIANT_ACTION_RELEASE:
      if (state_[parameter] != State::kWaitedFor) broken("is released before a wait", parameter);
      if (entered_uses(parameter)) broken("is released while a module uses it", parameter);
      state_[parameter] = State::kGone;
      return say("release");
    case PLIANT_ACTION_REDUCE:
      groups_.resize(std::max<size_t>(groups_.size(), action.group));
      groups_[action.group - 1].push_back(parameter);
      return say("reduce");
    case PLIANT_ACTION_LOAD:
      return say("load");
    case PLIANT_ACTION_DROP_TRACE:
      words.emplace_back("drop");
      return;
    default:
      return;
  }
}

sdk::Model layered(const std::vector<std::vector<uint64_t>>& layers) {
  sdk::Model made;
  made.world_size = 2;
  made.modules.resize(layers.size() + 1);
  for (size_t i = 0; i < layers.size(); ++i) {
    made.modules[0].children.push_back(static_cast<uint32_t>(i + 1));
    for (const uint64_t elements : layers[i]) {
      made.modules[i + 1].own.push_back(static_cast<uint32_t>(made.parameters.size()));
      sdk::Parameter parameter;
      parameter.elements = elements;
      parameter.bytes = 4 * elements;
      made.parameters.push_back(parameter);
    }
  }
  return made;
}

nlohmann::json zero3_options(bool strict, const std::string& version) {
  return {{"prefetch_bucket_size", 0},
          {"max_reuse_distance", 0},
          {"param_persistence_threshold", -1},
          {"version", version},
          {"strict", strict}};
}

}  // namespace pliant::test
