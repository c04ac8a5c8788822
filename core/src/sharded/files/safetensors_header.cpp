// Headers of .safetensors files: written as text, read by events, so that a name that comes twice is seen.
#include "sharded/files/safetensors_header.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

#include "base/printable.hpp"

namespace pliant::sharded {

namespace {

using nlohmann::json;

constexpr const char* kMetadataKey = "__metadata__";
constexpr uint64_t kMostTensorBytes = uint64_t{1} << 62U;

struct ElementType {
  DType dtype;
  std::string_view name;
  uint64_t bytes;
};
constexpr std::array<ElementType, 7> kElementTypes{{{DType::kF32, "F32", 4},
                                                    {DType::kF64, "F64", 8},
                                                    {DType::kI32, "I32", 4},
                                                    {DType::kI64, "I64", 8},
                                                    {DType::kU8, "U8", 1},
                                                    {DType::kF16, "F16", 2},
                                                    {DType::kBF16, "BF16", 2}}};

const ElementType* type_of(DType dtype) {
  const auto* const found = std::find_if(kElementTypes.begin(), kElementTypes.end(),
                                         [dtype](const ElementType& type) { return type.dtype == dtype; });
  return found == kElementTypes.end() ? nullptr : found;
}

const ElementType* type_named(std::string_view name) {
  const auto* const found = std::find_if(kElementTypes.begin(), kElementTypes.end(),
                                         [name](const ElementType& type) { return type.name == name; });
  return found == kElementTypes.end() ? nullptr : found;
}

bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t size = character_size(text, at);
    if (size == 0) return false;
    at += size;
  }
  return true;
}

std::string json_text(std::string_view text) {
  return json(std::string(text)).dump();
}

tl::unexpected<Error> unusable(std::string reason) {
  return failed(Status::kInvalidArgument, std::move(reason), Origin::kInput);
}

/// Takes the events of a parser. What it refuses stands in fault(), and ends the parsing.
class HeaderEvents {
 public:
  bool null() { return refuse("null where a tensor must be described"); }
  bool boolean(bool) { return refuse("a boolean where a tensor must be described"); }
  bool number_float(double, const std::string& text) {
    return refuse(fmt::format("{} is not a size", printable(text)));
  }
  bool binary(json::binary_t&) { return refuse("binary data where a tensor must be described"); }
  bool number_integer(int64_t value) { return refuse(fmt::format("{} is not a size", value)); }
  bool number_unsigned(uint64_t value) {
    if (in_ != In::kNumbers) return refuse(fmt::format("{} is unexpected", value));
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return refuse(fmt::format("{} is not a size", value));
    }
    numbers_.push_back(static_cast<int64_t>(value));
    return true;
  }
  bool string(std::string& text) {
    if (in_ == In::kMetadata) {
      header_.metadata[field_] = text;
      return true;
    }
    if (in_ != In::kTensor || field_ != "dtype") {
      return refuse(fmt::format("'{}' is unexpected", printable(text)));
    }
    if (text.empty()) return refuse(fmt::format("'{}' has no dtype", printable(tensor_.name)));
    if (const ElementType* type = type_named(text); type != nullptr) {
      tensor_.dtype = type->dtype;
    } else {
      tensor_.dtype.reset();
      tensor_.other_type = text;
    }
    return true;
  }
  bool start_object(size_t) {
    if (in_ == In::kNothing) {
      in_ = In::kHeader;
    } else if (in_ == In::kHeader) {
      in_ = tensor_.name == kMetadataKey ? In::kMetadata : In::kTensor;
      fields_.clear();
    } else {
      return refuse("it nests deeper than a header may");
    }
    return true;
  }
  bool key(std::string& name) {
    if (in_ == In::kHeader) {
      if (!names_.insert(name).second) return refuse(fmt::format("'{}' occurs twice", printable(name)));
      tensor_ = Tensor();
      tensor_.name = name;
      return true;
    }
    if (!fields_.insert(name).second) {
      return refuse(fmt::format("'{}' occurs twice in '{}'", printable(name), printable(tensor_.name)));
    }
    field_ = name;
    const bool is_known = in_ == In::kMetadata || name == "dtype" || name == "shape" || name == "data_offsets";
    return is_known || refuse(fmt::format("a tensor cannot have '{}'", printable(name)));
  }
  bool start_array(size_t) {
    if (in_ != In::kTensor || (field_ != "shape" && field_ != "data_offsets")) {
      return refuse("an array is unexpected");
    }
    in_ = In::kNumbers;
    numbers_.clear();
    return true;
  }
  bool end_array() {
    in_ = In::kTensor;
    if (field_ == "shape") {
      tensor_.shape = std::move(numbers_);
      return true;
    }
    if (numbers_.size() != 2 || numbers_[0] > numbers_[1]) {
      return refuse(fmt::format("the data_offsets of '{}' are not [begin, end]", printable(tensor_.name)));
    }
    tensor_.first_byte = static_cast<uint64_t>(numbers_[0]);
    tensor_.bytes = static_cast<uint64_t>(numbers_[1] - numbers_[0]);
    return true;
  }
  bool end_object() {
    if (in_ == In::kTensor) {
      if (fields_.size() != 3) {
        return refuse(fmt::format("'{}' lacks a dtype, a shape or data_offsets", printable(tensor_.name)));
      }
      header_.tensors.push_back(std::move(tensor_));
    }
    in_ = in_ == In::kHeader ? In::kNothing : In::kHeader;
    return true;
  }
  bool parse_error(size_t position, const std::string&, const json::exception&) {
    return refuse(fmt::format("its header is not JSON at byte {}", position));
  }

  [[nodiscard]] const std::string& fault() const { return fault_; }
  SafetensorsHeader& header() { return header_; }

 private:
  enum class In { kNothing, kHeader, kTensor, kMetadata, kNumbers };

  bool refuse(std::string reason) {
    fault_ = std::move(reason);
    return false;
  }

  In in_ = In::kNothing;
  std::string field_;
  Tensor tensor_;
  std::vector<int64_t> numbers_;
  std::set<std::string> names_;
  std::set<std::string> fields_;
  SafetensorsHeader header_;
  std::string fault_;
};

