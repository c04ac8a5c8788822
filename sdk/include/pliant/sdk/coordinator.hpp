// Write a coordinator as a class with set_model, begin_pass, enter, leave, end_pass and end_step, then
// PLIANT_COORDINATOR. What each is told and may do: pliant/abi/coordinator.h.
//
//   struct Mine {
//     void set_model(const pliant::sdk::Model& model);
//     void begin_pass(bool with_gradient, pliant::sdk::Actions& actions);
//     void enter(const pliant::sdk::Visit& visit, pliant::sdk::Actions& actions);
//     void leave(const pliant::sdk::Visit& visit, pliant::sdk::Actions& actions);
//     void end_pass(pliant::sdk::Actions& actions);
//     void end_step(pliant::sdk::Actions& actions);
//   };
// It may also have set_module_parameters(module, own, external), set_costs(nanoseconds), drop_trace(actions), counts(),
// and save(out) with load(in) for what it learns of a model.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pliant/abi/coordinator.h"
#include "pliant/sdk/plugin.hpp"

namespace pliant::sdk {

struct Parameter {
  uint64_t elements = 0;
  uint64_t bytes = 0;  ///< that it takes once it is whole
  bool frozen = false;
  bool persistent = false;
  bool external = false;
  uint32_t dtype = 0;           ///< PLIANT_F32, ...
  uint64_t gradient_bytes = 0;  ///< in the arena, from its first use in backward until it is reduced
  uint64_t received_bytes = 0;  ///< and what arrives for it, while it is reduced
  std::string name{};           ///< empty: not known
};

struct Module {
  std::vector<uint32_t> own;       ///< numbers of parameters
  std::vector<uint32_t> external;  ///< of other modules, used by this one too
  std::vector<uint32_t> children;  ///< numbers of modules
  bool leaf = false;               ///< gathered as one with all below it
  std::string name{};              ///< empty: not known
};

/// Module 0 is the root. All numbers are in range: the adapter has looked.
struct Model {
  std::vector<Parameter> parameters;
  std::vector<Module> modules;
  uint64_t budget = 0;  ///< bytes that whole parameters may take at once; 0: no limit
  int32_t world_size = 1;
  uint32_t tiers = 0;         ///< that load and store may name; 0: neither is carried out
  uint64_t reduce_flags = 0;  ///< that reduces may have

  /// For messages: its name, "parameter 3" where there is none.
  [[nodiscard]] std::string name_of_parameter(uint32_t number) const {
    const bool has_name = number < parameters.size() && !parameters[number].name.empty();
    return has_name ? parameters[number].name : "parameter " + std::to_string(number);
  }
  [[nodiscard]] std::string name_of_module(uint32_t number) const {
    const bool has_name = number < modules.size() && !modules[number].name.empty();
    return has_name ? modules[number].name : "module " + std::to_string(number);
  }

  /// The parameters that must be whole while `module` is entered, ascending, each once: its own and external ones; of a
  /// leaf those of all modules below it, too.
  [[nodiscard]] std::vector<uint32_t> used_by(uint32_t module) const {
    std::vector<uint32_t> below{module};
    std::vector<uint32_t> used;
    for (size_t i = 0; i < below.size() && below.size() <= modules.size(); ++i) {  // a table with a ring ends, too
      const Module& one = modules[below[i]];
      used.insert(used.end(), one.own.begin(), one.own.end());
      used.insert(used.end(), one.external.begin(), one.external.end());
      if (modules[module].leaf) below.insert(below.end(), one.children.begin(), one.children.end());
    }
    std::sort(used.begin(), used.end());
    used.erase(std::unique(used.begin(), used.end()), used.end());
    return used;
  }
};

struct Visit {
  uint32_t module = 0;
  bool backward = false;
  bool recompute = false;              ///< forward once more, from inside backward
  std::span<const uint32_t> complete;  ///< at leave: all whose gradient is complete and not reduced; valid in the call
};

namespace detail {

inline pliant_action gather_action(uint32_t parameter, uint32_t group, bool prefetch, uint64_t place) {
  return {PLIANT_ACTION_GATHER, parameter, group, prefetch ? uint32_t{PLIANT_ACTION_PREFETCH} : 0, place};
}
inline pliant_action plain_action(uint32_t kind, uint32_t parameter, uint64_t place = PLIANT_ANY_PLACE) {
  return {kind, parameter, 0, 0, place};
}

}  // namespace detail

/// Where a coordinator writes its answer. Throws Failure when the host's room is full.
class Actions {
 public:
  explicit Actions(pliant_action_list& list)
      : list_(list), next_(list.actions + list.count), end_(list.actions + list.capacity) {}
  ~Actions() { list_.count = static_cast<uint64_t>(next_ - list_.actions); }
  Actions(const Actions&) = delete;
  Actions& operator=(const Actions&) = delete;

