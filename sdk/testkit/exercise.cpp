#include "testkit/exercise.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <sstream>
#include <stdexcept>

#include "pliant/abi/accelerator.h"
#include "pliant/abi/balancer.h"
#include "pliant/abi/batch_sampler.h"
#include "pliant/abi/coordinator.h"
#include "pliant/abi/elasticity_policy.h"
#include "pliant/abi/lr_rule.h"
#include "pliant/abi/rendezvous.h"
#include "pliant/sdk/calls.hpp"
#include "pliant/sdk/sampler_rules.hpp"
#include "pliant/sdk/sized.hpp"

namespace pliant::testkit {
namespace {

using sdk::Calls;

std::string plan(const Calls<pliant_elasticity_policy>& calls) {
  std::ostringstream notes;
  const pliant_world_sink sink{sizeof(pliant_world_sink), 0, &notes,
                               [](void* context, const pliant_world_range* ranges, uint64_t count) -> int32_t {
                                 for (uint64_t i = 0; i < count; ++i) {
                                   *static_cast<std::ostringstream*>(context)
                                       << ranges[i].first << ".." << ranges[i].last << '/' << ranges[i].step << ' ';
                                 }
                                 return PLIANT_OK;
                               }};
  for (const int64_t world_size : {0, 1, 4}) {
    const pliant_plan_request request{sizeof(pliant_plan_request), 0, world_size, {nullptr, 0}};
    pliant_plan plan{};
    plan.struct_size = sizeof(plan);
    const sdk::Answer answer = calls.ask(&pliant_elasticity_policy::plan, &request, &plan, &sink);
    notes << answer.status << ": " << plan.global_batch << '/' << plan.micro_batch << '/' << plan.granule
          << answer.message << '\n';
  }
  return notes.str();
}

std::string rows(const Calls<pliant_batch_sampler>& calls) {
  constexpr uint64_t kMostRows = 10000;
  std::vector<int32_t> lengths(200);
  for (size_t i = 0; i < lengths.size(); ++i)
    lengths[i] = static_cast<int32_t>(i % 50) + 1;        // fits an OptionRow's budget
  std::vector<uint64_t> row_offsets(lengths.size() + 1);  // rows of one sequence, for a sampler that takes some
  std::iota(row_offsets.begin(), row_offsets.end(), uint64_t{0});
  std::vector<int64_t> row_ids(lengths.size());
  std::iota(row_ids.begin(), row_ids.end(), int64_t{0});
  std::ostringstream notes;
  for (const int64_t epoch : {0, 1, 0}) {
    pliant_epoch_request request{};
    request.struct_size = sizeof(request);
    request.seed = 7;
    request.epoch = epoch;
    request.rows_per_batch = 8;
    request.sequence_count = lengths.size();
    request.lengths = lengths.data();
    request.given_rows = row_ids.size();
    request.row_offsets = row_offsets.data();
    request.row_ids = row_ids.data();
    pliant_epoch made{};
    made.struct_size = sizeof(made);
    calls.must(&pliant_batch_sampler::begin_epoch, &request, &made);
    const sdk::EpochCounts counts = sdk::counts_of(made);
    // More than there can be is another check's to say; here it is no size of an array.
    std::vector<uint64_t> offsets(std::min<uint64_t>(counts.rows, kMostRows) + 1);
    std::vector<int64_t> ids(std::min<uint64_t>(counts.entries, kMostRows));
    calls.ask(&pliant_batch_sampler::rows, 0, offsets.size() - 1, offsets.data(), ids.data(), ids.size());
    for (const uint64_t offset : offsets) notes << offset << ' ';
    for (const int64_t id : ids) notes << id << ' ';
    if (counts.in_pieces()) {
      std::vector<int64_t> firsts(ids.size());
      std::vector<int64_t> tokens(ids.size());
      calls.ask(&pliant_batch_sampler::pieces, 0, offsets.size() - 1, firsts.data(), tokens.data(), ids.size());
      for (const int64_t first : firsts) notes << first << ' ';
    }
    notes << made.dropped_count << '\n';
  }
  return notes.str();
}

/// A step that any rule can take: every base value is there, and the optimizer is one that the rule is valid for.
pliant_lr_input lr_step(uint32_t optimizers, double batch, int64_t step) {
  pliant_lr_input input{};
  input.struct_size = sizeof(input);
  while (input.optimizer < 31 && (optimizers >> static_cast<uint32_t>(input.optimizer) & 1U) == 0) ++input.optimizer;
  input.unit = PLIANT_BATCH_TOKENS;
  input.base_lr = 0.1;
  input.base_batch = 32;
  input.batch = batch;
  input.step = step;
  input.total_steps = 100;
  input.progress = 32.0 * static_cast<double>(step);
  input.total_progress = 3200;
  input.base_beta1 = 0.9;
  input.base_beta2 = 0.99;
  input.base_epsilon = 1e-8;
  input.base_weight_decay = 0.1;
  input.base_ema = 0.999;
  input.base_counts = {4, 4, 32, 32};
  input.counts = {4, 4, batch, batch};
  return input;
}

std::string rates(const Calls<pliant_lr_rule>& calls) {
  std::ostringstream notes;
  notes.precision(17);
  pliant_lr_facts facts{};
  facts.struct_size = sizeof(facts);
  calls.must(&pliant_lr_rule::describe, &facts);
  int64_t step = 0;
  for (const double batch : {32.0, 1.0, 64.0, 96.0, 32.0}) {
    pliant_lr_input input = lr_step(facts.optimizers, batch, step);
    const pliant_lr_output before{sizeof(pliant_lr_output), 0, 0.1, 0.1, 1, 1, 1, 1, 1, 1, 1, 1, batch};
    input.previous = &before;
    pliant_lr_output output = before;
    calls.must(&pliant_lr_rule::scale, &input, &output);
    const pliant_lr_committed committed{sizeof(pliant_lr_committed), 0, batch / 4, 5.0, batch, 2.0};
    calls.must(&pliant_lr_rule::commit, &input, &output, &committed);
    notes << output.lr << ' ' << output.one_minus_beta1 << ' ' << output.progress << ' ';
    ++step;
  }
  return notes.str();
}

/// Blocks that are alike, blocks of which one is worth all others, none at all, more ranks than blocks.
std::string ranks(const Calls<pliant_balancer>& calls) {
  std::ostringstream notes;
  std::vector<int64_t> costs(37, 5);
  costs[20] = int64_t{1} << 60;
  costs[3] = 0;
  for (const auto& [blocks, world_size] : {std::pair<uint64_t, int64_t>{37, 4}, {36, 5}, {3, 8}, {0, 2}, {20, 1}}) {
    const pliant_balance_request request{sizeof(pliant_balance_request), 0, world_size, blocks, costs.data()};
    std::vector<int32_t> answered(blocks + 1, -1);
    pliant_balance answer{sizeof(pliant_balance), 0, answered.data()};
    notes << calls.ask(&pliant_balancer::balance, &request, &answer).status << ": ";
    for (uint64_t block = 0; block < blocks; ++block) notes << answered[block] << ' ';
    notes << answer.flags << '\n';
  }
  return notes.str();
}

std::string device_work(const Calls<pliant_accelerator>& calls) {
  std::ostringstream notes;
  int32_t devices = -1;
  calls.must(&pliant_accelerator::device_count, &devices);
  notes << devices << " devices ";
  if (devices < 1) return notes.str();
  calls->free(calls.self(), 0, PLIANT_MEMORY_DEVICE, nullptr);
  const sdk::OwnedMemory memory(calls, 0, PLIANT_MEMORY_DEVICE, 256);
  const sdk::OwnedStream stream = sdk::make_stream(calls, 0);
  calls.must(&pliant_accelerator::fill_async, memory.get(), 42, 256, stream);
  calls.must(&pliant_accelerator::stream_synchronize, stream);
  std::array<unsigned char, 256> read{};
  calls.must(&pliant_accelerator::copy_async, read.data(), memory.get(), read.size(), stream);
  calls.must(&pliant_accelerator::stream_synchronize, stream);
  notes << std::accumulate(read.begin(), read.end(), 0);
  return notes.str();
}

/// A root with two modules, one of which uses a parameter of the other.
std::string give_model(const Calls<pliant_coordinator>& calls) {
  const pliant_parameter_row parameters[] = {{100, 512, 0, PLIANT_F32, 512, 256, "weight"},
                                             {0, 0, 0, PLIANT_F32, 0, 0, nullptr},
                                             {7, 256, PLIANT_PARAMETER_FROZEN, PLIANT_F32, 0, 0, nullptr}};
  const uint32_t numbers[] = {0, 1, 2};
  const pliant_module_row modules[] = {{0, 0, 0, 2, nullptr, nullptr, numbers + 1, nullptr},
                                       {0, 2, 0, 0, numbers, nullptr, nullptr, "layer"},
                                       {0, 1, 1, 0, numbers + 2, numbers, nullptr, nullptr}};
  const pliant_model model{sizeof(pliant_model),
                           0,
                           3,
                           sizeof(pliant_parameter_row),
                           parameters,
                           3,
                           sizeof(pliant_module_row),
                           modules,
                           0,
                           2,
                           0,
                           0};
  calls.must(&pliant_coordinator::set_model, &model);
  return {};
}

/// One step of it.
std::string actions(const Calls<pliant_coordinator>& calls) {
  give_model(calls);
  const uint32_t numbers[] = {0, 1, 2};
  std::ostringstream notes;
  std::vector<pliant_action> room(8 * 3 + 64);
  const auto note = [&](const auto& call) {
    pliant_action_list list{sizeof(pliant_action_list), 0, room.size(), 0, room.data()};
    call(&list);
    if (list.count > room.size()) throw std::runtime_error("more actions than there is room for");
    for (uint64_t i = 0; i < list.count; ++i) notes << room[i].kind << ':' << room[i].parameter << ' ';
    notes << '\n';
  };
  note([&](pliant_action_list* list) { calls.must(&pliant_coordinator::begin_pass, 0, list); });
  for (const uint32_t direction : {uint32_t{PLIANT_FORWARD}, uint32_t{PLIANT_BACKWARD}}) {
    const bool backward = direction == PLIANT_BACKWARD;
    const auto visit = [&](uint32_t module, uint64_t complete) {
      return pliant_visit{sizeof(pliant_visit), module, direction, 0, numbers, complete};
    };
    const auto enter = [&](uint32_t module) {
      const pliant_visit one = visit(module, 0);
      note([&](pliant_action_list* list) { calls.must(&pliant_coordinator::enter, &one, list); });
    };
    const auto leave = [&](uint32_t module, uint64_t complete) {
      const pliant_visit one = visit(module, complete);
      note([&](pliant_action_list* list) { calls.must(&pliant_coordinator::leave, &one, list); });
    };
    enter(0);
    for (const uint32_t module : {backward ? 2U : 1U, backward ? 1U : 2U}) {
      enter(module);
      leave(module, backward && module == 1 ? 2 : 0);
    }
    leave(0, 0);
  }
  note([&](pliant_action_list* list) { calls.must(&pliant_coordinator::end_pass, list); });
  note([&](pliant_action_list* list) { calls.must(&pliant_coordinator::end_step, list); });
  return notes.str();
}

std::string generations(const Calls<pliant_rendezvous>& calls) {
  std::ostringstream notes;
  // A run of its own for each instance: two of one run may meet.
  std::ostringstream name;
  name << "exercise-" << calls.self();
  const std::string run = name.str();
  const pliant_join_request request{sizeof(pliant_join_request), 3, {run.data(), run.size()}};
  for (int i = 0; i < 2; ++i) {
    pliant_generation made{};
    made.struct_size = sizeof(made);
    calls.must(&pliant_rendezvous::join, &request, &made);
    made.master_addr[sizeof(made.master_addr) - 1] = '\0';
    notes << made.node_count << ' ' << made.world_size << ' ' << made.master_addr << '\n';
  }
  int32_t changed = -1;
  calls.must(&pliant_rendezvous::watch, 0, &changed);
  notes << changed;
  return notes.str();
}

/// `work` with the slots of the instance's table, as this kit knows it.
template <class Table>
std::string with(const OwnInstance& instance, std::string (*work)(const Calls<Table>&)) {
  const auto table = sdk::widened<Table>(instance.record().vtable);
  return work({table, instance.self()});
}

}  // namespace

void prepare(const OwnInstance& instance) {
  if (instance.record().kind == std::string_view(PLIANT_KIND_COORDINATOR)) with(instance, &give_model);
}

std::string exercise(const OwnInstance& instance) {
  const std::string kind = instance.record().kind;
  if (kind == PLIANT_KIND_ELASTICITY_POLICY) return with(instance, &plan);
  if (kind == PLIANT_KIND_BATCH_SAMPLER) return with(instance, &rows);
  if (kind == PLIANT_KIND_BALANCER) return with(instance, &ranks);
  if (kind == PLIANT_KIND_LR_RULE) return with(instance, &rates);
  if (kind == PLIANT_KIND_ACCELERATOR) return with(instance, &device_work);
  if (kind == PLIANT_KIND_COORDINATOR) return with(instance, &actions);
  if (kind == PLIANT_KIND_RENDEZVOUS) return with(instance, &generations);
  throw std::runtime_error("no exercise for kind " + kind);
}

}  // namespace pliant::testkit
