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

[[noreturn]] inline void damaged(const std::string& how) {
  throw sdk::Failure(PLIANT_DATA_LOSS, "the state is damaged: " + how);
}

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

namespace detail {

inline uint64_t checksum(std::string_view text, uint64_t state) {
  for (const char c : text) state = (state ^ static_cast<unsigned char>(c)) * 0x100000001b3U;  // FNV-1a
  return state;
}
inline uint64_t state_checksum(const std::string& tag, const std::string& options, const std::string& position) {
  return checksum(position, checksum(options, checksum(tag, 0xcbf29ce484222325U)));
}

}  // namespace detail

/// `position` may be empty and may be of any size.
inline void save_position(const sdk::Writer& out, const std::string& tag, const std::string& options,
                          const std::string& position) {
  constexpr size_t kPortion = size_t{1} << 20U;  // the longest text that a Reader takes
  out.text(tag);
  out.text(options);
  out.value(static_cast<uint64_t>((position.size() + kPortion - 1) / kPortion));
  for (size_t at = 0; at < position.size(); at += kPortion) out.text(position.substr(at, kPortion));
  out.value(detail::state_checksum(tag, options, position));
}

/// What save_position wrote for the same tag and options. PLIANT_DATA_LOSS for foreign or damaged bytes,
/// PLIANT_FAILED_PRECONDITION for other options.
inline std::string load_position(const sdk::Reader& in, const std::string& tag, const std::string& options) {
  if (in.text() != tag) throw sdk::Failure(PLIANT_DATA_LOSS, "this is no state of " + tag);
  const std::string saved = in.text();
  std::string position;
  for (auto portions = in.value<uint64_t>(); portions > 0; --portions) position += in.text();
  const auto sum = in.value<uint64_t>();
  in.expect_end();
  if (sum != detail::state_checksum(tag, saved, position)) damaged("its checksum is wrong");
  if (saved != options) {
    throw sdk::Failure(PLIANT_FAILED_PRECONDITION, "the state was saved with other options (" + saved +
                                                       ") than those set now (" + options +
                                                       "); use the saved ones to resume");
  }
  return position;
}

}  // namespace pliant::sampler
