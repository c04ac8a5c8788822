// What C programs get is what C++ programs get: plans, batches, micro-batches, shares and rates, number by number.
#include "pliant/batches.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <thread>

#include "c_handles.hpp"
#include "pliant/balancer.hpp"
#include "pliant/learning_rate.hpp"
#include "pliant/micro_batches.hpp"
#include "pliant/plan.hpp"

using namespace pliant::test;

namespace {

pliant::Config config_for_cpp() {
  pliant::ConfigOverrides overrides;
  overrides.read_environment = false;
  return pliant::Config::parse(kJob, {"elasticity", "sampler", "balancer", "lr"}, overrides);
}

/// The same job through the C++ API.
struct CppJob {
  pliant::Config config = config_for_cpp();
  pliant::Plan plan = pliant::Planner(config).plan(3);
  pliant::Dataset dataset{some_lengths(), {}};
  pliant::Batches batches{config, plan, dataset};
};

template <class Element>
std::vector<Element> taken(const Element* elements, uint64_t count) {
  return elements == nullptr ? std::vector<Element>{} : std::vector<Element>(elements, elements + count);
}

void check_same(const pliant_batch_t* batch, const pliant::Batch& expected) {
  pliant_batch_view_t view = PLIANT_INIT(pliant_batch_view_t);
  REQUIRE(pliant_batch_look(batch, &view, nullptr) == PLIANT_OK);
  CHECK(view.epoch == expected.epoch);
  CHECK(view.index == expected.index);
  CHECK(view.digest == expected.digest);
  CHECK(view.longest_entry == expected.longest_entry);
  CHECK(pliant::BatchSize{view.rows, view.sequences, view.tokens, view.loss_tokens, view.padding_rows} ==
        expected.size);
  CHECK(taken(view.offsets, static_cast<uint64_t>(view.rows) + 1) == expected.offsets);
  CHECK(taken(view.ids, view.entry_count) == expected.ids);
  REQUIRE((view.first_tokens == nullptr) == expected.pieces.empty());
  for (size_t i = 0; i < expected.pieces.size(); ++i) {
    CHECK(expected.pieces[i] == pliant::Piece{view.first_tokens[i], view.token_counts[i], view.is_last[i] == 1});
  }
}

}  // namespace

TEST_CASE("C has the plan that C++ has") {
  const OwnedConfig config = config_of(kJob);
  const OwnedPlan plan = plan_of(config.get(), 3);
  const pliant::Plan expected = CppJob().plan;
  pliant_plan_facts_t facts = PLIANT_INIT(pliant_plan_facts_t);
  REQUIRE(pliant_plan_look(plan.get(), &facts, nullptr) == PLIANT_OK);
  CHECK(facts.global_batch == expected.global_batch);
  CHECK(facts.micro_batch == expected.micro_batch);
  CHECK(facts.granule == expected.granule);
  CHECK(facts.valid_sizes == expected.count());
  REQUIRE(facts.range_count == expected.world_sizes.size());
  for (size_t i = 0; i < facts.range_count; ++i) {
    const int64_t* const range = facts.ranges + 3 * i;
    CHECK(pliant::WorldRange{range[0], range[1], range[2]} == expected.world_sizes[i]);
  }
  int64_t below = -1;
  int64_t above = -1;
  REQUIRE(pliant_plan_nearest(plan.get(), 100, &below, &above, nullptr) == PLIANT_OK);
  CHECK(below == expected.largest_valid(100));
  CHECK(above == 0);
}

TEST_CASE("C has every batch that C++ has, in order, with the pieces of cut sequences") {
  const CJob job;
  CppJob expected;
  bool has_pieces = false;
  while (const auto batch = expected.batches.next()) {
    const auto next =
        made_by<OwnedBatch>([&](auto to, auto error) { return pliant_batches_next(job.batches.get(), to, error); });
    REQUIRE(next != nullptr);
    check_same(next.get(), *batch);
    has_pieces = has_pieces || !batch->pieces.empty();
  }
  CHECK(has_pieces);
  const auto after =
      made_by<OwnedBatch>([&](auto to, auto error) { return pliant_batches_next(job.batches.get(), to, error); });
  CHECK(after == nullptr);
}

