// The first run of a data set without lengths: measures all of them in parallel, keeps what was measured when it is
// killed, and leaves a file that every later run reads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace pliant {

/// What is to be measured, and how.
struct LengthAnalysis {
  int64_t count = 0;  ///< sequences, >= 1
  /// Tokens of sequence i, 1 .. 2^31 - 1. Called once for each i, by `threads` threads at once. What it throws ends the
  /// analysis.
  std::function<int64_t(int64_t i)> length_of;
  /// What decides the lengths besides `count`: tokenizer, version of the data. UTF-8, 1 byte to 64 KiB. A file that was
  /// measured as something else is refused.
  std::string identity;
  int64_t threads = 0;  ///< 0 = one for each processor
  /// Told after every few hundred sequences, and once at the start with what an earlier run has left; `done` never
  /// falls. By one thread at a time. What it throws ends the analysis and comes out of analyse_lengths as it is.
  std::function<void(int64_t done, int64_t total)> progress;
};

struct AnalysedLengths {
  int64_t measured = 0;  ///< sequences measured by this call; 0 = the file was there
  int64_t resumed = 0;   ///< sequences taken over from a run that was stopped
};

/// Sees to it that `file`, an .npy of 32-bit integers that read_lengths and numpy read, holds the lengths of all
/// sequences. If it is there, its size and digest are checked and nothing is measured. It appears whole or not at all;
/// beside it `file`.origin.json says what was measured. Until then `file`.part holds what is done, in checked chunks: a
/// run that was killed or stopped by an error goes on there.
/// Throws, and keeps all finished chunks:
///   what length_of threw, with the sequence: status and origin of a pliant::Error, else kAborted
///   kInvalidArgument (kInput)     a length that is none, with its sequence; a member above that is out of range
///   kFailedPrecondition (kInput)  files of another identity or count, or that no analysis wrote; a place that cannot
///   be
///                                 written; another process is at it: wait for it, then call again
///   kDataLoss                     a damaged file, by name; a damaged chunk of .part is only measured again
///   kResourceExhausted            no space
AnalysedLengths analyse_lengths(const std::filesystem::path& file, const LengthAnalysis& analysis);

}  // namespace pliant
