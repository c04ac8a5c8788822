// What rows fill of their budget.
#include "testkit/sampler/checks.hpp"
#include "testkit/sampler/sampler.hpp"

namespace pliant::testkit {

namespace {

constexpr int32_t kPackingLimitS = 60;

/// Units that row `row` takes at least.
uint64_t least_units(const EpochAsked& asked, const Rows& rows, uint64_t row, int32_t unit) {
  uint64_t tokens = 0;
  uint64_t longest = 0;
  uint64_t loss = 0;
  const uint64_t entries = rows.offsets[row + 1] - rows.offsets[row];
  for (uint64_t i = rows.offsets[row]; i < rows.offsets[row + 1]; ++i) {
    const auto count = static_cast<uint64_t>(rows.counts[i]);
    const auto id = static_cast<size_t>(rows.ids[i]);
    tokens += count;
    longest = std::max(longest, count);
    loss += asked.loss_tokens.empty() ? count : static_cast<uint64_t>(std::max(asked.loss_tokens[id], 1));
  }
  if (unit == PLIANT_UNIT_LOSS_TOKENS) return loss;
  return unit == PLIANT_UNIT_PADDED_TOKENS ? longest * entries : tokens;
}

/// Does `look(asked, epoch, report)` for reports that keep their ranges.
template <class Look>
void for_each_report(const Subject& subject, const Look& look) {
  for_each_sound_epoch(subject, [&](Sampler& sampler, const EpochAsked& asked, const Epoch& epoch, uint64_t) {
    const auto table = sampler.extension<pliant_packing>(PLIANT_PACKING);
    if (!table) skip("it has no " PLIANT_PACKING);
    Room<pliant_packing_report> report;
    const Reply answer =
        sampler.ask([&](pliant_error* error) { return table->report(sampler.self(), &report.given, error); });
    expect(answer.ok(), "of " + asked.text() + " report returned " + answer.text());
    look(asked, epoch, report);
  });
}

void report_ranges(const Subject& subject) {
  const OpenedPlugin plugin(subject.file);
  Sampler fresh(plugin, subject, 0);
  const auto table = fresh.extension<pliant_packing>(PLIANT_PACKING);
  if (!table) skip("it has no " PLIANT_PACKING);
  Room<pliant_packing_report> none;
  const Reply answer = fresh.ask([&](pliant_error* error) { return table->report(fresh.self(), &none.given, error); });
  expect(answer.status == PLIANT_FAILED_PRECONDITION, "without an epoch report returned " +
                                                          (answer.ok() ? std::string("PLIANT_OK") : answer.text()) +
                                                          ", not PLIANT_FAILED_PRECONDITION");
  for_each_report(subject, [](const EpochAsked&, const Epoch&, const Room<pliant_packing_report>& report) {
    expect(report.spilled("report").empty(), report.spilled("report"));
    const std::string fault = sdk::packing_fault(report.given);
    expect(fault.empty(), fault);
  });
}

void row_budget(const Subject& subject) {
  for_each_report(subject, [](const EpochAsked& asked, const Epoch& epoch, const Room<pliant_packing_report>& room) {
    const pliant_packing_report& report = room.given;
    if (report.budget == 0 || !sdk::packing_fault(report).empty()) return;
    for (uint64_t row = 0; row < epoch.rows.size(); ++row) {
      const uint64_t units = least_units(asked, epoch.rows, row, report.unit);
      expect(units <= static_cast<uint64_t>(report.budget), "row " + std::to_string(row) + " of " + asked.text() +
                                                                " uses " + std::to_string(units) + " of a budget of " +
                                                                std::to_string(report.budget));
    }
  });
}

void used_units(const Subject& subject) {
  for_each_report(subject, [](const EpochAsked& asked, const Epoch& epoch, const Room<pliant_packing_report>& room) {
    const pliant_packing_report& report = room.given;
    if (!sdk::packing_fault(report).empty() || report.used == UINT64_MAX) return;
    uint64_t least = 0;
    for (uint64_t row = 0; row < epoch.rows.size(); ++row) {
      least += least_units(asked, epoch.rows, row, report.unit);
    }
    const bool is_exact = report.unit == PLIANT_UNIT_TOKENS;
    expect(is_exact ? report.used == least : report.used >= least,
           "the rows of " + asked.text() + " take " + std::to_string(least) + " units" + (is_exact ? "" : " or more") +
               ", the report says " + std::to_string(report.used));
    const uint64_t most = static_cast<uint64_t>(report.budget) * epoch.rows.size();
    expect(report.budget == 0 || report.used <= most, "the report says " + std::to_string(report.used) +
                                                          " units, more than the budgets of " +
                                                          std::to_string(epoch.rows.size()) + " rows");
  });
}

void fewest_rows(const Subject& subject) {
  for_each_report(subject, [](const EpochAsked& asked, const Epoch& epoch, const Room<pliant_packing_report>& room) {
    uint64_t full = 0;
    for (uint64_t row = 0; row < epoch.rows.size(); ++row) {
      full += epoch.rows.offsets[row + 1] > epoch.rows.offsets[row] ? 1 : 0;
    }
    expect(room.given.least_rows <= full, "the report says that no packing of " + asked.text() + " has fewer than " +
                                              std::to_string(room.given.least_rows) + " rows; this one has " +
                                              std::to_string(full));
  });
}

}  // namespace

std::vector<Check> packing_checks() {
  return {
      {"packing.report", "a report has a unit and a budget; without an epoch there is none", report_ranges,
       kPackingLimitS},
      {"packing.budget", "no row exceeds the budget", row_budget, kPackingLimitS},
      {"packing.used", "the reported use is what the rows hold, and fits their budgets", used_units, kPackingLimitS},
      {"packing.least_rows", "the reported lower bound on rows is not above the number of rows", fewest_rows,
       kPackingLimitS},
  };
}

}  // namespace pliant::testkit
