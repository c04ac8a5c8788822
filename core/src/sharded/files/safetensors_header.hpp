// The header of .safetensors files as text: which tensors, of what type and shape, and where their bytes lie.
//
// A file is: u64 size of the header, little-endian; the header, a JSON object with a member for each tensor,
// {"name":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}, and maybe "__metadata__", an object of strings; then
// the bytes of the tensors without gaps. Offsets count from the end of the header.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "pliant/accelerator.hpp"

namespace pliant::sharded {

struct Tensor {
  std::string name;                          ///< UTF-8
  std::optional<DType> dtype = DType::kF32;  ///< none: `other_type` is
  std::vector<int64_t> shape;                ///< row-major; {} is one element
  uint64_t first_byte = 0;                   ///< in the bytes of the tensors; set by those who lay them out
  uint64_t bytes = 0;                        ///< likewise
  std::string other_type{};                  ///< as it stands in the file, where DType lacks it: "F8_E4M3"
};

using Metadata = std::map<std::string, std::string>;

struct SafetensorsHeader {
  std::vector<Tensor> tensors;  ///< in the order of their bytes
  Metadata metadata;
};

inline constexpr uint64_t kMostSafetensorsHeader = 100'000'000;  ///< bytes, as elsewhere

/// Bytes of a tensor's elements; of a type that DType lacks, what its `bytes` say. kInvalidArgument for an unknown
/// type, a negative length and more than 2^62 bytes.
Result<uint64_t> bytes_of(const Tensor& tensor);

/// Lays the tensors out in their order and writes the size and the header, padded with spaces to a multiple of 8 bytes.
/// kInvalidArgument for two tensors of one name, names and metadata that are no UTF-8, "__metadata__" as a name, types
/// that DType lacks, shapes as bytes_of() and a header above kMostSafetensorsHeader.
Result<std::string> encode_safetensors_header(SafetensorsHeader& header);

/// Reads the JSON of a header, in front of `data_bytes` bytes of tensors. kDataLoss, with what is wrong, where it is no
/// header, a name comes twice, sizes do not match types and shapes, or bytes belong to two tensors or to none. Element
/// types that DType lacks are left to those who ask for the tensor.
Result<SafetensorsHeader> decode_safetensors_header(std::string_view json, uint64_t data_bytes);

}  // namespace pliant::sharded
