// Runtime: the group, and what is whole when.
#include "sharded/runtime.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "base/log.hpp"
#include "base/result.hpp"
#include "pliant/error.hpp"

namespace pliant::sharded {
namespace {

constexpr const char* word_of(Direction direction) {
  switch (direction) {
    case Direction::kForward:
      return "forward";
    case Direction::kBackward:
      return "backward";
    case Direction::kRecompute:
      return "recompute";
  }
  return "";
}

DType dtype_of(const std::string& word) {
  return word == "bf16" ? DType::kBF16 : DType::kF32;
}

/// Of the arrays: the weights and the states.
std::vector<std::string> names_of_arrays(const std::vector<std::string>& state_names) {
  std::vector<std::string> names{"weights"};
  names.insert(names.end(), state_names.begin(), state_names.end());
  return names;
}

}  // namespace

Runtime::Runtime(const Config& config, const Accelerator& accelerator, int32_t device, Stream& program,
                 Stream& exchange, std::vector<std::string> state_names)
    : config_(config),
      accelerator_(accelerator),
      device_(device),
      program_(program),
      exchange_stream_(exchange),
      here_(accelerator.properties(device).host_visible),
      compute_(dtype_of(config.coordinator().compute_dtype)),
      reduce_(dtype_of(config.coordinator().reduce_dtype)),
      state_names_(std::move(state_names)),
      coordinator_(config),
      shards_(accelerator, device, program, names_of_arrays(state_names_)),
      sums_(accelerator, device, exchange, config.run().deterministic),
      costs_(accelerator, device) {}

Runtime::~Runtime() {
  leave_group();
}

void Runtime::close_model() {
  model.close();
  const auto total = static_cast<int64_t>(model.elements());
  layout_ = or_throw(FlatLayout::create(total));
  held_.resize(model.parameters().size());
  memory_.emplace(accelerator_, device_, exchange_stream_,
                  static_cast<uint64_t>(config_.coordinator().budget.value_or(0)));
  program_point_ = std::make_unique<Event>(accelerator_, device_);
  require_budget();
  // What it has against the model is said before the job begins.
  coordinator_.set_model(model, memory_->budget(), compute_, static_cast<int32_t>(config_.run().workers));
}

void Runtime::give_model() {
  coordinator_.set_model(model, memory_->budget(), compute_, communicator_->world_size());
  is_sound_ = true;
}

void Runtime::require_budget() const {
  if (memory_->budget() == 0) return;
  for (const ModuleRow& module : model.modules()) {
    uint64_t bytes = 0;
    for (const uint32_t parameter : module.used) {
      const ParameterRow& row = model.parameter(parameter);
      bytes += WholeMemory::taken_by(row.elements * bytes_of(compute_));
      if (!row.frozen) bytes += WholeMemory::taken_by(row.elements * bytes_of(reduce_));
    }
    if (bytes <= memory_->budget()) continue;
    throw Error(Status::kResourceExhausted,
                fmt::format("[coordinator] budget = {} is too small: {} alone uses {} bytes with its gradients ({}{})",
                            memory_->budget(), module.name, bytes, name(module.used.front()),
                            module.used.size() > 1 ? ", ..." : ""),
                ExitCode::kUsage)
        .about("budget");
  }
}

FlatRange Runtime::range_of(uint32_t parameter) const {
  const ParameterRow& row = model.parameter(parameter);
  return {static_cast<int64_t>(row.offset), static_cast<int64_t>(row.elements)};
}

// The group.

void Runtime::enter_group(Communicator& communicator, int64_t epoch) {
  leave_group();
  ownership_ = or_throw(Ownership::deal(layout_.chunks(), communicator.world_size(), epoch));
  rank_ = communicator.rank();
  shards_.make(layout_, ownership_, communicator.rank());
  sums_.resize(shards_.bytes() / sizeof(float));
  begin_group(communicator);
}

void Runtime::begin_group(Communicator& communicator) {
  communicator_ = &communicator;
  rank_ = communicator.rank();
  exchange_.emplace(communicator, exchange_stream_);
  owners_.clear();
  for (uint32_t number = 0; number < model.parameters().size(); ++number) {
    owners_.push_back(exchange_->owners_of(layout_, ownership_, range_of(number)));
  }
  give_model();
  steps_of_group_ = 0;
  is_cast_ = false;
  cast_.reset();
  if (compute_ != DType::kF32) cast_.emplace(accelerator_, device_, shards_.bytes() / 2);
}

void Runtime::leave_group() noexcept {
  abandon();
  may_update_ = false;
  exchange_.reset();
  communicator_ = nullptr;
}

void Runtime::abandon() noexcept {
  for (Stream* const stream : {&exchange_stream_, &program_}) {
    try {
      stream->synchronize();
    } catch (...) {  // NOLINT(bugprone-empty-catch): what failed was told to whoever waited for it
    }
  }
  for (Held& one : held_) {
    const bool was_let_go = one.by_hand || one.was_let_go;
    one = {};
    one.was_let_go = was_let_go;
  }
  gatherings_.clear();
  scatterings_.clear();
  visits_.clear();
  in_pass_ = false;
  is_step_ = false;
  round_ = nullptr;
  if (communicator_ != nullptr) coordinator_.give_up();
}

void Runtime::initialise() {
  is_cast_ = false;
  std::vector<float> values;
  for (uint32_t number = 0; number < model.parameters().size(); ++number) {
    const ParameterRow& row = model.parameter(number);
    values.assign(row.elements, 0.0F);
    row.initialise(values);
    for (const ShardPiece& piece : ownership_.pieces_of(layout_, range_of(number))) {
      if (piece.owner != rank_) continue;
      program_.copy(array(0) + piece.shard_offset,
                    values.data() + (piece.range.first - static_cast<int64_t>(row.offset)),
                    static_cast<uint64_t>(piece.range.count) * sizeof(float));
      program_.synchronize();
    }
  }
  stamp(0);
}

std::vector<ShardRun> Runtime::runs(size_t number) {
  if (number == 0) is_cast_ = false;
  std::vector<ShardRun> made;
  const FlatRange all{0, static_cast<int64_t>(model.elements())};
  for (const ShardPiece& piece : ownership_.pieces_of(layout_, all)) {
    if (piece.owner != rank_) continue;
    made.push_back({static_cast<uint64_t>(piece.range.first), static_cast<uint64_t>(piece.range.count),
                    array(number) + piece.shard_offset});
  }
  return made;
}

void Runtime::stamp(int64_t step) {
  shards_.end_change(step);
  after_update_ = step + 1;
}

void Runtime::require_step(int64_t step) const {
  if (shards_.step() == step) return;
  throw Error(Status::kDataLoss,
              shards_.step() == kNoStep
                  ? fmt::format("what this rank owns is of no step: an update, or a move, did not come to its end; "
                                "step {} was to be there",
                                step)
                  : fmt::format("what this rank owns is of step {}, not of step {}", shards_.step(), step));
}

void Runtime::end_step(int64_t step) {
  if (shards_.step() != step) {
    require_step(shards_.step() == kNoStep ? step : step - 1);  // where nothing was updated
    shards_.end_change(step);
  }
  after_update_ = step + 1;
}

ShardedMemory Runtime::memory() const {
  ShardedMemory made;
  for (size_t i = 0; i < shards_.count(); ++i) (i == 0 ? made.weights : made.state) += shards_.bytes_taken(i);
  if (cast_) made.weights += cast_->bytes();
  made.sums = sums_.bytes();
  if (memory_) {
    made.gathered = memory_->taken();
    made.gathered_most = memory_->most_taken();
  }
  return made;
}

// What is whole when.

void Runtime::require_group() const {
  if (exchange_) return;
  throw Error(Status::kFailedPrecondition,
              "the sharded model has no group; call Session::start and Session::next first");
}

void Runtime::require_no_pass() const {
  if (in_pass_) throw Error(Status::kFailedPrecondition, "the pass before was not ended; call end_pass first");
}

void Runtime::require_sound() const {
  if (is_sound_) return;
  throw Error(
      Status::kFailedPrecondition,
      "a call of this pass has failed, and the pass cannot go on; make passes inside Step::attempt, which gives "
      "them up");
}

void Runtime::follow_program() {
  if (here_) {
    if (!program_.is_idle()) program_.synchronize();
    return;
  }
  program_point_->record(program_);
  exchange_stream_.wait(*program_point_);
}

Event Runtime::take_event() {
  if (spare_events_.empty()) return Event(accelerator_, device_);
  Event event = std::move(spare_events_.back());
  spare_events_.pop_back();
  return event;
}

WholePiece Runtime::take(uint64_t count, DType type, const std::string& what, const WholePlace& place) {
  const uint64_t bytes = count * bytes_of(type);
  if (memory_->budget() > 0 && memory_->taken() + bytes > memory_->budget()) drain_scatterings(true);
  return memory_->take(bytes, what, place);
}

const void* Runtime::weights_to_gather() {
  if (!cast_) return array(0);
  if (!std::exchange(is_cast_, true)) {
    exchange_stream_.cast(cast_->pointer(), compute_, array(0), DType::kF32, shards_.bytes() / sizeof(float));
  }
  return cast_->pointer();
}

// Coordinator has held the list against the rules.
void Runtime::carry_out(std::span<const pliant_action> actions) {
  for (size_t i = 0; i < actions.size();) {
    const pliant_action& action = actions[i];
    const bool is_of_group = action.kind == PLIANT_ACTION_GATHER || action.kind == PLIANT_ACTION_REDUCE;
    size_t end = i + 1;
    while (is_of_group && end < actions.size() && actions[end].kind == action.kind &&
           actions[end].group == action.group) {
      ++end;
    }
    const std::span<const pliant_action> group = actions.subspan(i, end - i);
    i = end;
    switch (action.kind) {
      case PLIANT_ACTION_GATHER:
        gather(group);
        break;
      case PLIANT_ACTION_REDUCE: {
        std::vector<uint32_t> parameters;
        for (const pliant_action& one : group) {
          std::erase(complete_, one.parameter);
          parameters.push_back(one.parameter);
        }
        reduce(parameters);
        break;
      }
      case PLIANT_ACTION_WAIT:
        wait(action.parameter);
        break;
      case PLIANT_ACTION_RELEASE:
        if (!held_[action.parameter].by_hand) release_whole(action.parameter);
        break;
      case PLIANT_ACTION_DROP_TRACE:
        Log("coordinator").write(LogLevel::kDebug, fmt::format("{} drops its trace", coordinator_.name()));
        break;
      default:  // PLIANT_ACTION_BOUND_WAITS
        bound_waits(action.place);
    }
  }
}

void Runtime::gather(std::span<const pliant_action> group) {
  std::vector<GatherItem> items;
  std::vector<uint32_t> gathered;
  for (const pliant_action& action : group) {
    Held& one = held_[action.parameter];
    if (one.by_hand) continue;
    const auto byte = action.place == PLIANT_ANY_PLACE ? std::nullopt : std::optional<uint64_t>(action.place);
    one.value = take(model.parameter(action.parameter).elements, compute_,
                     fmt::format("the whole of {}", name(action.parameter)), {byte, ArenaSide::kBegin});
    one.presence = Presence::kOnItsWay;
    one.gather = gathered_;
    if (model.parameter(action.parameter).elements > 0) {
      items.push_back({&owners_[action.parameter], one.value.pointer()});
      gathered.push_back(action.parameter);
    }
  }
  forget_ended_gathers();
  Gathering made{gathered_++, take_event()};
  if (!items.empty()) {
    const void* const weights = weights_to_gather();
    costs_.begin_gather(exchange_stream_);
    exchange_->gather(items, weights, compute_);
    costs_.end_gather(exchange_stream_, std::move(gathered));
    if (begun_) begun_(Begun::kGather);
  }
  made.done.record(exchange_stream_);
  gatherings_.push_back(std::move(made));
}

void Runtime::wait(uint32_t parameter) {
  Held& one = held_[parameter];
  if (std::exchange(one.presence, Presence::kWhole) == Presence::kWhole) return;
  if (gatherings_.empty() || one.gather < gatherings_.front().number) return;  // it was waited for
  const auto found = gatherings_.begin() + static_cast<std::ptrdiff_t>(one.gather - gatherings_.front().number);
  if (!here_) {
    found->is_waited_for = true;
    return program_.wait(found->done);
  }
  found->done.synchronize();
  for (auto ended = gatherings_.begin(); ended <= found; ++ended) spare_events_.push_back(std::move(ended->done));
  gatherings_.erase(gatherings_.begin(), found + 1);  // they run in order
}

void Runtime::bound_waits(uint64_t unfinished) {
  forget_ended_gathers();
  auto waits = static_cast<uint64_t>(
      std::count_if(gatherings_.begin(), gatherings_.end(), [](const Gathering& one) { return one.is_waited_for; }));
  while (waits > unfinished) {
    Gathering& oldest = gatherings_.front();
    oldest.done.synchronize();
    waits -= oldest.is_waited_for ? 1 : 0;
    forget_oldest_gather();
  }
}

void Runtime::forget_ended_gathers() {
  while (!gatherings_.empty() && gatherings_.front().is_waited_for && gatherings_.front().done.is_reached()) {
    forget_oldest_gather();
  }
}

void Runtime::forget_oldest_gather() {
  spare_events_.push_back(std::move(gatherings_.front().done));
  gatherings_.pop_front();
}

void Runtime::release_whole(uint32_t parameter) {
  follow_program();  // what it has enqueued may read it
  held_[parameter].value.reset();
  held_[parameter].presence = Presence::kAway;
}

void Runtime::set_parameters(uint32_t module, const std::vector<ParameterId>& own,
                             const std::vector<ParameterId>& external) {
  require_no_pass();
  const ModuleRow& row = model.modules()[module];
  const auto ids = [](const std::vector<uint32_t>& numbers) {
    std::vector<ParameterId> made;
    for (const uint32_t number : numbers) made.push_back(ParameterId{number});
    return made;
  };
  const std::vector<ParameterId> had_own = ids(row.own);
  const std::vector<ParameterId> had_external = ids(row.external);
  model.set_parameters(module, own, external);
  if (communicator_ == nullptr) return;  // the next group's coordinator gets the whole model
  try {
    require_budget();
    if (!is_sound_) return give_model();  // a pass was given up
    coordinator_.set_module_parameters(module, row);
  } catch (...) {
    model.set_parameters(module, had_own, had_external);
    throw;
  }
  bool can_drop = false;
  follow([&] {
    const auto actions = coordinator_.drop_trace();
    can_drop = actions.has_value();
    return can_drop ? *actions : coordinator_.end_step();
  });
  if (!can_drop) give_model();
}

void Runtime::begin(bool with_gradient) {
  require_group();
  require_no_pass();
  if (!is_sound_) give_model();  // the pass before was given up
  with_gradient_ = with_gradient;
  in_pass_ = true;
  complete_.clear();
  for (Held& one : held_) {
    one.uses = 0;
    one.is_reduced = false;
  }
  follow([&] { return coordinator_.begin_pass(with_gradient); });
}

void Runtime::begin_evaluation() {
  begin(false);
}

void Runtime::enter(uint32_t module, Direction direction) {
  if (!in_pass_) {
    throw Error(Status::kFailedPrecondition,
                fmt::format("{} is entered outside of a pass; call begin_pass first", model.modules()[module].name));
  }
  if (direction == Direction::kBackward && !with_gradient_) {
    throw Error(Status::kFailedPrecondition,
                fmt::format("{} is entered backward in a pass without gradients", model.modules()[module].name));
  }
  require_sound();
  visits_.push_back({module, direction});
  const std::vector<uint32_t>& used = model.modules()[module].used;
  follow([&] { return coordinator_.enter(module, direction); });
  for (const uint32_t parameter : used) {
    if (with_gradient_ && direction == Direction::kForward) ++held_[parameter].uses;
  }
}

// The last that was entered; in backward, where hooks of a module and of its first child come in either order, also one
// that others were entered backward after.
std::vector<Runtime::Visit>::iterator Runtime::visit_to_leave(uint32_t module, Direction direction) {
  for (auto visit = visits_.end(); visit != visits_.begin();) {
    --visit;
    if (visit->module == module && visit->direction == direction) return visit;
    if (direction != Direction::kBackward || visit->direction != Direction::kBackward) break;
  }
  return visits_.end();
}

void Runtime::leave(uint32_t module, Direction direction) {
  require_sound();
  const auto visit = visit_to_leave(module, direction);
  if (visit == visits_.end()) {
    throw Error(Status::kFailedPrecondition,
                visits_.empty()
                    ? fmt::format("{} is left and was not entered", model.modules()[module].name)
                    : fmt::format("{} ({}) is left while {} ({}) is the last that was entered; leave that first",
                                  model.modules()[module].name, word_of(direction),
                                  model.modules()[visits_.back().module].name, word_of(visits_.back().direction)));
  }
  for (const uint32_t parameter : model.modules()[module].used) {
    Held& one = held_[parameter];
    const bool counts = direction == Direction::kBackward && !model.parameter(parameter).frozen && one.uses > 0;
    if (counts && --one.uses == 0 && !std::exchange(one.is_reduced, true)) complete_.push_back(parameter);
  }
  std::sort(complete_.begin(), complete_.end());
  const std::vector<uint32_t> complete = complete_;
  follow([&] { return coordinator_.leave(module, direction, complete); });
  visits_.erase(visit);
  drain_scatterings(false);
}

void* Runtime::value(uint32_t parameter) {
  require_group();
  const Held& one = held_[parameter];
  if (one.presence == Presence::kWhole) return one.value.pointer();
  throw Error(Status::kFailedPrecondition,
              fmt::format("{} is not whole here; enter a module that uses it, or call fetch", name(parameter)));
}

void Runtime::prefetch(uint32_t parameter) {
  require_group();
  Held& one = held_[parameter];
  if (in_pass_) {
    throw Error(Status::kFailedPrecondition,
                fmt::format("{} is fetched by hand inside a pass; enter a module that uses it", name(parameter)));
  }
  if (!is_sound_) give_model();  // a pass was given up
  if (one.presence == Presence::kAway) {
    const pliant_action action{PLIANT_ACTION_GATHER, parameter, 1, 0, PLIANT_ANY_PLACE};
    gather(std::span(&action, 1));
  }
  one.by_hand = true;
  one.was_let_go = false;
}

void Runtime::fetch(uint32_t parameter) {
  prefetch(parameter);
  wait(parameter);
}

void Runtime::write(uint32_t parameter, std::span<const float> values) {
  require_group();
  require_no_pass();
  if (may_update_) {
    throw Error(Status::kFailedPrecondition,
                fmt::format("{} is written between a commit and its update; write it after update", name(parameter)));
  }
  if (held_[parameter].by_hand) {
    throw Error(Status::kFailedPrecondition,
                fmt::format("{} is written while it is fetched by hand; call release first", name(parameter)));
  }
  if (held_[parameter].presence != Presence::kAway) {  // what is whole somewhere would stay as it was
    if (!is_sound_) give_model();
    follow([&] { return coordinator_.end_step(); });
  }
  exchange_stream_.synchronize();  // others read what this rank owns
  const int64_t step = shards_.step();
  const ParameterRow& row = model.parameter(parameter);
  ShardArray& weights = shards_.array(0);
  weights.begin_change();
  for (const ShardPiece& piece : owners_[parameter].own) {
    program_.copy(weights.values() + piece.shard_offset,
                  values.data() + (piece.range.first - static_cast<int64_t>(row.offset)),
                  static_cast<uint64_t>(piece.range.count) * sizeof(float));
  }
  program_.synchronize();
  weights.end_change(step);
  is_cast_ = false;
}

void Runtime::read(uint32_t parameter, std::span<float> values) {
  require_group();
  require_no_pass();
  const WholePiece whole = take(values.size(), DType::kF32, fmt::format("the whole of {}", name(parameter)));
  const GatherItem item{&owners_[parameter], whole.pointer()};
  if (!values.empty()) exchange_->gather(std::span(&item, 1), array(0), DType::kF32);
  exchange_stream_.copy(values.data(), whole.pointer(), values.size_bytes());
  exchange_stream_.synchronize();
}

void Runtime::release(uint32_t parameter) {
  require_group();
  if (std::exchange(held_[parameter].was_let_go, false)) return;
  if (!std::exchange(held_[parameter].by_hand, false)) {
    throw Error(Status::kFailedPrecondition, fmt::format("{} was not fetched by hand", name(parameter)));
  }
  if (!coordinator_.is_whole(parameter)) release_whole(parameter);
}

}  // namespace pliant::sharded