TEST_CASE("C has the padded micro-batches that C++ has, those of rows that go over two batches, too") {
  const CJob job;
  CppJob expected;
  const OwnedBatch one = job.at_step(0);
  const OwnedBatch two = job.at_step(1);
  const std::vector<const pliant_batch_t*> both{one.get(), two.get()};
  pliant_layout_t layout = PLIANT_INIT(pliant_layout_t);
  layout.world_size = 3;
  layout.micro_batch = 5;
  layout.multiple = 4;
  layout.flags = PLIANT_LAYOUT_ONE_SHAPE | PLIANT_LAYOUT_INTERLEAVED;
  pliant::Layout same{3, 5, 1, pliant::RowMap::kInterleaved, {pliant::Line::kSequence, pliant::PadTo::kMicroBatch, 4}};
  same.one_shape = true;
  const std::vector<pliant::Batch> batches{expected.batches.at_step(0), expected.batches.at_step(1)};
  for (int64_t rank = 0; rank < 3; ++rank) {
    const auto padded = made_by<OwnedMicroBatches>(
        [&](auto to, auto error) { return pliant_micro_batches_make(both.data(), 2, &layout, rank, to, error); });
    pliant_micro_batches_view_t view = PLIANT_INIT(pliant_micro_batches_view_t);
    REQUIRE(pliant_micro_batches_look(padded.get(), &view, nullptr) == PLIANT_OK);
    const auto wanted = pliant::padded_micro_batches(batches, expected.dataset, same, rank);
    REQUIRE(view.count == wanted.size());
    for (size_t m = 0; m < wanted.size(); ++m) {
      const pliant::MicroBatch& want = wanted[m];
      const uint64_t entry = view.entry_offsets[m];
      CHECK(taken(view.rows + view.row_offsets[m], view.row_offsets[m + 1] - view.row_offsets[m]) == want.rows);
      CHECK(taken(view.ids + entry, view.entry_offsets[m + 1] - entry) == want.ids);
      CHECK(taken(view.lengths + view.line_offsets[m], view.line_offsets[m + 1] - view.line_offsets[m]) ==
            want.lengths);
      CHECK(view.empty_lines[m] == want.empty_lines);
      CHECK(view.tokens[m] == want.tokens);
      for (size_t i = 0; i < want.pieces.size(); ++i) {
        CHECK(want.pieces[i] ==
              pliant::Piece{view.first_tokens[entry + i], view.token_counts[entry + i], view.is_last[entry + i] == 1});
      }
    }
  }
}

TEST_CASE("C has the rows of a step padded as C++ has them") {
  const CJob job;
  CppJob expected;
  const OwnedBatch batch = job.at_step(0);
  pliant_layout_t layout = PLIANT_INIT(pliant_layout_t);
  layout.line = PLIANT_LINE_ROW;
  layout.pad_to = PLIANT_PAD_TO_BATCH;
  const auto padded = made_by<OwnedMicroBatches>(
      [&](auto to, auto error) { return pliant_micro_batches_of_rows(batch.get(), 2, 3, &layout, to, error); });
  pliant_micro_batches_view_t view = PLIANT_INIT(pliant_micro_batches_view_t);
  REQUIRE(pliant_micro_batches_look(padded.get(), &view, nullptr) == PLIANT_OK);
  const auto want = pliant::pad_rows(expected.batches.at_step(0), {2, 3}, expected.dataset,
                                     {pliant::Line::kRow, pliant::PadTo::kBatch, 1});
  CHECK(view.count == 1);
  CHECK(taken(view.lengths, view.line_offsets[1]) == want.lengths);
  CHECK(taken(view.ids, view.entry_offsets[1]) == want.ids);
}

