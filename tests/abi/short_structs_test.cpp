// Structs that are shorter than today's, of every kind: what a caller hands to a slot is refused by name when it lacks
// what it had in its first draft, and what a slot answers ends where its caller has no more room. The plugins are those
// that are built against longer headers, and some of our own for slots that those do not fill or answer anew each time.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "pliant/abi/accelerator.h"
#include "pliant/abi/balancer.h"
#include "pliant/abi/batch_sampler.h"
#include "pliant/abi/coordinator.h"
#include "pliant/abi/elasticity_policy.h"
#include "pliant/abi/lr_rule.h"
#include "pliant/abi/optimizer.h"
#include "pliant/abi/packing.h"
#include "pliant/abi/rendezvous.h"
#include "pliant/sdk/calls.hpp"
#include "pliant/sdk/coordinator.hpp"
#include "plugin/option_values.hpp"
#include "plugin/plugin.hpp"
#include "short_tables.hpp"

using namespace pliant;

namespace {

constexpr int32_t kTokens = 5;  ///< of each sequence, and of a row

plugin::Instance opened_from(const std::string& file, const sdk::Kind& kind) {
  auto opened = or_throw(plugin::Plugin::open(file, kind));
  plugin::OptionValues values;
  values.state().reset(opened->options());
  for (size_t i = 0; i < opened->options().size(); ++i) {
    values.state().set_default(i, opened->options()[i]);
    if (std::string_view(opened->options()[i].key) == "max_tokens") values.state().set_integer(i, kTokens);
  }
  return or_throw(plugin::Instance::create(std::move(opened), values));
}

/// One that was built against longer headers.
plugin::Instance made_of(std::string_view section, std::string_view name) {
  return opened_from(fmt::format("{}/later-plugins/{}-{}.pliant.so", PLIANT_PLUGINS_OF_OTHER_TIMES, section, name),
                     *plugin::kind_of(section));
}

/// One of ours, of today's headers.
plugin::Instance own(std::string_view section, std::string_view name) {
  for (const char* const file : {PLIANT_OWN_PLUGIN_FILES}) {
    if (std::filesystem::path(file).filename() == fmt::format("{}-{}.pliant.so", section, name)) {
      return opened_from(file, *plugin::kind_of(section));
    }
  }
  throw std::runtime_error(fmt::format("there is no {}-{}", section, name));
}

template <class Table>
sdk::Calls<Table> calls_of(const plugin::Instance& instance) {
  return {instance.table<Table>(), instance.self()};
}

sdk::Answer answer_of(const std::function<void()>& body) {
  pliant_error error = sdk::blank_error();
  const int32_t status = sdk::detail::guarded(&error, body);
  return {status, error.message, error.options, -1, -1};
}

/// A struct that the host hands over, with its size in front.
struct Handed {
  std::string name;
  std::vector<std::byte> whole;
  size_t needed;  ///< bytes of its first draft
  std::function<sdk::Answer(void* given)> call;
};

template <class Struct>
Handed handed(const char* name, const Struct& whole, size_t needed, std::function<sdk::Answer(Struct* given)> call) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(&whole);
  return {name, {bytes, bytes + sizeof(whole)}, needed, [call = std::move(call)](void* given) {
            return call(static_cast<Struct*>(given));
          }};
}
#define UP_TO(Struct, field) (offsetof(Struct, field) + sizeof(Struct::field))

int32_t no_bytes(void*, const void*, uint64_t) {
  return PLIANT_OK;
}
int32_t nothing_more(void*, void*, uint64_t, uint64_t* got) {
  *got = 0;
  return PLIANT_OK;
}
int32_t no_sizes(void*, const pliant_world_range*, uint64_t) {
  return PLIANT_OK;
}

struct NoOptions {};

template <class Struct>
Struct blank() {
  Struct made{};
  made.struct_size = sizeof(made);
  return made;
}

