// .safetensors files: written whole or not at all, read after everything in them was checked.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string_view>

#include "base/durable_file.hpp"
#include "base/result.hpp"
#include "sharded/files/safetensors_header.hpp"

namespace pliant::sharded {

/// Takes the bytes of the tensors, in their order and in pieces of any size.
class SafetensorsSink {
 public:
  SafetensorsSink(int fd, uint64_t first, uint64_t bytes) : fd_(fd), next_(first), left_(bytes) {}
  /// kFailedPrecondition where the tensors have no room for them; kResourceExhausted and others where the disk fails.
  Result<> write(const void* data, uint64_t bytes);
  /// Bytes that are still to come.
  [[nodiscard]] uint64_t left() const { return left_; }
  /// errno of what failed; 0 for none.
  [[nodiscard]] int error() const { return error_; }

 private:
  int fd_;
  uint64_t next_;
  uint64_t left_;
  int error_ = 0;
};

/// Writes the header, has `fill` write the bytes, syncs, renames and syncs the folder. An existing file is refused
/// unless `replace`. On failure, an error or exception of `fill` included, nothing is left and an old file is as it
/// was. kInvalidArgument as encode_safetensors_header(); kFailedPrecondition where `fill` wrote too few bytes.
Result<> write_safetensors(const std::filesystem::path& file, SafetensorsHeader header, bool replace,
                           const std::function<Result<>(SafetensorsSink& sink)>& fill);

/// One open file. One thread.
class SafetensorsReader {
 public:
  /// kNotFound, kDataLoss for what is no whole .safetensors file. Types of elements that are not known are left to
  /// those who read the tensor.
  static Result<SafetensorsReader> open(const std::filesystem::path& file);

  [[nodiscard]] const SafetensorsHeader& header() const { return header_; }
  /// NULL: there is none.
  [[nodiscard]] const Tensor* find(std::string_view name) const;
  /// Bytes first..first+bytes of a tensor of this file; kOutOfRange where it has fewer.
  Result<> read(const Tensor& tensor, uint64_t first, uint64_t bytes, void* to) const;
  /// A tensor of f32, bf16 or f16 as f32, which has every value of the others; kUnimplemented for other types,
  /// kOutOfRange where it has fewer elements than `values`.
  Result<> read_floats(const Tensor& tensor, std::span<float> values) const;

 private:
  SafetensorsReader(std::filesystem::path file, FileDescriptor fd) : file_(std::move(file)), fd_(std::move(fd)) {}

  std::filesystem::path file_;
  FileDescriptor fd_;
  uint64_t data_begin_ = 0;
  SafetensorsHeader header_;
};

}  // namespace pliant::sharded
