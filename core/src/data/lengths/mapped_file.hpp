// MappedFile: the bytes of a file, mapped read-only.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string_view>

#include "base/result.hpp"

namespace pliant::data {

class MappedFile {
 public:
  /// kNotFound or kFailedPrecondition, exit 2, with the file's name.
  static Result<MappedFile> open(const std::filesystem::path& file);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] std::string_view bytes() const { return {static_cast<const char*>(start_), size_}; }

  /// The value of type T at `offset`, which must lie within.
  template <class T>
  [[nodiscard]] T at(uint64_t offset) const {
    T value;
    std::memcpy(&value, static_cast<const char*>(start_) + offset, sizeof(T));
    return value;
  }

 private:
  MappedFile() = default;
  const void* start_ = nullptr;
  size_t size_ = 0;
};

Result<std::shared_ptr<const MappedFile>> open_shared(const std::filesystem::path& file);

}  // namespace pliant::data