/// What one test hands to the plugins, alive as long as their instances.
struct Border {
  const plugin::Instance elasticity = made_of("elasticity", "my-elasticity");
  const plugin::Instance sampler = made_of("sampler", "streaming");
  const plugin::Instance balancer = made_of("balancer", "my-balancer");
  const plugin::Instance lr = made_of("lr", "my-lr");
  const plugin::Instance coordinator = made_of("coordinator", "counting");
  const plugin::Instance rendezvous = made_of("rendezvous", "my-rendezvous");
  const plugin::Instance adascale = own("lr", "adascale");
  const plugin::Instance fixed = own("sampler", "fixed");
  const plugin::Instance zero3 = own("coordinator", "zero3");
  const plugin::Instance sim = own("accelerator", "sim");
  const plugin::Instance host = own("accelerator", "host");
  std::vector<int32_t> lengths = std::vector<int32_t>(20, kTokens);
  std::vector<int64_t> costs = std::vector<int64_t>(4, 1);
  std::vector<int32_t> ranks = std::vector<int32_t>(4, -1);
  std::vector<pliant_action> room = std::vector<pliant_action>(128);
  pliant_parameter_row parameter{8, 256, 0, PLIANT_F32, 0, 0, nullptr};
  uint32_t number = 0;
  pliant_module_row module{0, 1, 0, 0, &number, nullptr, nullptr, nullptr};

  pliant_plan_request plan_request = blank<pliant_plan_request>();
  pliant_world_sink sink{sizeof(pliant_world_sink), 0, nullptr, &no_sizes};
  pliant_epoch_request epoch_request = blank<pliant_epoch_request>();
  pliant_balance_request balance_request{sizeof(pliant_balance_request), 0, 2, 4, costs.data()};
  pliant_balance balance{sizeof(pliant_balance), 0, ranks.data()};
  pliant_lr_output before{sizeof(pliant_lr_output), 0, 0.1, 0.1, 1, 1, 1, 1, 1, 1, 1, 1, 32};
  pliant_lr_input lr_input = blank<pliant_lr_input>();
  pliant_lr_committed committed{sizeof(pliant_lr_committed), 0, 16, 5, 64, 2};
  void* memory = nullptr;
  pliant_model model = blank<pliant_model>();
  pliant_visit visit = blank<pliant_visit>();
  pliant_action_list list{sizeof(pliant_action_list), 0, room.size(), 0, room.data()};
  pliant_join_request join_request{sizeof(pliant_join_request), 2, {"run", 3}};
  std::array<std::array<float, 8>, 4> arrays{};  ///< of an optimizer
  pliant_stream* stream = nullptr;               ///< of the host

  Border() {
    epoch_request.rows_per_batch = 4;
    epoch_request.sequence_count = lengths.size();
    epoch_request.lengths = lengths.data();
    lr_input.optimizer = PLIANT_OPTIMIZER_SGD;
    lr_input.unit = PLIANT_BATCH_TOKENS;
    lr_input.base_lr = 0.1;
    lr_input.base_batch = 32;
    lr_input.batch = 64;
    lr_input.base_counts = {4, 4, 32, 32};
    lr_input.counts = {8, 8, 64, 64};
    lr_input.previous = &before;
    model.parameter_count = 1;
    model.parameter_stride = sizeof(parameter);
    model.parameters = &parameter;
    model.module_count = 1;
    model.module_stride = sizeof(module);
    model.modules = &module;
    model.world_size = 2;
    visit.direction = PLIANT_FORWARD;
    for (const plugin::Instance* const one : {&coordinator, &zero3}) {
      const auto calls = calls_of<pliant_coordinator>(*one);
      calls.must(&pliant_coordinator::set_model, &model);
      calls.must(&pliant_coordinator::begin_pass, 0, &list);
    }
    auto epoch = blank<pliant_epoch>();
    calls_of<pliant_batch_sampler>(fixed).must(&pliant_batch_sampler::begin_epoch, &epoch_request, &epoch);
    calls_of<pliant_accelerator>(sim).must(&pliant_accelerator::alloc, 0, PLIANT_MEMORY_DEVICE, 4096, &memory);
    calls_of<pliant_accelerator>(host).must(&pliant_accelerator::stream_create, 0, PLIANT_STREAM_COMPUTE, 0, &stream);
  }
  ~Border() {
    host.table<pliant_accelerator>().stream_destroy(host.self(), stream);
    sim.table<pliant_accelerator>().free(sim.self(), 0, PLIANT_MEMORY_DEVICE, memory);
  }
  Border(const Border&) = delete;
  Border& operator=(const Border&) = delete;

