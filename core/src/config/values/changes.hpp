// What differs between the config of a run and that of the job which is to go on with it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pliant::config {

/// Of the options that decide a job's batches ([sampler], [data] and the seed), those that differ between two resolved
/// configs, as `sampler.best_fit.max_tokens = 512 (was 256)`. Of another sampler only its name is told. Empty when none
/// differs or a text is no TOML.
std::vector<std::string> changed_batch_options(std::string_view before, std::string_view now);

}  // namespace pliant::config