  /// A new number for a collective.
  [[nodiscard]] uint32_t new_group() { return ++group_; }
  void gather(uint32_t parameter, uint32_t group, bool prefetch = false, uint64_t place = PLIANT_ANY_PLACE) {
    add(detail::gather_action(parameter, group, prefetch, place));
  }
  void wait(uint32_t parameter) { add(detail::plain_action(PLIANT_ACTION_WAIT, parameter)); }
  void release(uint32_t parameter) { add(detail::plain_action(PLIANT_ACTION_RELEASE, parameter)); }
  /// `lingers`: PLIANT_ACTION_LINGER.
  void reduce(uint32_t parameter, uint32_t group, bool lingers = false) {
    add({PLIANT_ACTION_REDUCE, parameter, group, lingers ? uint32_t{PLIANT_ACTION_LINGER} : 0, PLIANT_ANY_PLACE});
  }
  void load(uint32_t parameter, uint64_t tier) { add(detail::plain_action(PLIANT_ACTION_LOAD, parameter, tier)); }
  void store(uint32_t parameter, uint64_t tier) { add(detail::plain_action(PLIANT_ACTION_STORE, parameter, tier)); }
  void drop_trace() { add(detail::plain_action(PLIANT_ACTION_DROP_TRACE, PLIANT_NO_PARAMETER, 0)); }
  /// At most `unfinished` of the waits of visits before this may be unfinished when the next action is carried out.
  void bound_waits(uint64_t unfinished) {
    add(detail::plain_action(PLIANT_ACTION_BOUND_WAITS, PLIANT_NO_PARAMETER, unfinished));
  }

  /// Actions that an earlier answer had. Inline, as a call takes as long as the copy of a few.
  [[gnu::always_inline]] void append(std::span<const pliant_action> actions) {
    constexpr size_t kFew = 32;  // a call of memmove would take longer
    const pliant_action* from = actions.data();
    const pliant_action* const end = from + actions.size();
    const auto* const first = reinterpret_cast<const std::byte*>(from);
    const auto bytes = static_cast<size_t>(reinterpret_cast<const std::byte*>(end) - first);
    if (room() < bytes) refuse();
    if (bytes > kFew * sizeof(pliant_action)) {
      next_ = std::copy(from, end, next_);
      return;
    }
    pliant_action* to = next_;
    for (; from + 1 < end; from += 2, to += 2) std::memcpy(to, from, 2 * sizeof(pliant_action));
    if (from != end) *to++ = *from;
    next_ = to;
  }
  /// The answer so far.
  [[nodiscard]] std::span<const pliant_action> written() const {
    return {list_.actions, static_cast<size_t>(next_ - list_.actions)};
  }

