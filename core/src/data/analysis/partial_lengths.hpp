// PartialLengths: the file of an analysis that is not done, measured chunk by measured chunk.
//
// Little-endian: "PLIANTLP", u32 version 1, u32 size of the identity, u64 count, u32 CRC-32 of the identity after all
// of that, u32 0, the identity; then for each chunk of kChunk sequences at its fixed place u64 mark, u32 CRC-32 of its
// lengths, u32 number of lengths, int32 length[kChunk]. A chunk that is not there, or was cut off, has another mark or
// another check sum.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "base/durable_file.hpp"
#include "base/result.hpp"
#include "data/analysis/measure.hpp"

namespace pliant::data {

class PartialLengths {
 public:
  static constexpr int64_t kChunk = 256;

  /// Opens `file`, or creates it, and holds it against other processes. kFailedPrecondition (kInput): another process
  /// has it, or it was measured as something else; kDataLoss: no such file, or damaged before its chunks.
  static Result<PartialLengths> open(const std::filesystem::path& file, const Measure& measure);

  [[nodiscard]] int64_t chunks() const { return (count_ + kChunk - 1) / kChunk; }
  /// Sequences [first, first + size) are chunk `chunk`.
  [[nodiscard]] int64_t first(int64_t chunk) const { return chunk * kChunk; }
  [[nodiscard]] int64_t size(int64_t chunk) const { return std::min(kChunk, count_ - first(chunk)); }

  /// The lengths of a chunk; nullopt when it is not there or damaged.
  [[nodiscard]] Result<std::optional<std::vector<int32_t>>> read(int64_t chunk) const;
  /// May be called by several threads at once, for different chunks. Survives the death of the process.
  [[nodiscard]] Result<> write(int64_t chunk, std::span<const int32_t> lengths) const;

  /// Takes the file away.
  void remove();

 private:
  PartialLengths(std::filesystem::path file, FileDescriptor fd, const Measure& measure);
  [[nodiscard]] uint64_t place(int64_t chunk) const;
  [[nodiscard]] Result<> check_header(const Measure& measure) const;

  std::filesystem::path file_;
  FileDescriptor fd_;
  int64_t count_;
  uint64_t header_size_;
};

}  // namespace pliant::data
