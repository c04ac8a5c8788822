// Where tinylm keeps what it computes once from a text, and how several workers share it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace tinylm {

/// ${XDG_CACHE_HOME:-~/.cache}/pliant. Throws pliant::Error when the environment names neither.
std::filesystem::path cache_directory();

/// Where scripts/fetch-text puts the default text.
std::filesystem::path default_text();

/// Whole content of `file`. Throws pliant::Error.
std::string read_file(const std::filesystem::path& file);

/// Another process sees all of `content` under this name or what was there before. Throws pliant::Error.
void write_atomically(const std::filesystem::path& file, std::string_view content);

/// Not for security: tells texts and damaged files apart.
uint64_t digest_of(std::string_view bytes);

/// Holds `file` locked against other processes. The lock ends with the object, or with the process however it dies.
class FileLock {
 public:
  /// Waits for its turn. Throws pliant::Error when the file cannot be made.
  explicit FileLock(const std::filesystem::path& file);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int descriptor_ = -1;
};

/// The bytes of the values, behind what is there.
template <class V>
void append(std::string& out, const V* values, size_t count) {
  out.append(reinterpret_cast<const char*>(values), count * sizeof(V));
}

}  // namespace tinylm
