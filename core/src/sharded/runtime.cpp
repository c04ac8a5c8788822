// Runtime: the group, first values and stamps.
#include "sharded/runtime.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/result.hpp"
#include "pliant/error.hpp"
#include "sharded/memory/arena_needs.hpp"
#include "sharded/rehearsal.hpp"
#include "sharded/shards/segments.hpp"

namespace pliant::sharded {
namespace {

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
      poisons_(config.coordinator().poison),
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
  find_gradient_rooms();
  require_budget();
  // What it has against the model, or wants and nobody has, is said before the job begins.
  const auto workers = static_cast<int32_t>(config_.run().workers);
  coordinator_.set_model(model, memory_->budget(), compute_, workers);
  rehearse(config_, model, memory_->budget(), compute_, workers);
}

void Runtime::give_model() {
  is_sound_ = false;
  coordinator_.set_model(model, memory_->budget(), compute_, communicator_->world_size(), rooms_);
  is_sound_ = true;
  is_new_ = true;
}

void Runtime::require_budget() const {
  if (!has_received_behind()) return sharded::require_budget(model, memory_->budget(), compute_, reduce_);
  sharded::require_budget(model, memory_->budget(), compute_, rooms_, most_micro_batches_);
}

void Runtime::find_gradient_rooms() {
  side_by_side_ = side_by_side(model);
  if (communicator_ == nullptr || memory_->budget() == 0) {
    rooms_.clear();
    most_micro_batches_ = 1;
  } else {
    rooms_ = gradient_room(model, most_owned_, communicator_->world_size(), reduce_, most_micro_batches_);
  }
}

void Runtime::make_room_for(size_t micro_batches) {
  if (memory_->budget() == 0 || micro_batches <= most_micro_batches_) return;
  std::vector<GradientRoom> rooms =
      gradient_room(model, most_owned_, communicator_->world_size(), reduce_, micro_batches);
  sharded::require_budget(model, memory_->budget(), compute_, rooms, micro_batches);
  const std::string learnt = done_ == 0 ? save_coordinator() : std::string();  // which may be asked between two steps
  release_what_is_left();
  rooms_ = std::move(rooms);
  most_micro_batches_ = micro_batches;
  give_model();
  if (!learnt.empty()) static_cast<void>(load_coordinator(learnt));
}

FlatRange Runtime::range_of(uint32_t parameter) const {
  const ParameterRow& row = model.parameter(parameter);
  return {static_cast<int64_t>(row.offset), static_cast<int64_t>(row.elements)};
}

// The group.

void Runtime::enter_group(Communicator& communicator, int64_t epoch) {
  leave_group();
  ownership_ = dealt(model, layout_, communicator.world_size(), epoch);
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
  most_owned_ = most_owned(model, layout_, ownership_);
  most_micro_batches_ = 1;
  find_gradient_rooms();
  give_model();
  steps_of_group_ = 0;
  is_cast_ = false;
  cast_.reset();
  if (compute_ != DType::kF32) cast_.emplace(accelerator_, device_, shards_.bytes() / 2);
  if (here_) return;
  look_.emplace(accelerator_, device_, exchange_stream_, static_cast<size_t>(looked_at_together(model)));
}

void Runtime::leave_group() noexcept {
  abandon();
  may_update_ = has_norm_ = false;
  exchange_.reset();
  look_.reset();
  communicator_ = nullptr;
}

void Runtime::begin_recording(int64_t generation) {
  if (recorder_ == nullptr || !exchange_) return;
  recorder_->begin_group({.generation = generation,
                          .rank = rank_,
                          .world_size = exchange_->world_size(),
                          .model = &model,
                          .coordinator = coordinator_.name(),
                          .budget = memory_->budget(),
                          .compute = compute_,
                          .reduce = reduce_},
                         exchange_stream_);
}

void Runtime::abandon() noexcept {
  page_.end_group();
  for (Stream* const stream : {&exchange_stream_, &program_}) {
    try {
      stream->synchronize();
    } catch (...) {  // NOLINT(bugprone-empty-catch): what failed was told to whoever waited for it
    }
  }
  if (recorder_ != nullptr) recorder_->settle();
  for (Held& one : held_) {
    const bool was_let_go = one.by_hand || one.was_let_go;
    one = {};
    one.was_let_go = was_let_go;
  }
  gatherings_.clear();
  scatterings_.clear();
  on_way_bytes_ = 0;
  lingering_.reset();
  let_go_.clear();
  visits_.clear();
  in_pass_ = false;
  is_step_ = false;
  rounds_.clear();
  if (communicator_ != nullptr) coordinator_.give_up();
}

void Runtime::initialise(const std::function<void(std::span<float> values)>& share) {
  is_cast_ = false;
  std::vector<float> values;
  for (uint32_t number = 0; number < model.parameters().size(); ++number) {
    const ParameterRow& row = model.parameter(number);
    values.assign(row.elements, 0.0F);
    row.initialise(values);
    if (share) share(values);
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
                  ? fmt::format("the shards of this rank belong to no step because an update or a move was not "
                                "completed; expected: step {}",
                                step)
                  : fmt::format("the shards of this rank belong to step {}, not to step {}", shards_.step(), step));
}

void Runtime::end_step(int64_t step) {
  const bool is_owed = owes_update();
  may_update_ = has_norm_ = false;
  if (is_owed) {
    throw Error(Status::kDataLoss,
                fmt::format("step {} was committed but this rank has not applied it; call ShardedModel::update once "
                            "after each Step::commit that returned a value",
                            step - 1));
  }
  if (shards_.step() != step) {
    require_step(shards_.step() == kNoStep ? step : step - 1);  // where nothing was updated
    shards_.move_on(step);
  }
  after_update_ = step + 1;
  note(Visited::Kind::kEndStep);  // of the last one, too: whoever waits for a pass of this rank then waits for ever
}

bool Runtime::has_trained() const {
  return std::any_of(model.parameters().begin(), model.parameters().end(),
                     [](const ParameterRow& row) { return !row.frozen && row.elements > 0; });
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

// What a call needs.

void Runtime::require_group() const {
  if (exchange_) return;
  throw Error(Status::kFailedPrecondition,
              "the sharded model has no group; call Session::start and Session::next first");
}

void Runtime::require_no_pass() const {
  if (in_pass_) throw Error(Status::kFailedPrecondition, "the previous pass was not ended; call end_pass first");
}

void Runtime::require_sound() const {
  if (is_sound_) return;
  throw Error(Status::kFailedPrecondition,
              "a call of this pass has failed, so the pass cannot continue; make passes inside Step::attempt, which "
              "abandons them");
}

}  // namespace pliant::sharded
