// A packing study, or several beside each other, as text, JSON, a figure and flat arrays.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "pack/study.hpp"

namespace pliant::cli {

std::string pack_text(const PackStudy& study);
/// One line, schema pliant.pack/1.
std::string pack_json(const PackStudy& study);

/// One sampler of a comparison: a study, or why there is none.
struct PackCompared {
  std::string sampler;
  std::optional<PackStudy> study;
  std::string refusal;
};
std::string pack_compare_text(const std::vector<PackCompared>& samplers);
/// One line, schema pliant.pack_compare/1.
std::string pack_compare_json(const std::vector<PackCompared>& samplers);

/// An SVG figure: lengths, how full the rows are, and the learning rate over the steps where there is one.
std::string pack_figure(const PackStudy& study);
/// The same of several samplers over each other. At least one of them has a study.
std::string pack_compare_figure(const std::vector<PackCompared>& samplers);

/// Throws (exit 2) where `folder` is there and is none or not empty.
void check_export_folder(const std::filesystem::path& folder);
/// Writes the rows into a new folder: row_offsets.npy (int64, rows + 1), ids.npy (int64), where sequences are in pieces
/// or truncated first_tokens.npy and token_counts.npy (int64), dropped.npy (int64), and pack.json last. Row i holds
/// entries row_offsets[i] .. row_offsets[i + 1]. Throws as check_export_folder, and where a file cannot be written or a
/// signal stops it; what was written goes away then.
void export_pack(const std::filesystem::path& folder, const PackStudy& study, Batches& batches, ProgressLine& progress);

}  // namespace pliant::cli
