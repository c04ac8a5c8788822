// JSON of elasticity blocks.
#include "plan/block_json.hpp"

#include <fmt/format.h>

#include <cmath>
#include <utility>

namespace pliant {

using Json = nlohmann::json;

namespace {

template <class Integer>
bool same_integer(Integer a, const Json& b) {
  return b.is_number_unsigned() ? std::cmp_equal(a, b.get<uint64_t>()) : std::cmp_equal(a, b.get<int64_t>());
}

/// By value, exactly: 2^53 + 1 is no double, and is none here.
bool same_number(const Json& a, const Json& b) {
  if (b.is_number_float()) {
    if (a.is_number_float()) return a.get<double>() == b.get<double>();
    const auto real = b.get<double>();
    constexpr double kTwoTo63 = 9223372036854775808.0;
    if (std::trunc(real) != real || real < -kTwoTo63 || real >= 2 * kTwoTo63) return false;
    return real < kTwoTo63 ? same_integer(static_cast<int64_t>(real), a) : same_integer(static_cast<uint64_t>(real), a);
  }
  if (a.is_number_float()) return same_number(b, a);
  return a.is_number_unsigned() ? same_integer(a.get<uint64_t>(), b) : same_integer(a.get<int64_t>(), b);
}

}  // namespace

bool is_number(const Json& value) {
  return value.is_number() || value.is_boolean();
}

bool same(const Json& a, const Json& b) {
  if (a.is_boolean() && is_number(b)) return same(Json(a.get<bool>() ? 1 : 0), b);
  if (b.is_boolean() && is_number(a)) return same(a, Json(b.get<bool>() ? 1 : 0));
  if (a.type() == b.type() && a.is_structured()) {
    if (a.size() != b.size()) return false;
    for (auto it = a.begin(); it != a.end(); ++it) {
      const Json* other = nullptr;
      if (a.is_array()) {
        other = &b[static_cast<size_t>(it - a.begin())];
      } else if (const auto found = b.find(it.key()); found != b.end()) {
        other = &*found;
      }
      if (other == nullptr || !same(*it, *other)) return false;
    }
    return true;
  }
  return a.is_number() && b.is_number() ? same_number(a, b) : a == b;
}

std::string shown(const Json& value) {
  return value.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 200);
}

std::string shown_key(const std::string& key) {
  const std::string text = shown(Json(key));
  return text.substr(1, text.size() - 2);
}

Result<Json> parse_object(std::string_view text, const std::string& origin) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // the parser would skip it
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded() || text.starts_with(kByteOrderMark))
    return failed(Status::kInvalidArgument, origin + ": not JSON", Origin::kInput);
  if (!json.is_object()) {
    return failed(Status::kInvalidArgument, fmt::format("{}: expected a JSON object, found {}", origin, shown(json)),
                  Origin::kInput);
  }
  return json;
}

tl::unexpected<Error> scheduler_differs(std::string_view key, const Json& theirs, const Json& ours,
                                        const std::string& variable) {
  return failed(Status::kFailedPrecondition,
                fmt::format("{0} is {1} for the scheduler ({3}) but {2} for this job; start the job with the "
                            "scheduler's config, or unset {3}",
                            key, shown(theirs), shown(ours), variable),
                Origin::kInput);
}

}  // namespace pliant
