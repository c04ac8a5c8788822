// Position: where in the batches of a job somebody stopped, as bytes that say when they do not fit what is loaded now.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace pliant::data {

struct Position {
  std::string sampler;  ///< name and version
  std::string source;   ///< what the data set is called in messages
  uint64_t sequences = 0;
  uint64_t data_digest = 0;
  uint64_t seed = 0;
  int64_t global_batch = 0;
  uint64_t fingerprint = 0;  ///< of all that decides the batches
  int64_t step = 0;          ///< the next one
};

/// One line of JSON and its check sum.
std::string to_bytes(const Position& position);
/// kDataLoss for bytes that are none, were cut off or changed; kUnimplemented for those of a later version.
Result<Position> parse_position(std::string_view bytes);
/// kFailedPrecondition, exit 2: `saved` does not lead into batches that begin where `now` is; says what differs.
Result<> check_same_batches(const Position& saved, const Position& now);

}  // namespace pliant::data