  sdk::Answer plan(const pliant_plan_request* request, pliant_plan* out, const pliant_world_sink* sizes) const {
    return calls_of<pliant_elasticity_policy>(elasticity).ask(&pliant_elasticity_policy::plan, request, out, sizes);
  }
  sdk::Answer scale(const pliant_lr_input* input, pliant_lr_output* out) const {
    return calls_of<pliant_lr_rule>(lr).ask(&pliant_lr_rule::scale, input, out);
  }
};

std::vector<Handed> all_handed(Border& b) {
  return {
      handed<pliant_plan_request>("pliant_plan_request", b.plan_request, UP_TO(pliant_plan_request, world_size_text),
                                  [&b](auto* given) {
                                    auto plan = blank<pliant_plan>();
                                    return b.plan(given, &plan, &b.sink);
                                  }),
      handed<pliant_world_sink>("pliant_world_sink", b.sink, UP_TO(pliant_world_sink, append),
                                [&b](auto* given) {
                                  auto plan = blank<pliant_plan>();
                                  return b.plan(&b.plan_request, &plan, given);
                                }),
      handed<pliant_epoch_request>("pliant_epoch_request", b.epoch_request, UP_TO(pliant_epoch_request, loss_tokens),
                                   [&b](auto* given) {
                                     auto epoch = blank<pliant_epoch>();
                                     return calls_of<pliant_batch_sampler>(b.sampler).ask(
                                         &pliant_batch_sampler::begin_epoch, given, &epoch);
                                   }),
      handed<pliant_balance_request>(
          "pliant_balance_request", b.balance_request, UP_TO(pliant_balance_request, costs),
          [&b](auto* given) {
            return calls_of<pliant_balancer>(b.balancer).ask(&pliant_balancer::balance, given, &b.balance);
          }),
      handed<pliant_balance>(
          "pliant_balance", b.balance, UP_TO(pliant_balance, ranks),
          [&b](auto* given) {
            return calls_of<pliant_balancer>(b.balancer).ask(&pliant_balancer::balance, &b.balance_request, given);
          }),
      handed<pliant_lr_input>("pliant_lr_input", b.lr_input, UP_TO(pliant_lr_input, previous),
                              [&b](auto* given) {
                                pliant_lr_output out = b.before;
                                return b.scale(given, &out);
                              }),
      handed<pliant_lr_output>("pliant_lr_output", b.before, UP_TO(pliant_lr_output, progress),
                               [&b](auto* given) {
                                 pliant_lr_output out = b.before;
                                 pliant_lr_input input = b.lr_input;
                                 input.previous = given;
                                 return b.scale(&input, &out);
                               }),
      handed<pliant_lr_committed>(
          "pliant_lr_committed", b.committed, UP_TO(pliant_lr_committed, big_norm),
          [&b](auto* given) {
            return calls_of<pliant_lr_rule>(b.adascale).ask(&pliant_lr_rule::commit, &b.lr_input, &b.before, given);
          }),
      handed<pliant_model>(
          "pliant_model", b.model, UP_TO(pliant_model, tiers),
          [](auto* given) { return answer_of([&] { static_cast<void>(sdk::detail::model_of(given)); }); }),
      handed<pliant_visit>("pliant_visit", b.visit, UP_TO(pliant_visit, complete_count),
                           [&b](auto* given) {
                             const auto calls = calls_of<pliant_coordinator>(b.coordinator);
                             b.list.count = 0;
                             sdk::Answer entered = calls.ask(&pliant_coordinator::enter, given, &b.list);
                             b.list.count = 0;
                             if (entered.ok()) calls.must(&pliant_coordinator::leave, &b.visit, &b.list);
                             return entered;
                           }),
      handed<pliant_action_list>("pliant_action_list", b.list, UP_TO(pliant_action_list, actions),
                                 [&b](auto* given) {
                                   const auto calls = calls_of<pliant_coordinator>(b.coordinator);
                                   sdk::Answer entered = calls.ask(&pliant_coordinator::enter, &b.visit, given);
                                   b.list.count = 0;
                                   if (entered.ok()) calls.must(&pliant_coordinator::leave, &b.visit, &b.list);
                                   return entered;
                                 }),
      handed<pliant_adamw_update>(
          "pliant_adamw_update", {sizeof(pliant_adamw_update), 1, 0.9F, 0.95F, 0.1F, 1, 0.1F, 0},
          UP_TO(pliant_adamw_update, decay),
          [&b](auto* given) {
            const auto* const table = or_throw(b.host.extension<pliant_optimizer>(PLIANT_OPTIMIZER));
            return sdk::Calls<pliant_optimizer>(*table, b.host.self())
                .ask(&pliant_optimizer::adamw_async, given, b.arrays[0].data(), b.arrays[1].data(), b.arrays[2].data(),
                     b.arrays[3].data(), b.arrays[0].size(), b.stream);
          }),
      handed<pliant_join_request>(
          "pliant_join_request", b.join_request, UP_TO(pliant_join_request, run_id),
          [&b](auto* given) {
            auto made = blank<pliant_generation>();
            return calls_of<pliant_rendezvous>(b.rendezvous).ask(&pliant_rendezvous::join, given, &made);
          }),
      handed<pliant_option_values>("pliant_option_values", {sizeof(pliant_option_values), 0, 0, nullptr},
                                   UP_TO(pliant_option_values, values),
                                   [](auto* given) {
                                     return answer_of([&] {
                                       NoOptions none;
                                       sdk::Options<NoOptions>().apply(*given, none);
                                     });
                                   }),
      handed<pliant_writer>("pliant_writer", {sizeof(pliant_writer), 0, nullptr, &no_bytes},
                            UP_TO(pliant_writer, write),
                            [](auto* given) { return answer_of([&] { sdk::Writer(given).value(1); }); }),
      handed<pliant_reader>("pliant_reader", {sizeof(pliant_reader), 0, nullptr, &nothing_more},
                            UP_TO(pliant_reader, read),
                            [](auto* given) { return answer_of([&] { sdk::Reader(given).expect_end(); }); }),
  };
}

