// SafetensorsParts: the tensors of a model that lies in one .safetensors file or, as large models do, in several beside
// an index.
//
// The index is a JSON object whose member "weight_map" says for each tensor in which file of the same folder it is.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.hpp"
#include "sharded/files/safetensors.hpp"

namespace pliant::sharded {

inline constexpr const char* kSafetensorsIndex = "model.safetensors.index.json";

/// One thread.
class SafetensorsParts {
 public:
  /// `path` is a .safetensors file, an index, whose name ends with ".json", or a folder with kSafetensorsIndex or,
  /// where that is not, model.safetensors. Every part is opened. kNotFound, naming what is not there; kDataLoss for
  /// what is no index or no whole .safetensors file, and where a part lacks a tensor that the index has in it.
  static Result<SafetensorsParts> open(const std::filesystem::path& path);

  /// Which part has it, and where.
  struct Place {
    size_t part = 0;
    const Tensor* tensor = nullptr;  ///< lives as long as this
  };
  /// In the order of the parts' names, then of their bytes. Of several parts only what the index names.
  [[nodiscard]] const std::vector<Place>& places() const { return places_; }
  /// nullptr: there is none. O(1).
  [[nodiscard]] const Place* find(std::string_view name) const;
  /// As SafetensorsReader::read_floats.
  Result<> read_floats(const Place& place, std::span<float> values) const {
    return parts_[place.part].read_floats(*place.tensor, values);
  }

 private:
  Result<> add_whole(const std::filesystem::path& file);
  Result<> add_named(const std::filesystem::path& index);
  void add(size_t part, const Tensor& tensor);

  std::vector<SafetensorsReader> parts_;
  std::vector<Place> places_;
  std::unordered_map<std::string_view, size_t> numbers_;  ///< of places, by name
};

}  // namespace pliant::sharded
