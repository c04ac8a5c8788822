// Rows that are streamed are those that are planned, wherever one reads them.
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <string>
#include <utility>
#include <vector>

#include "config/instances.hpp"
#include "data/epoch_plan.hpp"
#include "plugin/plugin.hpp"
#include "scratch.hpp"

using namespace pliant;
using pliant::test::Scratch;

namespace {

/// A sampler of the build tree, with its stream or without.
struct Opened {
  Opened(const Scratch& scratch, const std::string& toml, bool streams)
      : instance(or_throw(config::instantiate(scratch.config(toml), "sampler"))) {
    sampler.slots = &instance.table<pliant_batch_sampler>();
    sampler.self = instance.self();
    sampler.refusal = [this](int32_t status, const pliant_error& error) {
      return plugin::to_error(instance.plugin(), status, error);
    };
    if (!streams) return;
    sampler.stream =
        static_cast<const pliant_row_stream*>(instance.plugin().record().extension(instance.self(), PLIANT_ROW_STREAM));
    sampler.save = [this] { return instance.save(); };
    sampler.load = [this](std::string_view saved) { return instance.load(saved); };
  }
  plugin::Instance instance;
  static data::Sampler named() {
    data::Sampler sampler;
    sampler.name = "sampler 'opened'";
    return sampler;
  }
  data::Sampler sampler = named();
};

const std::vector<std::string> kStreams{
    "[sampler]\nuse = \"next_fit\"\n[sampler.next_fit]\nmax_tokens = 40\nover_long = \"split\"\n",
    "[sampler]\nuse = \"streaming\"\n[sampler.streaming]\nmax_tokens = 40\nopen_packs = 4\nover_long = \"truncate\"\n",
    "[sampler]\nuse = \"concat\"\n[sampler.concat]\nmax_tokens = 40\n"};

Dataset random_dataset(size_t most) {
  return {
      *rc::gen::container<std::vector<int32_t>>(*rc::gen::inRange<size_t>(1, most), rc::gen::inRange<int32_t>(1, 60)),
      {}};
}

void check_same(const Batch& a, const Batch& b) {
  RC_ASSERT(a.offsets == b.offsets);
  RC_ASSERT(a.ids == b.ids);
  RC_ASSERT(a.pieces == b.pieces);
  RC_ASSERT(a.digest == b.digest);
  RC_ASSERT(a.size == b.size);
}

}  // namespace

TEST_CASE("streamed rows are the planned ones, read forth and back in any order") {
  const Scratch scratch;
  CHECK(rc::check([&] {
    const std::string toml = kStreams[*rc::gen::inRange<size_t>(0, kStreams.size())];
    Opened planning(scratch, toml, false);
    Opened streaming(scratch, toml, true);
    const Dataset dataset = random_dataset(200);
    auto planned = or_throw(data::EpochPlan::make(planning.sampler, {1, 2, 4, dataset}));
    auto streamed = or_throw(data::EpochPlan::make(streaming.sampler, {1, 2, 4, dataset}));
    RC_ASSERT(streamed.facts().digest == planned.facts().digest);
    RC_ASSERT(streamed.summary().sequences == planned.summary().sequences);
    RC_ASSERT(streamed.summary().tokens == planned.summary().tokens);
    RC_ASSERT(streamed.summary().longest_row == planned.summary().longest_row);
    RC_ASSERT(streamed.facts().truncated.ids() == planned.facts().truncated.ids());
    const auto rows = static_cast<uint64_t>(planned.summary().rows);
    for (int look = 0; look < 5; ++look) {
      const auto first = *rc::gen::inRange<uint64_t>(0, rows);
      const auto count = *rc::gen::inRange<uint64_t>(1, rows - first + 1);
      check_same(or_throw(streamed.cut(0, first, count)), or_throw(planned.cut(0, first, count)));
    }
  }));
}

TEST_CASE("a long stream is read back from its marks") {
  const Scratch scratch;
  Opened planning(scratch, kStreams[1], false);
  Opened streaming(scratch, kStreams[1], true);
  std::vector<int32_t> lengths;
  for (int32_t i = 0; i < 600000; ++i) lengths.push_back(1 + (i % 997 * 7919) % 45);
  const Dataset dataset{std::move(lengths), {}};
  auto planned = or_throw(data::EpochPlan::make(planning.sampler, {1, 0, 4, dataset}));
  auto streamed = or_throw(data::EpochPlan::make(streaming.sampler, {1, 0, 4, dataset}));
  const auto rows = static_cast<uint64_t>(planned.summary().rows);
  REQUIRE(rows > 300000);  // more than marks are kept for at the first distance
  for (const uint64_t first : {rows - 10, uint64_t{0}, rows / 2, uint64_t{4095}, uint64_t{4096}, rows / 3}) {
    CAPTURE(first);
    const Batch a = or_throw(planned.cut(0, first, 10));
    const Batch b = or_throw(streamed.cut(0, first, 10));
    CHECK(a.ids == b.ids);
    CHECK(a.digest == b.digest);
  }
}

TEST_CASE("a stream that cannot have these options is planned instead") {
  const Scratch scratch;
  Opened streaming(scratch, "[sampler]\nuse = \"next_fit\"\n[sampler.next_fit]\nmax_tokens = 60\norder = \"random\"\n",
                   true);
  auto plan = data::EpochPlan::make(streaming.sampler, {1, 0, 4, {{5, 6, 7}, {}}});
  REQUIRE(plan.has_value());
  CHECK(plan->summary().sequences == 3);
}

TEST_CASE("a stream that finds every array too small is refused, not given all of the memory") {
  const Scratch scratch;
  Opened streaming(scratch, kStreams[0], true);
  pliant_row_stream greedy = *streaming.sampler.stream;
  greedy.next = [](void*, uint64_t, uint64_t, uint64_t* rows, uint64_t*, int64_t*, int64_t*, int64_t*,
                   pliant_error*) -> int32_t {
    *rows = 0;
    return PLIANT_OUT_OF_RANGE;
  };
  streaming.sampler.stream = &greedy;
  const auto plan = data::EpochPlan::make(streaming.sampler, {1, 0, 4, {{5, 6, 7}, {}}});
  REQUIRE_FALSE(plan.has_value());
  CHECK(plan.error().status() == Status::kOutOfRange);
}

TEST_CASE("a row with more entries than there was room for is asked for again") {
  const Scratch scratch;
  Opened streaming(scratch, "[sampler]\nuse = \"next_fit\"\n[sampler.next_fit]\nmax_tokens = 1000000000\n", true);
  auto plan = data::EpochPlan::make(streaming.sampler, {1, 0, 4, {std::vector<int32_t>(200000, 1), {}}});
  REQUIRE(plan.has_value());
  CHECK(plan->summary().rows == 1);
  CHECK(or_throw(plan->cut(0, 0, 1)).ids.size() == 200000);
}
