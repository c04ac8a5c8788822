// Where the keys of [app] stand in the file that the user wrote. Workers read another one, the resolved config, and
// what they have against [app] is to point at the first.
#pragma once

#include <string>
#include <string_view>

#include "config/values/value.hpp"
#include "pliant/config.hpp"

namespace pliant::config {

/// Places and source lines of all keys of [app] of `config`, as one line of JSON.
std::string app_places(const Config& config);

/// Gives the keys of [app] in `root` the places that app_places() wrote into `json`. A key that it does not have, or a
/// text that it did not write, changes nothing: the places of the file that was read are right, too.
void place_app(std::string_view json, Value& root);

}  // namespace pliant::config
