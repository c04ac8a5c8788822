// exercise(): drives one instance of any kind through the calls of its kind and writes down what it answered.
#pragma once

#include <string>

#include "testkit/plugin.hpp"

namespace pliant::testkit {

/// The same for every instance made with the same options, whatever other instances exist. Throws std::runtime_error
/// when a call fails that must not.
std::string exercise(const OwnInstance& instance);

/// What exercise() gives an instance before all else and saved state is of: a coordinator's model.
void prepare(const OwnInstance& instance);

}  // namespace pliant::testkit
