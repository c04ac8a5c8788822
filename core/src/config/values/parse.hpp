// TOML text to Value. The only door to toml++.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "config/values/diagnostics.hpp"
#include "config/values/value.hpp"

namespace pliant::config {

/// What the number of a key may be, as a note says it: "run.workers must be 1..4096"; empty where nothing is known.
using RangeNote = std::function<std::string(const KeyPath&)>;

/// Parses a whole document. nullopt after a syntax error, which is then in `diagnostics`; one of a number that 64 bits
/// do not hold has the note of its key.
std::optional<Value> parse_document(std::string_view text, Diagnostics& diagnostics, const RangeNote& range_note = {});

/// Parses the right side of an assignment typed by the user: a TOML value, or else a bare word as a string. `origin` is
/// given to it and to everything in it.
Value parse_override(std::string_view text, const ValueOrigin& origin);

/// Parses `a."b.c".d`; nullopt when it is no TOML key.
std::optional<KeyPath> parse_key(std::string_view text);

}  // namespace pliant::config
