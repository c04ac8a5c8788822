// A worker of `pliant run` that plays calls of sessions and sharded models from a seed, in any order and with any
// arguments, between those of a trainer; then it trains to the end. [app] has seed, and `answered`: the file that it
// writes the names of the functions to that were answered; beside it are first values, ANSWERED.safetensors.
#include <doctest/doctest.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "fuzz/job_calls.hpp"

using namespace pliant::test;

namespace {

constexpr uint64_t kMoves = 330;
constexpr int64_t kElements = 4;

pliant_error_t& failure() {
  static pliant_error_t one = PLIANT_INIT(pliant_error_t);
  return one;
}

void must(int32_t status) {
  const std::string said = status == PLIANT_OK ? "nothing" : pliant_last_message(nullptr);
  INFO("said: " << said);
  REQUIRE(status == PLIANT_OK);
}

/// Ends a function of the trainer with the status of a call that is refused; notes the others.
#define TRY(function, ...)                                            \
  do {                                                                \
    const int32_t status_of_call = function(__VA_ARGS__, &failure()); \
    if (status_of_call != PLIANT_OK) return status_of_call;           \
    answered.insert(#function);                                       \
  } while (false)

/// A trainer whose calls may come at any time between others.
class Trainer {
 public:
  Trainer() {
    must(pliant_session_attach(&session, &failure()));
    must(pliant_session_config(session, &config, &failure()));
    must(pliant_config_has(config, "coordinator", &has_coordinator_, &failure()));
    must(pliant_config_app_int(config, "seed", 0, &seed, &failure()));
    must(pliant_config_app_text(config, "answered", "answered", &answered_file, &failure()));
    job_in_play().file = std::string(answered_file) + ".safetensors";
    job_in_play().is_digested = seed % 2 == 0;
    std::array<int32_t, 480> tokens{};
    tokens.fill(3);
    pliant_lengths_t lengths = PLIANT_INIT(pliant_lengths_t);
    lengths.count = tokens.size();
    lengths.lengths = tokens.data();
    must(pliant_dataset_make(&lengths, &dataset, &failure()));
  }

  /// With a state or a model of its own, unless calls by chance have started the session.
  void start(Player& player) {
    JobInPlay& job = job_in_play();
    if (job.is_started) return;
    if (has_coordinator_ != 0) {
      std::vector<pliant_sharded_t*>& models = player.pool<pliant_sharded_t>();
      for (pliant_sharded_t* const by_chance : models) must(pliant_sharded_free(by_chance));
      models.clear();
      must(make_model(player));
      models.push_back(model);
      job.is_sharded = true;
    } else {
      must(start_whole(player));
    }
    job.is_started = true;
  }

  /// The next step, or that in hand again, forward and backward over it, and its commit.
  int32_t make_step(Player& player) {
    JobInPlay& job = job_in_play();
    pliant_step_t step = PLIANT_INIT(pliant_step_t);
    if (job.is_sharded) job_detail::end_pass(model);
    TRY(pliant_session_next, session, &step);
    job.is_done = step.batch == nullptr;
    job.micro_batches.clear();
    if (job.is_done) return PLIANT_OK;
    job.micro_batches.assign(step.micro_batches, step.micro_batches + 2 * step.micro_batch_count);
    if (job.is_sharded) return make_sharded_step(player);
    for (uint64_t micro = 0; micro < step.micro_batch_count; ++micro) {
      if (player.once_in(2)) {
        TRY(pliant_session_add, session, micro, 1, job.floats.data(), job.gradient_size);
      } else {
        TRY(pliant_session_add_piece, session, micro, 0, job.gradient_size, job.floats.data(), PLIANT_DTYPE_F32);
        TRY(pliant_session_add, session, micro, 1, nullptr, 0);
      }
    }
    return commit(player).status;
  }

  pliant_session_t* session = nullptr;
  pliant_config_t* config = nullptr;
  pliant_dataset_t* dataset = nullptr;
  pliant_sharded_t* model = nullptr;
  int64_t seed = 0;
  const char* answered_file = nullptr;
  std::set<std::string> answered;

 private:
  struct Commit {
    int32_t status;
    bool is_committed;
  };

  int32_t start_whole(Player& player) {
    static double weights = 0;
    pliant_state_array_t array = PLIANT_INIT(pliant_state_array_t);
    array.dtype = PLIANT_DTYPE_F64;
    array.name = "weights";
    array.memory = &weights;
    pliant_state_t state = PLIANT_INIT(pliant_state_t);
    state.gradient_size = kElements;
    state.arrays = &array;
    state.array_count = 1;
    state.save = job_detail::save_little;
    state.load = job_detail::load_nothing;
    state.context = &player;
    TRY(pliant_session_start, session, dataset, &state);
    job_in_play().gradient_size = kElements;
    return PLIANT_OK;
  }

  int32_t make_model(Player& player) {
    const char* const state = "momentum";
    TRY(pliant_sharded_make, session, &state, 1, &model);
    uint32_t number = 0;
    pliant_sharded_parameter_t parameter = PLIANT_INIT(pliant_sharded_parameter_t);
    parameter.dimensions = 1;
    parameter.shape = &kElements;
    parameter.initialise = job_detail::first_values;
    parameter.context = &player;
    pliant_sharded_module_t module = PLIANT_INIT(pliant_sharded_module_t);
    const std::array<uint32_t, 2> own{0, 1};
    const uint32_t root = 0;
    for (uint32_t i = 0; i < 2; ++i) {
      parameter.name = i == 0 ? "w0" : "w1";
      TRY(pliant_sharded_add_parameter, model, &parameter, &number);
    }
    for (uint32_t i = 0; i < 2; ++i) {
      module.name = i == 0 ? "root" : "leaf";
      module.parent = i == 0 ? nullptr : &root;
      module.own = &own[i];
      module.own_count = 1;
      TRY(pliant_sharded_add_module, model, &module, &number);
    }
    if (seed % 2 == 0) TRY(pliant_sharded_import, model, job_in_play().file.c_str());
    TRY(pliant_session_start_sharded, session, dataset, model, nullptr);
    return PLIANT_OK;
  }

  int32_t make_sharded_step(Player& player) {
    int32_t computed = 0;
    const auto work = [](void* self) { return static_cast<Trainer*>(self)->passes(); };
    TRY(pliant_session_attempt, session, work, this, &computed);
    if (computed == 0) return PLIANT_OK;
    const Commit committed = commit(player);
    if (!committed.is_committed) return committed.status;
    TRY(pliant_sharded_update, model, job_detail::update_shard, &player);
    return PLIANT_OK;
  }

  Commit commit(Player& player) {
    const bool on_device = player.once_in(2);
    pliant_committed_t committed = PLIANT_INIT(pliant_committed_t);
    const int32_t status = on_device ? pliant_session_commit_on_device(session, &committed, &failure())
                                     : pliant_session_commit(session, &committed, &failure());
    if (status == PLIANT_OK) answered.insert(on_device ? "pliant_session_commit_on_device" : "pliant_session_commit");
    return {status, status == PLIANT_OK && committed.is_committed != 0};
  }

  int32_t passes() {
    const std::vector<int64_t>& micro_batches = job_in_play().micro_batches;
    const void* value = nullptr;
    void* gradient = nullptr;
    for (uint64_t micro = 0; micro < micro_batches.size() / 2; ++micro) {
      TRY(pliant_sharded_begin_pass, model, micro_batches.data() + 2 * micro, 1);
      TRY(pliant_sharded_begin_micro_batch, model, 0);
      for (const int32_t direction : {PLIANT_DIRECTION_FORWARD, PLIANT_DIRECTION_BACKWARD}) {
        for (const uint32_t module : {0U, 1U}) {
          TRY(pliant_sharded_enter, model, module, direction);
          // Calls by chance may have given a module other parameters.
          if (pliant_sharded_value(model, module, PLIANT_DTYPE_F32, &value, nullptr) == PLIANT_OK)
            answered.insert("pliant_sharded_value");
          if (direction == PLIANT_DIRECTION_BACKWARD &&
              pliant_sharded_gradient(model, module, PLIANT_DTYPE_F32, &gradient, nullptr) == PLIANT_OK)
            answered.insert("pliant_sharded_gradient");
        }
        for (const uint32_t module : {1U, 0U}) TRY(pliant_sharded_leave, model, module, direction);
      }
      TRY(pliant_sharded_end_pass, model);
      TRY(pliant_session_add, session, micro, 1, nullptr, 0);
    }
    return PLIANT_OK;
  }

  int32_t has_coordinator_ = 0;
};

/// The status of one call, which is one of the header.
int32_t play(const std::string& name, Player& player) {
  INFO("call " << name);
  job_detail::say(0, name);
  const int32_t status = job_calls().at(name)(player);
  player.keep();
  CHECK(status >= PLIANT_OK);
  CHECK(status <= PLIANT_DEADLINE_EXCEEDED);
  return status;
}

/// After an update that was not completed there is no further step, nor anything that reads the weights.
[[noreturn]] void end_torn(const Trainer& trainer) {
  pliant_step_t step = PLIANT_INIT(pliant_step_t);
  CHECK(pliant_session_next(trainer.session, &step, &failure()) == PLIANT_DATA_LOSS);
  std::_Exit(1);
}

/// Some of them are what a trainer would call next, so that the others come at any point of a step.
void play_all(Player& player, Trainer& trainer) {
  static const std::array<const char*, 10> kPasses{
      "pliant_sharded_begin_pass",       "pliant_sharded_enter", "pliant_sharded_value",
      "pliant_sharded_gradient",         "pliant_sharded_leave", "pliant_sharded_end_pass",
      "pliant_sharded_begin_evaluation", "pliant_session_add",   "pliant_session_scaling_of",
      "pliant_session_scaling_of_group"};
  for (uint64_t move = 0; move < kMoves && !job_in_play().is_done; ++move) {
    INFO("move " << move);
    if (move == kMoves / 5) trainer.start(player);
    const uint64_t kind = player.below(8);
    if (job_in_play().is_torn) end_torn(trainer);
    if (kind == 0) {
      if (job_in_play().is_started) static_cast<void>(trainer.make_step(player));
      continue;
    }
    auto at = job_calls().begin();
    std::advance(at, static_cast<long>(player.below(job_calls().size())));
    const std::string name = kind == 1 ? kPasses[player.below(kPasses.size())] : at->first;
    if (play(name, player) == PLIANT_OK) trainer.answered.insert(name);
  }
}

}  // namespace

TEST_CASE("calls of a job in any order with any arguments are answered or refused, and it trains to its end") {
  Trainer trainer;
  Player player(static_cast<uint64_t>(trainer.seed));
  player.pool<pliant_session_t>().push_back(trainer.session);
  player.pool<pliant_dataset_t>().push_back(trainer.dataset);
  player.pool<pliant_config_t>().push_back(trainer.config);
  play_all(player, trainer);
  trainer.start(player);
  if (job_in_play().is_torn) end_torn(trainer);
  job_in_play().failures_left = 0;  // of callbacks: the last snapshot has to be written
  player.be_careful();
  while (!job_in_play().is_done) must(trainer.make_step(player));
  std::ofstream out(trainer.answered_file);
  for (const std::string& name : trainer.answered) out << name << '\n';
}
