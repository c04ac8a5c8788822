// TOML text to Value. The only door to toml++.
#pragma once

#include <optional>
#include <string_view>

#include "config/values/diagnostics.hpp"
#include "config/values/value.hpp"

namespace pliant::config {

/// Parses a whole document. nullopt after a syntax error, which is then in `diagnostics`.
std::optional<Value> parse_document(std::string_view text, Diagnostics& diagnostics);

/// Parses the right side of an assignment typed by the user: a TOML value, or else a bare word as a string. `origin` is
/// given to it and to everything in it.
Value parse_override(std::string_view text, const Origin& origin);

/// Parses `a."b.c".d`; nullopt when it is no TOML key.
std::optional<KeyPath> parse_key(std::string_view text);

}  // namespace pliant::config
