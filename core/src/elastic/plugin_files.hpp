// The plugins whose answers every process of a job must share, each with a digest of its file.
#pragma once

#include <string>
#include <vector>

#include "pliant/config.hpp"

namespace pliant::elastic {

/// "balancer lpt 0.1.0 <digest>" of sampler, balancer, learning-rate rules and coordinator, as far as `config` was
/// opened with them. The digest is of the file's bytes, wherever it lies, in hex; "unread" where it cannot be read.
/// What was put in its place since it was opened is taken for it.
std::vector<std::string> plugin_files(const Config& config);

}  // namespace pliant::elastic
