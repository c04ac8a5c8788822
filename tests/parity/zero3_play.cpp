// Which slot stands for which operation: `reset` is begin_pass for head, which resets when a forward begins, and
// end_pass for seed, which resets when a pass ends. leftovers_head is end_pass, release_all end_step, invalidate_head
// drop_trace.
#include "parity/zero3_play.hpp"

#include <algorithm>
#include <string>

#include "parity/status_classes.hpp"

namespace pliant::parity {

Zero3Model::Zero3Model(const Json& row) {
  for (const Json& parameter : row.at("params")) parameters_by_id_[parameter.at("id").get<int64_t>()] = 0;
  for (auto& [id, number] : parameters_by_id_) {
    number = static_cast<uint32_t>(ids_.size());
    ids_.push_back(id);
  }
  parameter_rows_.resize(ids_.size());
  for (const Json& parameter : row.at("params")) {
    pliant_parameter_row& made = parameter_rows_[parameters_by_id_.at(parameter.at("id").get<int64_t>())];
    made.elements = parameter.at("numel").get<uint64_t>();
    made.bytes = 4 * made.elements;
    made.dtype = PLIANT_F32;
    if (parameter.value("persist", false)) made.flags |= PLIANT_PARAMETER_PERSISTENT;
    if (parameter.value("external", false)) made.flags |= PLIANT_PARAMETER_EXTERNAL;
    if (parameter.value("frozen", false)) made.flags |= PLIANT_PARAMETER_FROZEN;
  }
  const auto root = row.at("root").get<int64_t>();
  modules_by_id_[root] = 0;
  for (const Json& module : row.at("modules")) {
    const auto next = static_cast<uint32_t>(modules_by_id_.size());
    modules_by_id_.emplace(module.at("id").get<int64_t>(), next);
  }
  module_rows_.resize(modules_by_id_.size());
  lists_.reserve(3 * module_rows_.size());
  for (const Json& module : row.at("modules")) {
    pliant_module_row& made = module_rows_[modules_by_id_.at(module.at("id").get<int64_t>())];
    const auto keep = [&](std::vector<uint32_t> numbers, uint32_t& count) {
      count = static_cast<uint32_t>(numbers.size());
      return lists_.emplace_back(std::move(numbers)).data();
    };
    made.own = keep(parameters(module.at("params")), made.own_count);
    made.external = keep(parameters(module.value("external", Json::array())), made.external_count);
    std::vector<uint32_t> children;
    for (const Json& child : module.value("children", Json::array())) {
      children.push_back(modules_by_id_.at(child.get<int64_t>()));
    }
    made.children = keep(std::move(children), made.child_count);
    if (module.value("leaf", false)) made.flags |= PLIANT_MODULE_LEAF;
  }
}

std::vector<uint32_t> Zero3Model::parameters(const Json& ids) const {
  std::vector<uint32_t> numbers;
  for (const Json& id : ids) numbers.push_back(parameters_by_id_.at(id.get<int64_t>()));
  return numbers;
}

pliant_model Zero3Model::view() const {
  pliant_model made{};
  made.struct_size = sizeof(made);
  made.parameter_count = parameter_rows_.size();
  made.parameter_stride = sizeof(pliant_parameter_row);
  made.parameters = parameter_rows_.data();
  made.module_count = module_rows_.size();
  made.module_stride = sizeof(pliant_module_row);
  made.modules = module_rows_.data();
  made.world_size = 2;
  return made;
}

Zero3Player::Zero3Player(const plugin::Instance& coordinator, const Json& row, Version version)
    : coordinator_(coordinator),
      slots_(coordinator.table<pliant_coordinator>()),
      model_(row),
      version_(version),
      events_finish_(row.at("config").at("event_query").get<bool>()),
      actions_(8 * model_.parameter_count() + 64) {
  list_.struct_size = sizeof(list_);
  list_.capacity = actions_.size();
  list_.actions = actions_.data();
  const pliant_model model = model_.view();
  pliant_error error = plugin::fresh_error();
  const int32_t status = slots_.set_model(coordinator.self(), &model, &error);
  if (status != PLIANT_OK) throw plugin::to_error(coordinator.plugin(), status, error);
}

int32_t Zero3Player::call(const Json& operation, pliant_error& error) {
  void* const self = coordinator_.self();
  const auto name = operation.at(0).get<std::string>();
  if (name == "reset_head" || (name == "reset" && version_ == Version::kHead)) {
    return slots_.begin_pass(self, 0, &list_, &error);
  }
  if (name == "reset" || name == "leftovers_head") return slots_.end_pass(self, &list_, &error);
  if (name == "release_all") return slots_.end_step(self, &list_, &error);
  if (name == "invalidate_head") return slots_.drop_trace(self, &list_, &error);
  const uint32_t module = model_.module(operation.at(1).get<int64_t>());
  if (name == "setparams") {
    const std::vector<uint32_t> own = model_.parameters(operation.at(2));
    const std::vector<uint32_t> external = model_.parameters(operation.at(3));
    return slots_.set_module_parameters(self, module, own.data(), static_cast<uint32_t>(own.size()), external.data(),
                                        static_cast<uint32_t>(external.size()), &error);
  }
  pliant_visit visit{};
  visit.struct_size = sizeof(visit);
  visit.module = module;
  visit.direction = operation.at(2).get<int>() != 0 ? PLIANT_FORWARD : PLIANT_BACKWARD;
  if (operation.size() > 3 && operation.at(3).get<int>() != 0) visit.flags = PLIANT_VISIT_RECOMPUTE;
  if (name == "pre") return slots_.enter(self, &visit, &list_, &error);
  if (name == "post") return slots_.leave(self, &visit, &list_, &error);
  throw Error(Status::kInvalidArgument, "no operation is called '" + name + "'");
}

Json Zero3Player::events(bool of_visit) {
  Json made = Json::array();
  uint32_t open_group = 0;
  uint64_t waited_by_hand = 0;
  bool bounded = false;
  const auto add = [&](const char* kind, uint32_t parameter, bool goes_on) {
    if (!goes_on || made.empty() || made.back().at(0) != kind) made.push_back({kind, std::vector<int64_t>{}});
    made.back().at(1).push_back(model_.id(parameter));
  };
  for (uint64_t i = 0; i < list_.count; ++i) {
    const pliant_action& action = actions_[i];
    switch (action.kind) {
      case PLIANT_ACTION_GATHER:
        add((action.flags & PLIANT_ACTION_PREFETCH) != 0 ? "prefetch" : "fetch", action.parameter,
            action.group == open_group);
        open_group = action.group;
        on_their_way_.insert(model_.id(action.parameter));
        break;
      case PLIANT_ACTION_BOUND_WAITS:
        if (events_finish_) unfinished_ = 0;
        for (; unfinished_ > action.place; --unfinished_) ++waited_by_hand;
        bounded = true;
        break;
      case PLIANT_ACTION_WAIT:
        add("w", action.parameter, true);
        on_their_way_.erase(model_.id(action.parameter));
        if (of_visit && bounded) ++unfinished_;  // those of a clean-up record no event
        bounded = false;
        break;
      case PLIANT_ACTION_RELEASE:
        add("rel", action.parameter, true);
        break;
      case PLIANT_ACTION_DROP_TRACE:
        made.push_back(Json::array({"inval"}));
        break;
      default:
        throw Error(Status::kInternal, "an action of kind " + std::to_string(action.kind) + " stands for no event");
    }
  }
  for (Json& event : made) {
    if (event.size() > 1) std::sort(event.at(1).begin(), event.at(1).end());
  }
  if (waited_by_hand > 0) made.push_back({"esync", waited_by_hand});
  return made;
}

void Zero3Player::read_counts(Json& entry) const {
  const auto* counters = or_throw(coordinator_.extension<pliant_coordinator_counters>(PLIANT_COORDINATOR_COUNTERS));
  if (counters == nullptr) throw Error(Status::kUnimplemented, "the coordinator counts nothing");
  pliant_coordinator_counts counts{};
  counts.struct_size = sizeof(counts);
  pliant_error error = plugin::fresh_error();
  const int32_t status = counters->read(coordinator_.self(), &counts, &error);
  if (status != PLIANT_OK) throw plugin::to_error(coordinator_.plugin(), status, error);
  static const std::map<int32_t, const char*> kNames{{PLIANT_TRACE_NONE, "N"},
                                                     {PLIANT_TRACE_RECORDING, "R"},
                                                     {PLIANT_TRACE_COMPLETE, "C"},
                                                     {PLIANT_TRACE_INVALID, "I"}};
  entry["avail"] = counts.whole;
  entry["st"] = kNames.at(counts.trace);
  entry["k"] = counts.visits;
  entry["q"] = counts.ahead == UINT64_MAX ? Json() : Json(counts.ahead);
}

Json Zero3Player::play(const Json& operation) {
  list_.count = 0;
  pliant_error error = plugin::fresh_error();
  const int32_t status = call(operation, error);
  Json entry = Json::object();
  const Json happened = events(operation.at(0) == "pre");
  if (!happened.empty()) entry["ev"] = happened;
  read_counts(entry);
  if (!on_their_way_.empty()) entry["fl"] = std::vector<int64_t>(on_their_way_.begin(), on_their_way_.end());
  if (status != PLIANT_OK) {
    const Error refusal = plugin::to_error(coordinator_.plugin(), status, error);
    entry["error"] = {{"status", std::string(name_of(refusal.status()))}, {"message", refusal.message()}};
  }
  return entry;
}

}  // namespace pliant::parity
