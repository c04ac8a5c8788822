// Checks of kind pliant.batch_sampler/0, by subject.
#pragma once

#include <vector>

#include "testkit/check.hpp"

namespace pliant::testkit {

std::vector<Check> row_checks();         // each epoch against the rules
std::vector<Check> epoch_checks();       // what an epoch may depend on, and how it is read
std::vector<Check> row_stream_checks();  // extension pliant.row_stream/0
std::vector<Check> packing_checks();     // extension pliant.packing/0

}  // namespace pliant::testkit
