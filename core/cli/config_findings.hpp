// What stops a run although its config is well-formed.
#pragma once

#include <optional>

#include "config/open.hpp"
#include "pliant/error.hpp"

namespace pliant::cli {

/// Everything that `pliant run` would stop for before it starts a worker, as one error with all of it, by place: what
/// opening the config found, the rules of [lr] against the optimizer, what the coordinator refuses, workers that the
/// plan has no place for, files and the program that are not there. What needs a section is left out where that has
/// errors. nullopt when nothing is found.
std::optional<Error> run_findings(const config::Examined& examined);

}  // namespace pliant::cli
