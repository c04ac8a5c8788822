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
  uint64_t options = 0;      ///< digest of the sampler's options, its state and the granule
  int64_t epoch = -1;        ///< of `step`; -1: not known, as in positions of version 1
  int64_t first_step = 0;    ///< of that epoch
  uint64_t rows = 0;         ///< digest of the rows of the epoch of the step before; 0: there is none

  /// The step before is in `epoch`, too, so that `rows` are its.
  [[nodiscard]] bool has_begun(int64_t of) const { return of == epoch && first_step < step && rows != 0; }
};

/// One line of JSON and its check sum.
std::string to_bytes(const Position& position);
/// kDataLoss for bytes that are none, were cut off or changed; kUnimplemented for those of a later version.
Result<Position> parse_position(std::string_view bytes);
/// kFailedPrecondition, kInput: `saved` does not lead into batches that begin where `now` is; says what differs.
Result<> check_same_batches(const Position& saved, const Position& now);
/// The same by `options` in place of the fingerprint, which takes a plan of epoch 0.
Result<> check_same_options(const Position& saved, const Position& now);

}  // namespace pliant::data
