// Bytes of a saved position: a tag, the options, the position, and a checksum over all of it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "pliant/sdk/plugin.hpp"

namespace pliant::sampler {

/// Numbers one after the other.
class ByteWriter {
 public:
  void number(uint64_t value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value)); }
  void number(int64_t value) { number(static_cast<uint64_t>(value)); }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

[[noreturn]] void damaged(const std::string& how);

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}
  uint64_t number() {
    if (bytes_.size() < sizeof(uint64_t)) damaged("it ends too early");
    uint64_t value = 0;
    std::memcpy(&value, bytes_.data(), sizeof(value));
    bytes_.remove_prefix(sizeof(value));
    return value;
  }
  int64_t integer() { return static_cast<int64_t>(number()); }
  /// A number of things that take at least `bytes_each`.
  uint64_t count(size_t bytes_each) {
    const uint64_t value = number();
    if (value > bytes_.size() / bytes_each) damaged("it ends too early");
    return value;
  }
  /// What is still unread.
  [[nodiscard]] std::string_view rest() const { return bytes_; }
  void expect_end() const {
    if (!bytes_.empty()) damaged("bytes are left over");
  }

 private:
  std::string_view bytes_;
};

/// `position` may be empty and may be of any size.
void save_position(const sdk::Writer& out, const std::string& tag, const std::string& options,
                   const std::string& position);

/// What save_position wrote for the same tag and options. PLIANT_DATA_LOSS for foreign or damaged bytes,
/// PLIANT_FAILED_PRECONDITION for other options.
std::string load_position(const sdk::Reader& in, const std::string& tag, const std::string& options);

}  // namespace pliant::sampler
