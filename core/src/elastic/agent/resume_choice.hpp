// Which run `--resume` without a folder goes on with.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "elastic/run_directory.hpp"

namespace pliant::elastic {

/// True when the run has written a snapshot, whatever it is worth.
bool has_snapshots(const RunDirectory& directory);

/// The newest run of `name` that has committed a step or written a snapshot, or at which an agent is at work; where no
/// run has, the newest. `passed_over` gets those that are newer, the newest first. kNotFound (kInput) when there is
/// none.
Result<RunDirectory> newest_to_resume(const std::filesystem::path& log_dir, const std::string& name,
                                      std::vector<RunDirectory>& passed_over);

/// The newest run of `name` that `launcher` began (JobFacts::launcher); nullopt when there is none.
std::optional<RunDirectory> newest_of_launcher(const std::filesystem::path& log_dir, const std::string& name,
                                               const std::string& launcher);

}  // namespace pliant::elastic