  /// A run of actions for which there is room, written without looking again: for loops where each nanosecond counts.
  /// While it lives nothing else is added.
  class Burst {
   public:
    explicit Burst(Actions& actions) : actions_(actions), next_(actions.next_) {}
    ~Burst() { actions_.next_ = next_; }
    Burst(const Burst&) = delete;
    Burst& operator=(const Burst&) = delete;
    void gather(uint32_t parameter, uint32_t group, bool prefetch) {
      *next_++ = detail::gather_action(parameter, group, prefetch, PLIANT_ANY_PLACE);
    }
    void wait(uint32_t parameter) { *next_++ = detail::plain_action(PLIANT_ACTION_WAIT, parameter); }
    void release(uint32_t parameter) { *next_++ = detail::plain_action(PLIANT_ACTION_RELEASE, parameter); }
    void bound_waits(uint64_t unfinished) {
      *next_++ = detail::plain_action(PLIANT_ACTION_BOUND_WAITS, PLIANT_NO_PARAMETER, unfinished);
    }

   private:
    Actions& actions_;
    pliant_action* next_;
  };
  /// Room for up to `most` actions; the caller keeps to it.
  [[nodiscard]] Burst burst(size_t most) {
    if (!has_room(most)) refuse();
    return Burst(*this);
  }

 private:
  /// In bytes: a division by the size of an action would take as long as writing one.
  [[nodiscard]] size_t room() const {
    const auto* const from = reinterpret_cast<const std::byte*>(next_);
    return static_cast<size_t>(reinterpret_cast<const std::byte*>(end_) - from);
  }
  [[nodiscard]] bool has_room(size_t actions) const { return room() >= actions * sizeof(pliant_action); }
  void add(const pliant_action& action) {
    if (next_ == end_) refuse();
    *next_++ = action;
  }
  [[noreturn, gnu::noinline, gnu::cold]] void refuse() const {
    throw Failure(PLIANT_RESOURCE_EXHAUSTED,
                  "more than the " + std::to_string(list_.capacity) + " actions that one answer may have");
  }
  pliant_action_list& list_;
  pliant_action* next_;
  pliant_action* end_;
  uint32_t group_ = 0;
};

/// What counts() returns.
using CoordinatorCounts = pliant_coordinator_counts;

namespace detail {

template <class T>
concept HasModuleParameters = requires(T& plugin, std::span<const uint32_t> numbers) {
  plugin.set_module_parameters(uint32_t{}, numbers, numbers);
};
template <class T>
concept HasCosts = requires(T& plugin, std::span<const uint64_t> costs) {
  plugin.set_costs(costs);
};
template <class T>
concept HasDropTrace = requires(T& plugin, Actions& actions) {
  plugin.drop_trace(actions);
};
template <class T>
concept HasCounts = requires(const T& plugin) {
  { plugin.counts() } -> std::convertible_to<CoordinatorCounts>;
};

inline std::vector<uint32_t> numbers_below(const uint32_t* numbers, uint32_t count, uint64_t limit, const char* what) {
  std::vector<uint32_t> made(numbers, numbers + count);
  for (const uint32_t number : made) {
    if (number >= limit) {
      throw Failure(PLIANT_INVALID_ARGUMENT, "the model has no " + std::string(what) + " " + std::to_string(number));
    }
  }
  return made;
}

inline Model model_of(const pliant_model* given) {
  const auto known = taken(given, &pliant_model::tiers, "pliant_model");
  Model made;
  made.budget = known.budget;
  made.world_size = known.world_size;
  made.tiers = known.tiers;
  made.reduce_flags = known.reduce_flags;
  const auto* parameters = reinterpret_cast<const std::byte*>(known.parameters);
  for (uint64_t i = 0; i < known.parameter_count; ++i) {
    pliant_parameter_row row{};
    std::memcpy(&row, parameters + i * known.parameter_stride,
                std::min<size_t>(sizeof(row), static_cast<size_t>(known.parameter_stride)));
    made.parameters.push_back({row.elements, row.bytes, (row.flags & PLIANT_PARAMETER_FROZEN) != 0,
                               (row.flags & PLIANT_PARAMETER_PERSISTENT) != 0,
                               (row.flags & PLIANT_PARAMETER_EXTERNAL) != 0, row.dtype, row.gradient_bytes,
                               row.received_bytes, row.name == nullptr ? "" : row.name});
  }
  const auto* modules = reinterpret_cast<const std::byte*>(known.modules);
  for (uint64_t i = 0; i < known.module_count; ++i) {
    pliant_module_row row{};
    std::memcpy(&row, modules + i * known.module_stride,
                std::min<size_t>(sizeof(row), static_cast<size_t>(known.module_stride)));
    made.modules.push_back({numbers_below(row.own, row.own_count, known.parameter_count, "parameter"),
                            numbers_below(row.external, row.external_count, known.parameter_count, "parameter"),
                            numbers_below(row.children, row.child_count, known.module_count, "module"),
                            (row.flags & PLIANT_MODULE_LEAF) != 0, row.name == nullptr ? "" : row.name});
  }
  return made;
}

template <class T>
struct CoordinatorInstance {
  T plugin;
  uint64_t parameters = 0;
  uint64_t modules = 0;  ///< 0: there is no model yet
};

template <class T>
struct CoordinatorAdapter {
  using Instance = CoordinatorInstance<T>;

