// .safetensors files over whole files and positioned reads.
#include "sharded/files/safetensors.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <string>

#include "base/printable.hpp"
#include "base/whole_file.hpp"
#include "pliant/sdk/accelerator.hpp"

namespace pliant::sharded {

namespace {

constexpr uint64_t kSizeBytes = 8;

tl::unexpected<Error> no_safetensors(const std::filesystem::path& file, Status status, std::string_view reason) {
  return failed(status, fmt::format("cannot read {} as a .safetensors file: {}; write or download it again",
                                    file.string(), reason));
}

/// Read at once.
constexpr size_t kBlock = 4096;

float float_of_bf16(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16U);
}

float float_of_f16(uint16_t bits) {
  const uint32_t sign = (bits & 0x8000U) << 16U;
  const uint32_t exponent = bits >> 10U & 0x1FU;
  const uint32_t fraction = bits & 0x3FFU;
  if (exponent == 0) {  // a multiple of 2^-24
    const float value = static_cast<float>(fraction) * 0x1p-24F;
    return sign != 0 ? -value : value;
  }
  const uint32_t wide = exponent == 0x1FU ? 0xFFU : exponent + 112;  // the biases are 127 and 15
  return std::bit_cast<float>(sign | wide << 23U | fraction << 13U);
}

}  // namespace

Result<> SafetensorsSink::write(const void* data, uint64_t bytes) {
  if (bytes > left_) {
    return failed(Status::kFailedPrecondition,
                  fmt::format("got {} bytes for tensors that have room for {} more", bytes, left_));
  }
  error_ = write_all_at(fd_, {static_cast<const char*>(data), static_cast<size_t>(bytes)}, next_);
  if (error_ != 0) return tl::unexpected<Error>(file_error(error_, "write", "the tensors"));
  next_ += bytes;
  left_ -= bytes;
  return {};
}

Result<> write_safetensors(const std::filesystem::path& file, SafetensorsHeader header, bool replace,
                           const std::function<Result<>(SafetensorsSink& sink)>& fill) {
  const Result<std::string> head = encode_safetensors_header(header);
  if (!head) {
    return failed(head.error().status(), fmt::format("cannot write {}: {}", file.string(), head.error().message()),
                  head.error().origin());
  }
  const uint64_t bytes = header.tensors.empty() ? 0 : header.tensors.back().first_byte + header.tensors.back().bytes;
  Result<> filled;
  WholeFile contents;
  contents.fill = [&](int fd) {
    if (const int error = write_all_at(fd, *head, 0); error != 0) return error;
    SafetensorsSink sink(fd, head->size(), bytes);
    filled = fill(sink);
    if (sink.error() != 0) return sink.error();
    if (filled && sink.left() > 0) {
      filled = failed(Status::kFailedPrecondition,
                      fmt::format("cannot write {}: {} of the {} bytes of its tensors are missing", file.string(),
                                  sink.left(), bytes));
    }
    return 0;
  };
  contents.before_name = [&] { return filled; };
  return write_whole(file, contents, replace);
}

Result<SafetensorsReader> SafetensorsReader::open(const std::filesystem::path& file) {
  Result<FileDescriptor> fd = open_file(file, O_RDONLY, "read");
  if (!fd) return failed(std::move(fd));
  struct stat status {};
  if (::fstat(fd->get(), &status) != 0) return tl::unexpected<Error>(file_error(errno, "read", file));
  const auto file_bytes = static_cast<uint64_t>(status.st_size);
  std::string text(kSizeBytes, '\0');
  size_t got = 0;
  if (const int error = read_at(fd->get(), text.data(), text.size(), 0, got); error != 0) {
    return tl::unexpected<Error>(file_error(error, "read", file));
  }
  if (got < kSizeBytes) return no_safetensors(file, Status::kDataLoss, "it is cut short");
  uint64_t header_bytes = 0;
  for (unsigned i = 0; i < kSizeBytes; ++i) {
    header_bytes |= uint64_t{static_cast<unsigned char>(text[i])} << (8 * i);
  }
  if (header_bytes > kMostSafetensorsHeader) {
    return no_safetensors(
        file, Status::kDataLoss,
        fmt::format("its header would have {} bytes; at most {} are allowed", header_bytes, kMostSafetensorsHeader));
  }
  if (header_bytes > file_bytes - kSizeBytes) return no_safetensors(file, Status::kDataLoss, "it is cut short");
  text.resize(static_cast<size_t>(header_bytes));
  if (const int error = read_at(fd->get(), text.data(), text.size(), kSizeBytes, got); error != 0) {
    return tl::unexpected<Error>(file_error(error, "read", file));
  }
  if (got < text.size()) return no_safetensors(file, Status::kDataLoss, "it shrank while being read");
  const uint64_t data_begin = kSizeBytes + header_bytes;
  Result<SafetensorsHeader> header = decode_safetensors_header(text, file_bytes - data_begin);
  if (!header) return no_safetensors(file, header.error().status(), header.error().message());
  SafetensorsReader reader(file, std::move(*fd));
  reader.data_begin_ = data_begin;
  reader.header_ = std::move(*header);
  return reader;
}

const Tensor* SafetensorsReader::find(std::string_view name) const {
  const auto found = std::find_if(header_.tensors.begin(), header_.tensors.end(),
                                  [name](const Tensor& tensor) { return tensor.name == name; });
  return found == header_.tensors.end() ? nullptr : &*found;
}

Result<> SafetensorsReader::read(const Tensor& tensor, uint64_t first, uint64_t bytes, void* to) const {
  if (first > tensor.bytes || bytes > tensor.bytes - first) {
    return failed(Status::kOutOfRange, fmt::format("'{}' in {} has {} bytes; cannot read {} from {} on",
                                                   printable(tensor.name), file_.string(), tensor.bytes, bytes, first));
  }
  size_t got = 0;
  const uint64_t offset = data_begin_ + tensor.first_byte + first;
  if (const int error = read_at(fd_.get(), static_cast<char*>(to), static_cast<size_t>(bytes), offset, got);
      error != 0) {
    return tl::unexpected<Error>(file_error(error, "read", file_));
  }
  if (got < bytes) return no_safetensors(file_, Status::kDataLoss, "it shrank while being read");
  return {};
}

Result<> SafetensorsReader::read_floats(const Tensor& tensor, std::span<float> values) const {
  if (tensor.dtype == DType::kF32) return read(tensor, 0, values.size_bytes(), values.data());
  if (tensor.dtype != DType::kBF16 && tensor.dtype != DType::kF16) {
    const std::string type =
        tensor.dtype ? sdk::name_of(static_cast<sdk::DType>(*tensor.dtype)) : printable(tensor.other_type);
    return failed(
        Status::kUnimplemented,
        fmt::format("'{}' in {} has elements of type {}; supported are f32, bf16 and f16: convert it to one of them",
                    printable(tensor.name), file_.string(), type));
  }
  std::array<uint16_t, kBlock> block{};
  for (size_t begin = 0; begin < values.size(); begin += kBlock) {
    const size_t count = std::min(kBlock, values.size() - begin);
    Result<> got = read(tensor, begin * sizeof(uint16_t), count * sizeof(uint16_t), block.data());
    if (!got) return got;
    for (size_t i = 0; i < count; ++i) {
      values[begin + i] = tensor.dtype == DType::kBF16 ? float_of_bf16(block[i]) : float_of_f16(block[i]);
    }
  }
  return {};
}

}  // namespace pliant::sharded
