// Rows that somebody made beforehand, as files of sampler `rows`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "npy_file.hpp"

namespace pliant::test {

struct Packed {
  std::vector<int64_t> offsets{0};
  std::vector<int64_t> ids;
};

/// Rows of one to three of so many sequences; `stride` shares no factor with their number.
inline Packed packed(int64_t sequences, int64_t stride = 89) {
  Packed made;
  for (int64_t i = 0; i < sequences; ++i) {
    made.ids.push_back(i * stride % sequences);
    const int64_t in_row = i + 1 - made.offsets.back();
    if (in_row > static_cast<int64_t>(made.offsets.size()) % 3 || i + 1 == sequences) made.offsets.push_back(i + 1);
  }
  return made;
}

/// offsets.npy and ids.npy.
inline void write_rows(const std::filesystem::path& folder, const Packed& rows) {
  write_npy(folder / "offsets.npy", rows.offsets);
  write_npy(folder / "ids.npy", rows.ids);
}

}  // namespace pliant::test