/// A struct that a slot fills, as far as its caller has room.
struct Answered {
  std::string name;
  size_t bytes;
  std::function<sdk::Answer(void* room)> call;
};

template <class Struct>
Answered answered(const char* name, std::function<sdk::Answer(Struct* room)> call) {
  return {name, sizeof(Struct), [call = std::move(call)](void* room) { return call(static_cast<Struct*>(room)); }};
}

std::vector<Answered> all_answered(Border& b) {
  return {
      answered<pliant_plan>("pliant_plan", [&b](auto* room) { return b.plan(&b.plan_request, room, &b.sink); }),
      answered<pliant_epoch>("pliant_epoch",
                             [&b](auto* room) {
                               return calls_of<pliant_batch_sampler>(b.sampler).ask(&pliant_batch_sampler::begin_epoch,
                                                                                    &b.epoch_request, room);
                             }),
      answered<pliant_lr_facts>(
          "pliant_lr_facts",
          [&b](auto* room) { return calls_of<pliant_lr_rule>(b.lr).ask(&pliant_lr_rule::describe, room); }),
      answered<pliant_lr_output>("pliant_lr_output", [&b](auto* room) { return b.scale(&b.lr_input, room); }),
      answered<pliant_device_properties>("pliant_device_properties",
                                         [&b](auto* room) {
                                           return calls_of<pliant_accelerator>(b.sim).ask(
                                               &pliant_accelerator::device_properties, 0, room);
                                         }),
      answered<pliant_generation>("pliant_generation",
                                  [&b](auto* room) {
                                    // Of an instance of its own: generations rise.
                                    const plugin::Instance fresh = made_of("rendezvous", "my-rendezvous");
                                    return calls_of<pliant_rendezvous>(fresh).ask(&pliant_rendezvous::join,
                                                                                  &b.join_request, room);
                                  }),
      answered<pliant_pointer_info>("pliant_pointer_info",
                                    [&b](auto* room) {
                                      return calls_of<pliant_accelerator>(b.sim).ask(&pliant_accelerator::pointer_info,
                                                                                     b.memory, room);
                                    }),
      answered<pliant_packing_report>(
          "pliant_packing_report",
          [&b](auto* room) {
            const auto* const table = or_throw(b.fixed.extension<pliant_packing>(PLIANT_PACKING));
            return sdk::Calls<pliant_packing>(*table, b.fixed.self()).ask(&pliant_packing::report, room);
          }),
      answered<pliant_coordinator_counts>(
          "pliant_coordinator_counts",
          [&b](auto* room) {
            const auto* const table =
                or_throw(b.zero3.extension<pliant_coordinator_counters>(PLIANT_COORDINATOR_COUNTERS));
            return sdk::Calls<pliant_coordinator_counters>(*table, b.zero3.self())
                .ask(&pliant_coordinator_counters::read, room);
          }),
      answered<pliant_error>("pliant_error",
                             [](auto* room) {
                               sdk::detail::set_error(room, sdk::Failure(PLIANT_NOT_FOUND, "no", "it").about_rank(3));
                               return sdk::Answer{};
                             }),
  };
}

}  // namespace

