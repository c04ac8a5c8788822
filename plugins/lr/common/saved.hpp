// The frame around the saved state of a rule: a magic word, a version, what the rule writes, nothing after it.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "pliant/sdk/lr_rule.hpp"

namespace pliant::lr {

/// `magic`: eight characters, the rule's own.
inline void write_frame(const sdk::Writer& out, const char (&magic)[9], uint32_t version) {
  out.bytes(magic, 8);
  out.value(version);
}

inline void read_frame(const sdk::Reader& in, const char (&magic)[9], uint32_t version) {
  char word[8] = {};
  in.bytes(word, sizeof(word));
  if (std::string(word, 8) != magic) throw sdk::Failure(PLIANT_DATA_LOSS, "the state is damaged: another magic word");
  const auto found = in.value<uint32_t>();
  if (found != version) {
    throw sdk::Failure(PLIANT_DATA_LOSS, "the state has version " + std::to_string(found) + ", this rule reads " +
                                             std::to_string(version));
  }
}

/// A number that a rule wrote, so finite and at least `low`; throws PLIANT_DATA_LOSS otherwise.
inline double read_number(const sdk::Reader& in, double low = 0) {
  const auto number = in.value<double>();
  if (!std::isfinite(number) || number < low)
    throw sdk::Failure(PLIANT_DATA_LOSS, "the state is damaged: a number that no rule writes");
  return number;
}

}  // namespace pliant::lr