TEST_CASE("C shares rows out as C++ does, and loses as much to waiting") {
  const CJob job;
  CppJob expected;
  const OwnedBatch batch = job.at_step(0);
  const auto balancer =
      made_by<OwnedBalancer>([&](auto to, auto error) { return pliant_balancer_make(job.config.get(), to, error); });
  uint64_t rows = 0;
  REQUIRE(pliant_row_costs(batch.get(), 1, 2, nullptr, 0, &rows, nullptr) == PLIANT_OK);
  std::vector<int64_t> costs(rows);
  REQUIRE(pliant_row_costs(batch.get(), 1, 2, costs.data(), costs.size(), &rows, nullptr) == PLIANT_OK);
  CHECK(costs == pliant::row_costs(expected.batches.at_step(0), expected.dataset, {1, 2}));
  pliant_sharing_t sharing = PLIANT_INIT(pliant_sharing_t);
  sharing.world_size = 3;
  sharing.micro_batch = 2;
  sharing.granule = 2;
  const auto assignment = made_by<OwnedAssignment>([&](auto to, auto error) {
    return pliant_balancer_assign(balancer.get(), costs.data(), rows, &sharing, to, error);
  });
  const pliant::Assignment want = pliant::Balancer(expected.config).assign(costs, {3, 2, 2});
  pliant_assignment_view_t view = PLIANT_INIT(pliant_assignment_view_t);
  REQUIRE(pliant_assignment_look(assignment.get(), &view, nullptr) == PLIANT_OK);
  REQUIRE(view.world_size == 3);
  for (size_t rank = 0; rank < 4; ++rank) CHECK(view.offsets[rank] == want.offsets[rank]);
  for (size_t i = 0; i < want.blocks.size(); ++i)
    CHECK(pliant::RowRange{view.blocks[2 * i], view.blocks[2 * i + 1]} == want.blocks[i]);
  pliant_waiting_t waiting = PLIANT_INIT(pliant_waiting_t);
  REQUIRE(pliant_assignment_waiting(assignment.get(), costs.data(), rows, &waiting, nullptr) == PLIANT_OK);
  CHECK(waiting.per_step == pliant::waiting(costs, want).per_step);
}

TEST_CASE("C has the rates that C++ has, before and after commits and a load") {
  const OwnedConfig config = config_of(kJob);
  const auto made = [&] {
    return made_by<OwnedRate>(
        [&](auto to, auto error) { return pliant_learning_rate_make(config.get(), nullptr, to, error); });
  };
  const OwnedRate rate = made();
  pliant::LearningRate expected(CppJob().config, {});
  pliant_batch_size_t size = PLIANT_INIT(pliant_batch_size_t);
  pliant_scaling_t scaling = PLIANT_INIT(pliant_scaling_t);
  for (int64_t step = 0; step < 5; ++step) {
    size.rows = size.sequences = 10 + step;
    size.tokens = size.loss_tokens = 100;
    const pliant::BatchSize same{size.rows, size.sequences, 100, 100, 0};
    REQUIRE(pliant_learning_rate_scaling(rate.get(), step, &size, 0, &scaling, nullptr) == PLIANT_OK);
    CHECK(scaling.learning_rate == expected.at(step, same));
    REQUIRE(pliant_learning_rate_commit(rate.get(), step, &size, nullptr, 0, nullptr) == PLIANT_OK);
    expected.commit(step, same);
  }
  uint64_t bytes = 0;
  REQUIRE(pliant_learning_rate_save(rate.get(), nullptr, 0, &bytes, nullptr) == PLIANT_OK);
  std::string saved(bytes, ' ');
  REQUIRE(pliant_learning_rate_save(rate.get(), saved.data(), bytes, &bytes, nullptr) == PLIANT_OK);
  CHECK(saved == expected.save());
  const OwnedRate other = made();
  REQUIRE(pliant_learning_rate_load(other.get(), saved.data(), bytes, nullptr) == PLIANT_OK);
  CHECK(pliant_learning_rate_commit(other.get(), 4, &size, nullptr, 0, nullptr) == PLIANT_FAILED_PRECONDITION);
}

