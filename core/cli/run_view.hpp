// RunView: shows a running job: a live line on a terminal, plain lines elsewhere, and the summary at the end.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pliant/job.hpp"

namespace pliant::cli {

class RunView final : public JobObserver {
 public:
  /// `live`: stderr is a terminal that can rewrite its line. `quiet`: warnings only.
  RunView(bool live, bool quiet, bool color) : live_(live), quiet_(quiet), color_(color) {}
  ~RunView() override;

  void on_commit(const JobProgress& progress) override;
  void on_busy(const std::vector<BusyWorker>& workers) override;
  void on_event(std::string_view line, bool warning) override;
  /// Ends the live line. Call before something else is printed.
  void finish_line();

 private:
  void draw();

  bool live_;
  bool quiet_;
  bool color_;
  bool line_open_ = false;
  double drawn_at_ = -1;
  std::optional<JobProgress> progress_;  ///< after the last commit
  std::string busy_;                     ///< who does what is no step; empty: nobody
  bool said_busy_ = false;               ///< since somebody began to be
};

/// The table that ends a run.
std::string summary_table(const JobSummary& summary);
/// One line of JSON, schema pliant.run/1.
std::string summary_json(const JobSummary& summary);

}  // namespace pliant::cli
