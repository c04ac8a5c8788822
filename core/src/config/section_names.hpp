// Names of sections: those that no section has, and what they were meant to be.
#pragma once

#include "config/values/diagnostics.hpp"
#include "config/values/value.hpp"

namespace pliant::config {

/// Reports members of `root` that are no sections. A table under a misspelt name is moved into the section that is
/// meant, so that what it holds is checked, too; keys that the section has itself stay. Moved is only a table with a
/// key or table that the section can have.
void check_section_names(Value& root, Diagnostics& diagnostics);

}  // namespace pliant::config