TEST_CASE("what a host hands over is refused by name when it lacks what it had in its first draft") {
  Border border;
  for (const Handed& one : all_handed(border)) {
    CAPTURE(one.name);
    for (size_t bytes = 4; bytes <= one.whole.size() + 24; bytes += bytes + 8 < one.needed ? 8 : 4) {
      CAPTURE(bytes);
      std::vector<std::byte> given = one.whole;
      given.resize(bytes);
      const auto size = static_cast<uint32_t>(bytes);
      std::memcpy(given.data(), &size, sizeof(size));
      const test::AtPageEnd at_end(given.data(), bytes);
      const sdk::Answer answer = one.call(at_end.get());
      CAPTURE(answer.message);
      CHECK(answer.status == (bytes < one.needed ? PLIANT_INVALID_ARGUMENT : PLIANT_OK));
      if (bytes >= one.needed) continue;
      CHECK(answer.message ==
            fmt::format("the host's {} is too short: {} bytes, {} are needed", one.name, bytes, one.needed));
    }
    if (one.name == "pliant_option_values") continue;  // taken by reference
    CHECK(one.call(nullptr).message == fmt::format("the host's {} is NULL", one.name));
  }
}

TEST_CASE("what a slot answers ends where its caller has no more room, and says the same up to there") {
  Border border;
  for (const Answered& one : all_answered(border)) {
    CAPTURE(one.name);
    const auto answer_in = [&one](size_t bytes) {
      std::vector<std::byte> room(bytes);
      const auto size = static_cast<uint32_t>(bytes);
      std::memcpy(room.data(), &size, sizeof(size));
      const test::AtPageEnd at_end(room.data(), bytes);
      const sdk::Answer answer = one.call(at_end.get());
      CHECK_MESSAGE(answer.ok(), answer.message);
      std::memcpy(room.data(), at_end.get(), bytes);
      CHECK(std::memcmp(room.data(), &size, sizeof(size)) == 0);
      return room;
    };
    const std::vector<std::byte> whole = answer_in(one.bytes);
    CHECK(whole != std::vector<std::byte>(one.bytes));
    for (size_t bytes = 4; bytes <= one.bytes + 24; bytes += bytes < 64 || bytes + 16 > one.bytes ? 4 : 20) {
      CAPTURE(bytes);
      const std::vector<std::byte> room = answer_in(bytes);
      const size_t known = std::min(bytes, one.bytes);
      CHECK(std::memcmp(room.data() + 4, whole.data() + 4, known - 4) == 0);
    }
  }
}
