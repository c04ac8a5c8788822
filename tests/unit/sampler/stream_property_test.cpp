// The row stream of samplers that keep the order: the rows of the plan, from any row on after a restore.
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include "sampler_plugin.hpp"

namespace stream_property_test {

using namespace pliant;
using namespace pliant::test;

namespace {

int64_t below(int64_t bound) {
  return *rc::gen::inRange<int64_t>(0, bound);
}

struct Case {
  std::string sampler;
  OptionMap options;
  Asked asked;
};

Case random_case() {
  Case made;
  made.sampler = *rc::gen::elementOf(std::vector<std::string>{"next_fit", "streaming", "concat"});
  made.options = {{"max_tokens", 1 + below(60)}, {"order", "dataloader"}};
  made.asked.lengths = *rc::gen::container<std::vector<int32_t>>(rc::gen::inRange<int32_t>(1, 90));
  made.asked.seed = *rc::gen::arbitrary<uint64_t>();
  made.asked.epoch = below(3);
  made.asked.rows_per_batch = 1 + below(4);
  if (made.sampler != "concat") {
    made.options["over_long"] = *rc::gen::elementOf(std::vector<std::string>{"truncate", "split"});
    made.options["max_sequences"] = below(4);
  }
  if (made.sampler == "streaming") {
    made.options["open_packs"] = 1 + below(5);
    made.options["max_wait"] = 10 + below(80);
    made.options["window"] = 1 + below(40);
    if (below(4) == 0) made.options["max_tokens"] = (int64_t{1} << 21) + below(10);
  }
  if (below(3) == 0 && !made.asked.lengths.empty()) {
    made.asked.has_ids = true;
    for (size_t id = made.asked.lengths.size(); id-- > 0;) {
      if (below(2) == 0) made.asked.ids.push_back(static_cast<int64_t>(id));
    }
  }
  return made;
}

/// All rows left, in portions of `portion`.
Planned drain(OpenedSampler& sampler, uint64_t portion) {
  Planned rows;
  while (or_throw(sampler.next(portion, rows)) != 0) {
  }
  return rows;
}

}  // namespace

TEST_CASE("the stream gives the rows of the plan, in portions of any size") {
  CHECK(rc::check([] {
    const Case asked = random_case();
    const Planned plan = or_throw(OpenedSampler(asked.sampler, asked.options).plan(asked.asked));
    OpenedSampler streamed(asked.sampler, asked.options);
    or_throw(streamed.open(asked.asked));
    const Planned rows = drain(streamed, static_cast<uint64_t>(1 + below(5)));
    RC_ASSERT(rows.rows == plan.rows);
    RC_ASSERT(rows.pieces == plan.pieces);
  }));
}

TEST_CASE("a state saved after any row goes on with the next one, saved twice too") {
  CHECK(rc::check([] {
    const Case asked = random_case();
    OpenedSampler first(asked.sampler, asked.options);
    or_throw(first.open(asked.asked));
    Planned rows;
    (void)or_throw(first.next(static_cast<uint64_t>(below(12)), rows));
    const std::string saved = or_throw(first.instance().save());
    OpenedSampler second(asked.sampler, asked.options);
    or_throw(second.instance().load(saved));
    RC_ASSERT(or_throw(second.instance().save()) == saved);
    or_throw(second.open(asked.asked));
    RC_ASSERT(or_throw(second.instance().save()) == saved);
    const Planned rest = drain(first, 3);
    RC_ASSERT(drain(second, 2) == rest);
    rows.rows.insert(rows.rows.end(), rest.rows.begin(), rest.rows.end());
    RC_ASSERT(rows.rows == or_throw(OpenedSampler(asked.sampler, asked.options).plan(asked.asked)).rows);
  }));
}

}  // namespace stream_property_test