  static Instance& at(void* self) noexcept { return *static_cast<Instance*>(self); }

  static int32_t set_model(void* self, const pliant_model* model, pliant_error* error) noexcept {
    return guarded(error, [&] {
      const Model made = model_of(model);
      at(self).plugin.set_model(made);
      at(self).parameters = made.parameters.size();
      at(self).modules = made.modules.size();
    });
  }
  static int32_t set_module_parameters(void* self, uint32_t module, const uint32_t* own, uint32_t own_count,
                                       const uint32_t* external, uint32_t external_count,
                                       pliant_error* error) noexcept {
    return guarded(error, [&] {
      check_module(self, module);
      if constexpr (HasModuleParameters<T>) {
        const auto mine = numbers_below(own, own_count, at(self).parameters, "parameter");
        const auto others = numbers_below(external, external_count, at(self).parameters, "parameter");
        at(self).plugin.set_module_parameters(module, std::span<const uint32_t>(mine),
                                              std::span<const uint32_t>(others));
      } else {
        throw Failure(PLIANT_UNIMPLEMENTED, "this coordinator cannot change the parameters of a module");
      }
    });
  }
  static int32_t begin_pass(void* self, uint32_t flags, pliant_action_list* list, pliant_error* error) noexcept {
    return guarded(error, [&] {
      check_model(self);
      Actions actions(*whole(list, &pliant_action_list::actions, "pliant_action_list"));
      at(self).plugin.begin_pass((flags & PLIANT_PASS_NO_GRADIENT) == 0, actions);
    });
  }
  static int32_t enter(void* self, const pliant_visit* visit, pliant_action_list* list, pliant_error* error) noexcept {
    return guarded(error, [&] {
      const Visit known = visit_of(visit);
      check_module(self, known.module);
      Actions actions(*whole(list, &pliant_action_list::actions, "pliant_action_list"));
      at(self).plugin.enter(known, actions);
    });
  }
  static int32_t leave(void* self, const pliant_visit* visit, pliant_action_list* list, pliant_error* error) noexcept {
    return guarded(error, [&] {
      const Visit known = visit_of(visit);
      check_module(self, known.module);
      Actions actions(*whole(list, &pliant_action_list::actions, "pliant_action_list"));
      at(self).plugin.leave(known, actions);
    });
  }
  static int32_t end_pass(void* self, pliant_action_list* list, pliant_error* error) noexcept {
    return guarded(error, [&] {
      check_model(self);
      Actions actions(*whole(list, &pliant_action_list::actions, "pliant_action_list"));
      at(self).plugin.end_pass(actions);
    });
  }
  static int32_t end_step(void* self, pliant_action_list* list, pliant_error* error) noexcept {
    return guarded(error, [&] {
      check_model(self);
      Actions actions(*whole(list, &pliant_action_list::actions, "pliant_action_list"));
      at(self).plugin.end_step(actions);
    });
  }
  static int32_t set_costs(void* self, const uint64_t* nanoseconds, uint64_t count,
                           pliant_error* error) noexcept requires HasCosts<T> {
    return guarded(error, [&] {
      if (count != at(self).parameters) {
        throw Failure(PLIANT_INVALID_ARGUMENT, std::to_string(count) + " costs for a model of " +
                                                   std::to_string(at(self).parameters) + " parameters");
      }
      at(self).plugin.set_costs(std::span<const uint64_t>(nanoseconds, static_cast<size_t>(count)));
    });
  }
  static int32_t drop_trace(void* self, pliant_action_list* list,
                            pliant_error* error) noexcept requires HasDropTrace<T> {
    return guarded(error, [&] {
      Actions actions(*whole(list, &pliant_action_list::actions, "pliant_action_list"));
      at(self).plugin.drop_trace(actions);
    });
  }
  static int32_t read_counts(void* self, pliant_coordinator_counts* counts, pliant_error* error) noexcept {
    return guarded(error, [&] {
      if constexpr (HasCounts<T>) fill(counts, CoordinatorCounts(at(self).plugin.counts()));
    });
  }

