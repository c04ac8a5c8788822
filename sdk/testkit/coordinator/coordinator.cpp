// Calls the slots of a coordinator and looks at what they did to the list.
#include "testkit/coordinator/coordinator.hpp"
#include "pliant/sdk/kinds.hpp"

#include <cstring>

namespace pliant::testkit {

namespace {

constexpr uint64_t kGuards = 64;
constexpr pliant_action kUntouched{0xA5A5A5A5, 0xA5A5A5A5, 0xA5A5A5A5, 0xA5A5A5A5, 0xA5A5A5A5A5A5A5A5};

bool is_untouched(const pliant_action& action) {
  return std::memcmp(&action, &kUntouched, sizeof(action)) == 0;
}

/// A row with what a later header might have behind it.
template <class Row>
struct LaterRow {
  Row row;
  uint64_t later = UINT64_MAX;
};

/// The tables of a model as the ABI has them.
class Tables {
 public:
  explicit Tables(const sdk::Model& model) {
    for (const sdk::Parameter& one : model.parameters) {
      const uint32_t flags = (one.frozen ? uint32_t{PLIANT_PARAMETER_FROZEN} : 0) |
                             (one.persistent ? uint32_t{PLIANT_PARAMETER_PERSISTENT} : 0) |
                             (one.external ? uint32_t{PLIANT_PARAMETER_EXTERNAL} : 0);
      parameters_.push_back(
          {{one.elements, one.bytes, flags, one.dtype, one.gradient_bytes, one.received_bytes, one.name.c_str()}});
    }
    numbers_.reserve(3 * model.modules.size());
    const auto kept = [this](const std::vector<uint32_t>& numbers) { return numbers_.emplace_back(numbers).data(); };
    for (const sdk::Module& one : model.modules) {
      modules_.push_back({{one.leaf ? uint32_t{PLIANT_MODULE_LEAF} : 0, static_cast<uint32_t>(one.own.size()),
                           static_cast<uint32_t>(one.external.size()), static_cast<uint32_t>(one.children.size()),
                           kept(one.own), kept(one.external), kept(one.children), one.name.c_str()}});
    }
    view_ = {sizeof(pliant_model),
             0,
             parameters_.size(),
             sizeof(parameters_[0]),
             parameters_.empty() ? nullptr : &parameters_[0].row,
             modules_.size(),
             sizeof(modules_[0]),
             modules_.empty() ? nullptr : &modules_[0].row,
             model.budget,
             model.world_size,
             0,
             model.reduce_flags};
  }
  Tables(const Tables&) = delete;
  Tables& operator=(const Tables&) = delete;
  /// What a coordinator that kept a pointer would read now is no model.
  ~Tables() {
    for (auto& numbers : numbers_) std::fill(numbers.begin(), numbers.end(), UINT32_MAX);
    std::fill(parameters_.begin(), parameters_.end(), LaterRow<pliant_parameter_row>{{1, 1, 7, 0, 1, 1, nullptr}});
    std::fill(modules_.begin(), modules_.end(), LaterRow<pliant_module_row>{{}});
  }
  [[nodiscard]] const pliant_model* view() const { return &view_; }

