// Reads the instructions of SPIR-V that name entry points, capabilities and functions.
#include "spirv.hpp"

#include <cstring>
#include <map>
#include <vector>

namespace soft_ze {
namespace {

constexpr uint32_t kSpirvMagic = 0x07230203;
constexpr size_t kHeaderWords = 5;
enum Operation : uint32_t { kMemoryModel = 14, kEntryPoint = 15, kCapability = 17, kFunction = 54, kFunctionEnd = 56 };
enum : uint32_t { kModelKernel = 6, kPhysical64 = 2, kOpenCl = 2 };

std::string literal(std::span<const uint32_t> words) {
  std::string text(reinterpret_cast<const char*>(words.data()), words.size() * sizeof(uint32_t));
  return text.substr(0, text.find('\0'));
}

/// What was met so far.
struct Reading {
  Spirv seen;
  std::map<uint32_t, std::string> entries;  ///< by the id of the function
  std::set<uint32_t> functions;
  size_t ended = 0;  ///< of the functions
  bool is_for_kernels = false;
};

void take(Reading& reading, uint32_t operation, std::span<const uint32_t> operands) {
  if (operation == kCapability && !operands.empty()) reading.seen.capabilities.insert(operands[0]);
  if (operation == kFunction && operands.size() >= 2) reading.functions.insert(operands[1]);
  if (operation == kFunctionEnd) ++reading.ended;
  if (operation == kMemoryModel && operands.size() == 2) {
    reading.is_for_kernels = operands[0] == kPhysical64 && operands[1] == kOpenCl;
  }
  if (operation == kEntryPoint && operands.size() >= 3 && operands[0] == kModelKernel) {
    reading.entries[operands[1]] = literal(operands.subspan(2));
  }
}

}  // namespace

Spirv read_spirv(std::span<const std::byte> file) {
  std::vector<uint32_t> words(file.size() / sizeof(uint32_t));
  if (!words.empty()) std::memcpy(words.data(), file.data(), words.size() * sizeof(uint32_t));
  const auto refused = [](const char* why) { return Spirv{why, {}, {}}; };
  if (file.size() % sizeof(uint32_t) != 0 || words.size() < kHeaderWords || words[0] != kSpirvMagic) {
    return refused("error: this is no SPIR-V");
  }
  if (words[1] > kNewestSpirv) return refused("error: SPIR-V of a version that is not supported");
  Reading reading;
  for (size_t at = kHeaderWords; at < words.size();) {
    const size_t length = words[at] >> 16U;
    if (length == 0 || length > words.size() - at) return refused("error: an instruction leaves the file");
    take(reading, words[at] & 0xffffU, std::span(words).subspan(at + 1, length - 1));
    at += length;
  }
  if (reading.ended != reading.functions.size()) return refused("error: a function without an end");
  if (!reading.is_for_kernels) return refused("error: the memory model is not Physical64 OpenCL");
  for (const auto& [function, name] : reading.entries) {
    if (reading.functions.count(function) == 0) return refused("error: an entry point without a function");
    reading.seen.kernels.insert(name);
  }
  return reading.seen;
}

}  // namespace soft_ze
