// JSON of elasticity blocks: reading, comparing and showing it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace pliant {

/// An object, or kInvalidArgument (kInput) that begins with `origin`.
Result<nlohmann::json> parse_object(std::string_view text, const std::string& origin);

/// A number or a boolean, which counts as 0 or 1, as in Python.
bool is_number(const nlohmann::json& value);

/// Python's equality: numbers by value and exactly, 2^53 + 1 is no double and is none here; true is 1.
bool same(const nlohmann::json& a, const nlohmann::json& b);

/// For messages: ASCII, at most 200 characters.
std::string shown(const nlohmann::json& value);
std::string shown_key(const std::string& key);

/// `KEY is THEIRS for the scheduler (VARIABLE) but OURS for this job; ...`, kFailedPrecondition, kInput.
tl::unexpected<Error> scheduler_differs(std::string_view key, const nlohmann::json& theirs, const nlohmann::json& ours,
                                        const std::string& variable);

}  // namespace pliant