TEST_CASE("a position goes on in other batches of the same job, and is refused where it is damaged") {
  const CJob job;
  const OwnedBatch first =
      made_by<OwnedBatch>([&](auto to, auto error) { return pliant_batches_next(job.batches.get(), to, error); });
  uint64_t bytes = 0;
  REQUIRE(pliant_batches_save(job.batches.get(), nullptr, 0, &bytes, nullptr) == PLIANT_OK);
  std::string saved(bytes, ' ');
  CHECK(pliant_batches_save(job.batches.get(), saved.data(), bytes - 1, &bytes, nullptr) == PLIANT_OUT_OF_RANGE);
  REQUIRE(pliant_batches_save(job.batches.get(), saved.data(), bytes, &bytes, nullptr) == PLIANT_OK);

  const CJob later;
  REQUIRE(pliant_batches_load(later.batches.get(), saved.data(), bytes, nullptr) == PLIANT_OK);
  const OwnedBatch second =
      made_by<OwnedBatch>([&](auto to, auto error) { return pliant_batches_next(later.batches.get(), to, error); });
  check_same(second.get(), CppJob().batches.at_step(1));
  const OwnedPlan plan = plan_of(job.config.get());
  const auto opened = made_by<OwnedBatches>([&](auto to, auto error) {
    return pliant_batches_open(job.config.get(), plan.get(), job.dataset.get(), saved.data(), bytes, to, error);
  });
  const OwnedBatch again =
      made_by<OwnedBatch>([&](auto to, auto error) { return pliant_batches_next(opened.get(), to, error); });
  check_same(again.get(), CppJob().batches.at_step(1));
  saved[bytes / 2] ^= 1;
  CHECK(pliant_batches_load(later.batches.get(), saved.data(), bytes, nullptr) == PLIANT_DATA_LOSS);
  pliant_job_facts_t facts = PLIANT_INIT(pliant_job_facts_t);
  REQUIRE(pliant_batches_look(later.batches.get(), &facts, nullptr) == PLIANT_OK);
  CHECK(facts.next_step == 2);
}

TEST_CASE("an epoch tells what it drops, and the mean of its batches") {
  std::string toml = kJob;
  const std::string concat = "use = \"concat\"\n[sampler.concat]\norder = \"random\"\nmax_tokens = 40\n";
  toml.replace(toml.find(concat), concat.size(),
               "use = \"fixed\"\n[sampler.fixed]\nmax_tokens = 20\nover_long = \"drop\"\n");
  const CJob job(toml);
  pliant_epoch_summary_t summary = PLIANT_INIT(pliant_epoch_summary_t);
  REQUIRE(pliant_batches_epoch(job.batches.get(), 0, &summary, nullptr) == PLIANT_OK);
  uint64_t count = 0;
  std::vector<int64_t> ids(200);
  REQUIRE(pliant_batches_dropped(job.batches.get(), 0, ids.data(), ids.size(), &count, nullptr) == PLIANT_OK);
  CHECK(static_cast<int64_t>(count) == summary.dropped);
  CHECK(summary.dropped > 0);
  CHECK(summary.dropped + summary.sequences == 200);
  for (uint64_t i = 0; i < count; ++i) CHECK(some_lengths()[static_cast<size_t>(ids[i])] > 20);
  CHECK(summary.mean_tokens == summary.tokens / summary.batches);
}

TEST_CASE("of calls that meet on one handle each is made or refused: every batch is handed out once") {
  const CJob job;
  const int64_t steps = [&] {
    pliant_job_facts_t facts = PLIANT_INIT(pliant_job_facts_t);
    REQUIRE(pliant_batches_look(job.batches.get(), &facts, nullptr) == PLIANT_OK);
    return facts.expected_steps;
  }();
  std::vector<std::vector<std::pair<int64_t, int64_t>>> seen(3);
  std::vector<int32_t> other_statuses(3, PLIANT_OK);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < seen.size(); ++t) {
    threads.emplace_back([&, t] {
      while (true) {
        pliant_batch_t* batch = nullptr;
        const int32_t status = pliant_batches_next(job.batches.get(), &batch, nullptr);
        if (status == PLIANT_FAILED_PRECONDITION) continue;  // another thread's call was under way
        if (status != PLIANT_OK) other_statuses[t] = status;
        if (batch == nullptr) return;
        pliant_batch_view_t view = PLIANT_INIT(pliant_batch_view_t);
        pliant_batch_look(batch, &view, nullptr);
        seen[t].emplace_back(view.epoch, view.index);
        pliant_batch_free(batch);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(other_statuses == std::vector<int32_t>(3, PLIANT_OK));
  std::vector<std::pair<int64_t, int64_t>> all;
  for (const auto& some : seen) all.insert(all.end(), some.begin(), some.end());
  std::sort(all.begin(), all.end());
  CHECK(static_cast<int64_t>(all.size()) == steps);
  CHECK(std::adjacent_find(all.begin(), all.end()) == all.end());
}
