// report_run(): keeps what a replay of the ledger passes by.
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "base/result.hpp"
#include "elastic/ledger.hpp"
#include "elastic/run_directory.hpp"
#include "pliant/report.hpp"

namespace pliant {

namespace {

namespace fs = std::filesystem;
using elastic::CommitRecord;
using elastic::GenerationRecord;
using elastic::LedgerRecord;
using elastic::NotFiniteRecord;
using elastic::RestartRecord;

/// Takes the records in the order of the file.
class Course {
 public:
  explicit Course(RunReport& report) : report_(report) {}

  void take(const LedgerRecord& record) {
    if (const auto* commit = std::get_if<CommitRecord>(&record)) add(*commit);
    if (const auto* restart = std::get_if<RestartRecord>(&record)) go_back(restart->step);
    if (const auto* generation = std::get_if<GenerationRecord>(&record)) add(*generation);
    if (const auto* end = std::get_if<NotFiniteRecord>(&record)) {
      report_.not_finite_step = end->step;
      report_.not_finite_reason = end->reason;
    }
  }

  /// `global_batch`: rows of a whole batch.
  void mark_short(int64_t global_batch) {
    const auto mark = [global_batch](std::vector<StepReport>& steps) {
      for (StepReport& one : steps) one.short_batch = one.rows < global_batch;
    };
    mark(report_.steps);
    std::for_each(report_.discarded.begin(), report_.discarded.end(), mark);
  }

  /// Of the batch with the most rows, empty ones among them.
  [[nodiscard]] int64_t most_rows() const { return most_rows_; }

 private:
  void add(const CommitRecord& commit) {
    most_rows_ = std::max(most_rows_, commit.size.rows);
    report_.steps.push_back({commit.step, commit.generation, static_cast<int64_t>(commit.shares.size()), commit.loss,
                             commit.learning_rate, commit.size.tokens, commit.skipped, false,
                             commit.size.rows - commit.size.padding_rows, commit.metrics});
    if (report_.not_finite_step && commit.step >= *report_.not_finite_step) {  // the run was resumed, and went on
      report_.not_finite_step.reset();
      report_.not_finite_reason.clear();
    }
  }

  void go_back(int64_t step) {
    const auto first = report_.steps.begin() + static_cast<std::ptrdiff_t>(step);
    if (first == report_.steps.end()) return;
    discarded_ += report_.steps.end() - first;
    report_.discarded.emplace_back(first, report_.steps.end());
    report_.steps.erase(first, report_.steps.end());
  }

  void add(const GenerationRecord& record) {
    const bool is_first = report_.groups.empty();
    const GroupCause cause = record.cause == GroupCause::kStart && !is_first ? GroupCause::kResume : record.cause;
    report_.groups.push_back({record.generation, record.next_step, record.world_size,
                              is_first ? 0 : report_.groups.back().world_size, cause, record.reason,
                              std::exchange(discarded_, 0)});
  }

  RunReport& report_;
  int64_t discarded_ = 0;  ///< since the last generation
  int64_t most_rows_ = 0;
};

}  // namespace

int64_t RunReport::steps_discarded() const {
  int64_t count = 0;
  for (const auto& run : discarded) count += static_cast<int64_t>(run.size());
  return count;
}

int64_t RunReport::steps_skipped() const {
  return std::count_if(steps.begin(), steps.end(), [](const StepReport& one) { return one.skipped; });
}

RunReport report_run(const fs::path& run) {
  std::error_code error;
  if (!fs::exists(run / "ledger.jsonl", error)) {
    throw Error(Status::kNotFound, elastic::why_no_ledger(run), Origin::kInput);
  }
  const elastic::RunDirectory directory = or_throw(elastic::RunDirectory::open(run));
  RunReport report;
  Course course(report);
  const elastic::Lineage lineage = or_throw(
      elastic::Ledger::replay(directory.ledger(), [&course](const LedgerRecord& record) { course.take(record); }));
  const auto facts = directory.read_facts();  // a ledger on its own has none
  course.mark_short(facts && facts->global_batch > 0 ? facts->global_batch : course.most_rows());
  report.run_id = lineage.run_id;
  report.evaluations = lineage.evaluations;
  if (lineage.end) {
    report.ended_early = lineage.end->step;
    report.reason_to_end = lineage.end->reason;
  }
  report.directory = directory.path();
  return report;
}

}  // namespace pliant