 private:
  std::vector<LaterRow<pliant_parameter_row>> parameters_;
  std::vector<LaterRow<pliant_module_row>> modules_;
  std::vector<std::vector<uint32_t>> numbers_;
  pliant_model view_{};
};

}  // namespace

Coordinator::Coordinator(const Subject& subject)
    : plugin_(subject.file), options_(plugin_, subject.settings), instance_(plugin_, options_) {
  expect(instance_.status() == PLIANT_OK, "create returned " + instance_.text());
  table_ = sdk::widened<pliant_coordinator>(plugin_.record().vtable);
}

template <class Call>
ListAnswer Coordinator::asked(const Call& call) const {
  ListAnswer made;
  pliant_error error = blank_error();
  made.status = call(&error);
  made.message = error.message;
  if (!made.ok() && made.message.empty()) {
    fail("a call returned status " + std::to_string(made.status) + " without a message");
  }
  return made;
}

template <class Call>
ListAnswer Coordinator::listed(const Call& call) const {
  const uint64_t capacity = room_ == kFull ? 8 * parameters_ + 64 : room_;
  Actions room(capacity + kGuards, kUntouched);
  pliant_action_list list{sizeof(pliant_action_list), 0, capacity, 0, room.data()};
  ListAnswer made = asked([&](pliant_error* error) { return call(&list, error); });
  if (list.capacity != capacity || list.actions != room.data() || list.struct_size != sizeof(list)) {
    made.spilled = "it changed struct_size, capacity or actions of the list, which are the host's";
  } else if (list.count > capacity) {
    made.spilled = "it reports " + std::to_string(list.count) + " actions in a list for " + std::to_string(capacity);
  } else if (!std::all_of(room.begin() + static_cast<std::ptrdiff_t>(capacity), room.end(), is_untouched)) {
    made.spilled = "it wrote past the " + std::to_string(capacity) + " actions of the list";
  } else {
    made.actions.assign(room.begin(), room.begin() + static_cast<std::ptrdiff_t>(list.count));
  }
  return made;
}

template <class Slot>
ListAnswer Coordinator::visited(Slot slot, const sdk::Visit& visit) const {
  std::vector<uint32_t> complete(visit.complete.begin(), visit.complete.end());
  const pliant_visit given{sizeof(pliant_visit),
                           visit.module,
                           visit.backward ? uint32_t{PLIANT_BACKWARD} : uint32_t{PLIANT_FORWARD},
                           visit.recompute ? uint32_t{PLIANT_VISIT_RECOMPUTE} : 0,
                           complete.data(),
                           complete.size()};
  return listed(
      [&](pliant_action_list* list, pliant_error* error) { return slot(instance_.self(), &given, list, error); });
}

ListAnswer Coordinator::set_model(const sdk::Model& model) {
  parameters_ = model.parameters.size();
  const Tables tables(model);
  return asked([&](pliant_error* error) { return table_.set_model(self(), tables.view(), error); });
}

ListAnswer Coordinator::set_module_parameters(uint32_t module, std::span<const uint32_t> own,
                                              std::span<const uint32_t> external) {
  return asked([&](pliant_error* error) {
    return table_.set_module_parameters(self(), module, own.data(), static_cast<uint32_t>(own.size()), external.data(),
                                        static_cast<uint32_t>(external.size()), error);
  });
}

ListAnswer Coordinator::begin_pass(bool with_gradient) {
  return listed([&](pliant_action_list* list, pliant_error* error) {
    return table_.begin_pass(self(), with_gradient ? 0 : uint32_t{PLIANT_PASS_NO_GRADIENT}, list, error);
  });
}

ListAnswer Coordinator::enter(const sdk::Visit& visit) {
  return visited(table_.enter, visit);
}

ListAnswer Coordinator::leave(const sdk::Visit& visit) {
  return visited(table_.leave, visit);
}

ListAnswer Coordinator::end_pass() {
  return listed([&](pliant_action_list* list, pliant_error* error) { return table_.end_pass(self(), list, error); });
}

ListAnswer Coordinator::end_step() {
  return listed([&](pliant_action_list* list, pliant_error* error) { return table_.end_step(self(), list, error); });
}

ListAnswer Coordinator::drop_trace() {
  return listed([&](pliant_action_list* list, pliant_error* error) { return table_.drop_trace(self(), list, error); });
}

ListAnswer Coordinator::set_costs(const std::vector<uint64_t>& nanoseconds) {
  return asked(
      [&](pliant_error* error) { return table_.set_costs(self(), nanoseconds.data(), nanoseconds.size(), error); });
}

ListAnswer Coordinator::save(std::string& bytes) const {
  SavedState state;
  ListAnswer made = asked([&](pliant_error* error) { return state.save_from(instance_, *error); });
  bytes += state.bytes;
  return made;
}

ListAnswer Coordinator::load(const std::string& bytes) {
  SavedState state;
  state.bytes = bytes;
  return asked([&](pliant_error* error) { return state.load_into(instance_, *error); });
}

const pliant_coordinator_counters* Coordinator::counters() const {
  if (plugin_.record().extension == nullptr) return nullptr;
  const void* const table = plugin_.record().extension(self(), PLIANT_COORDINATOR_COUNTERS);
  if (table == nullptr) return nullptr;
  const std::string lacks =
      sdk::missing_slots(table, "table of " PLIANT_COORDINATOR_COUNTERS, PLIANT_COORDINATOR_COUNTERS,
                         sdk::extension_of(*sdk::kind_of("coordinator"), PLIANT_COORDINATOR_COUNTERS)->slots);
  expect(lacks.empty(), lacks);
  return static_cast<const pliant_coordinator_counters*>(table);
}

}  // namespace pliant::testkit
