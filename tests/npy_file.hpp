// Writes .npy files as numpy does.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace pliant::test {

/// The bytes of a file of `values`; `descr` says what they are: "<i8", "<f4".
template <class T>
std::string npy_bytes(const std::string& descr, const std::vector<T>& values) {
  std::string header =
      "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (" + std::to_string(values.size()) + ",), }";
  while ((10 + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += static_cast<char>(header.size() & 0xffU);
  bytes += static_cast<char>(header.size() >> 8U);
  return bytes + header + std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

inline void write_npy(const std::filesystem::path& file, const std::vector<int64_t>& values) {
  std::ofstream(file, std::ios::binary) << npy_bytes("<i8", values);
}

}  // namespace pliant::test