/// Every byte of the data belongs to one tensor.
Result<> check_bytes(const SafetensorsHeader& header, uint64_t data_bytes) {
  const auto fault = [](std::string reason) { return failed(Status::kDataLoss, std::move(reason)); };
  uint64_t end = 0;
  for (const Tensor& tensor : header.tensors) {
    const std::string name = printable(tensor.name);
    const Result<uint64_t> bytes = bytes_of(tensor);
    if (!bytes) return fault(bytes.error().message());
    if (*bytes != tensor.bytes) {
      return fault(fmt::format("'{}' has {} bytes, but its type and shape need {}", name, tensor.bytes, *bytes));
    }
    if (tensor.first_byte < end) return fault(fmt::format("'{}' begins inside another tensor", name));
    if (tensor.first_byte > end) {
      return fault(fmt::format("{} bytes before '{}' belong to no tensor", tensor.first_byte - end, name));
    }
    end += tensor.bytes;
    if (end > data_bytes) {
      return fault(fmt::format("it is cut short: '{}' ends {} bytes past its end", name, end - data_bytes));
    }
  }
  if (end < data_bytes) return fault(fmt::format("{} bytes at the end belong to no tensor", data_bytes - end));
  return {};
}

}  // namespace

Result<uint64_t> bytes_of(const Tensor& tensor) {
  if (!tensor.dtype) return tensor.bytes;
  const ElementType* type = type_of(*tensor.dtype);
  if (type == nullptr) {
    return unusable(
        fmt::format("'{}' has the unknown type {}", printable(tensor.name), static_cast<int32_t>(*tensor.dtype)));
  }
  uint64_t bytes = type->bytes;
  for (const int64_t length : tensor.shape) {
    if (length < 0) {
      return unusable(fmt::format("'{}' has the negative length {} in its shape", printable(tensor.name), length));
    }
    const auto times = static_cast<uint64_t>(length);
    if (times != 0 && bytes > kMostTensorBytes / times) {
      return unusable(fmt::format("'{}' has a shape that does not fit a file", printable(tensor.name)));
    }
    bytes *= times;
  }
  return bytes;
}

Result<std::string> encode_safetensors_header(SafetensorsHeader& header) {
  std::string text = "{";
  if (!header.metadata.empty()) {
    for (const auto& [key, value] : header.metadata) {
      if (!is_utf8(key) || !is_utf8(value)) {
        return unusable(fmt::format("the metadata '{}' of a .safetensors file is not UTF-8", printable(key)));
      }
    }
    text += fmt::format("\"{}\":{}", kMetadataKey, json(header.metadata).dump());
  }
  uint64_t end = 0;
  std::set<std::string_view> names;
  for (Tensor& tensor : header.tensors) {
    if (!is_utf8(tensor.name) || tensor.name == kMetadataKey) {
      return unusable(fmt::format("'{}' is not a valid tensor name for a .safetensors file", printable(tensor.name)));
    }
    if (!names.insert(tensor.name).second) {
      return unusable(fmt::format("two tensors have the name '{}'", printable(tensor.name)));
    }
    if (!tensor.dtype) {
      return unusable(fmt::format("'{}' has elements of type {}, which cannot be written", printable(tensor.name),
                                  printable(tensor.other_type)));
    }
    const Result<uint64_t> bytes = bytes_of(tensor);
    if (!bytes) return unusable(bytes.error().message());
    tensor.first_byte = end;
    tensor.bytes = *bytes;
    if (tensor.bytes > kMostTensorBytes - end) return unusable("the tensors together do not fit a file");
    end += tensor.bytes;
    text += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":[{},{}]}}", text.size() > 1 ? "," : "",
                        json_text(tensor.name), type_of(*tensor.dtype)->name, json(tensor.shape).dump(),
                        tensor.first_byte, end);
  }
  text += "}";
  text.append((8 - text.size() % 8) % 8, ' ');
  if (text.size() > kMostSafetensorsHeader) {
    return unusable(fmt::format("the names and shapes of {} tensors need {} bytes; a .safetensors file has room for {}",
                                header.tensors.size(), text.size(), kMostSafetensorsHeader));
  }
  std::string size;
  for (unsigned i = 0; i < 8; ++i) size += static_cast<char>(uint64_t{text.size()} >> (8 * i));
  return size + text;
}

Result<SafetensorsHeader> decode_safetensors_header(std::string_view text, uint64_t data_bytes) {
  if (text.empty() || text.front() != '{') return failed(Status::kDataLoss, "its header does not begin with '{'");
  HeaderEvents events;
  if (!json::sax_parse(text.begin(), text.end(), &events)) {
    return failed(Status::kDataLoss, events.fault());
  }
  SafetensorsHeader& header = events.header();
  std::sort(header.tensors.begin(), header.tensors.end(), [](const Tensor& left, const Tensor& right) {
    return std::tie(left.first_byte, left.bytes, left.name) < std::tie(right.first_byte, right.bytes, right.name);
  });
  if (Result<> sound = check_bytes(header, data_bytes); !sound) return failed(std::move(sound));
  return std::move(header);
}

}  // namespace pliant::sharded
