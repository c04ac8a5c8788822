// The trace of a job: one file of what all of its workers recorded.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/result.hpp"
#include "elastic/run_directory.hpp"

namespace pliant::elastic {

/// Whether `file` can be written, tried with an empty one beside it: kInput for a path that is wrong. What is there
/// stays.
Result<> check_trace_file(const std::filesystem::path& file);

/// What is in a trace, for people.
struct WrittenTrace {
  int64_t ranks = 0;        ///< the largest number in one generation
  int64_t generations = 0;  ///< 0: nobody recorded anything, and no file was written
  int64_t steps = 0;
  uint64_t bytes = 0;
  int64_t cut = 0;          ///< workers whose record was full before they ended
  bool is_sharded = false;  ///< else steps are all there is
  std::string unread{};     ///< why a record was left out; empty: none was
};

/// Of the records in the run directory, which are removed: also those of workers that were killed.
Result<WrittenTrace> write_job_trace(const RunDirectory& directory, const std::string& run,
                                     const std::filesystem::path& file);

/// "trace: out.json, 4 ranks, 12 steps, 3.4 MiB; open it in ui.perfetto.dev or read it with `pliant trace out.json`".
std::string words_of(const WrittenTrace& trace, const std::filesystem::path& file);

}  // namespace pliant::elastic