  static const void* vtable() noexcept {
    int32_t (*costs)(void*, const uint64_t*, uint64_t, pliant_error*) = nullptr;
    if constexpr (HasCosts<T>) costs = &set_costs;
    int32_t (*drop)(void*, pliant_action_list*, pliant_error*) = nullptr;
    if constexpr (HasDropTrace<T>) drop = &drop_trace;
    static const pliant_coordinator kTable{sizeof(pliant_coordinator),
                                           0,
                                           &set_model,
                                           &set_module_parameters,
                                           &begin_pass,
                                           &enter,
                                           &leave,
                                           &end_pass,
                                           &end_step,
                                           costs,
                                           drop};
    return &kTable;
  }
  static const void* counters() noexcept {
    static const pliant_coordinator_counters kTable{sizeof(pliant_coordinator_counters), 0, &read_counts};
    return &kTable;
  }

 private:
  static void check_model(void* self) {
    if (at(self).modules == 0) throw Failure(PLIANT_FAILED_PRECONDITION, "set_model was not called yet");
  }
  static void check_module(void* self, uint32_t module) {
    if (module >= at(self).modules) refuse_module(self, module);
  }
  [[noreturn, gnu::noinline, gnu::cold]] static void refuse_module(void* self, uint32_t module) {
    check_model(self);
    throw Failure(PLIANT_INVALID_ARGUMENT, "the model has no module " + std::to_string(module));
  }
  /// Reads the fields where they are, all of which every host has: a copy of what the host has just written, field by
  /// field, in pieces larger than these would wait for the last of them to be in memory.
  static Visit visit_of(const pliant_visit* visit) {
    const pliant_visit& given = *whole(visit, &pliant_visit::complete_count, "pliant_visit");
    return {given.module, given.direction == PLIANT_BACKWARD, (given.flags & PLIANT_VISIT_RECOMPUTE) != 0,
            std::span<const uint32_t>(given.complete, static_cast<size_t>(given.complete_count))};
  }
};

/// The table of PLIANT_COORDINATOR_COUNTERS for a class with counts(), to be returned by its extension().
template <class T>
const void* coordinator_counters(const char* id) {
  return std::string_view(id) == PLIANT_COORDINATOR_COUNTERS ? CoordinatorAdapter<T>::counters() : nullptr;
}

}  // namespace detail

/// For `extension(id)` of a coordinator that has counts(): `return pliant::sdk::counters_of<Mine>(id);`
template <class T>
const void* counters_of(const char* id) {
  return detail::coordinator_counters<T>(id);
}

}  // namespace pliant::sdk

#define PLIANT_COORDINATOR(Type, name, version, summary) \
  PLIANT_DETAIL_EXPORT(Type, CoordinatorAdapter, PLIANT_KIND_COORDINATOR, name, version, summary)
