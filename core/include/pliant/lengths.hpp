// Token counts of the sequences of a data set, read from the files that other tools leave behind.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace pliant {

/// Lengths of all sequences, in the order of the file. What the file is, its first bytes and its suffix say:
///   .npy          a one-dimensional numpy array of integers, or of floats that are whole numbers
///   .idx, .bin    DeepSpeed's metric files (MMIDIDX, the lengths are in the .bin beside), or the index of a Megatron
///                 data set (MMIDIDX, the lengths are in the .idx itself)
///   .i32, .i64    integers back to back, little-endian
///   .jsonl        an object in every line; `column` holds a number, or a list whose size counts
///   .txt          a number in every line; blank lines are skipped
///   a folder      DeepSpeed's metrics_path: seqlen/seqlen_sample_to_metric.idx in it, or the same without seqlen/
/// Throws (exit 2) with the file and, where there is one, the position: kNotFound; kDataLoss for a file that is cut
/// off, too long, byte-swapped or of another kind; kInvalidArgument for a value that is no length, 0 or negative.
/// O(n); a mapped file is read once.
std::vector<int64_t> read_lengths(const std::filesystem::path& file, const std::string& column = "length");

/// The values of DeepSpeed's metric files, `stem`.bin and `stem`.idx: any whole numbers. Throws as above.
std::vector<int64_t> read_metric_files(const std::filesystem::path& stem);

/// Writes `values` as DeepSpeed's metric files, `stem`.bin and `stem`.idx, byte for byte as DeepSpeed writes them: the
/// narrowest unsigned type that fits, or the narrowest signed one if a value is negative. Throws as above.
void write_metric_files(const std::filesystem::path& stem, const std::vector<int64_t>& values);

}  // namespace pliant
