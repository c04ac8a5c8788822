#include "elastic/state_arrays.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <istream>
#include <limits>
#include <optional>
#include <ostream>
#include <set>
#include <string_view>

#include "base/printable.hpp"
#include "pliant/error.hpp"
#include "pliant/sdk/accelerator.hpp"

namespace pliant::elastic {
namespace {

bool is_name(std::string_view name) {
  constexpr std::string_view kOthers = ".-_/:";
  return !name.empty() && std::all_of(name.begin(), name.end(), [&](char c) {
    const bool alphanumeric = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    return alphanumeric || kOthers.find(c) != std::string_view::npos;
  });
}

[[noreturn]] void refuse(const std::string& reason) {
  throw Error(Status::kInvalidArgument, "TrainingState::arrays: " + reason, Origin::kInput);
}

/// How the arrays' memory is looked at; without a check, not at all.
struct Look {
  const std::optional<MemoryCheck>& memory;
  bool at_all;  ///< of it, and not only at its ends
  MemoryMap map{};
};

void check(const StateArray& array, Look& look) {
  if (!is_name(array.name)) {
    refuse(fmt::format("'{}' is not a valid array name; allowed: letters, digits and .-_/:", printable(array.name)));
  }
  uint64_t bytes = sdk::size_of(static_cast<sdk::DType>(array.dtype));
  if (bytes == 0) refuse(fmt::format("'{}' has the unknown type {}", array.name, static_cast<int32_t>(array.dtype)));
  for (const int64_t length : array.shape) {
    if (length < 0) refuse(fmt::format("'{}' has the negative length {} in its shape", array.name, length));
    const auto times = static_cast<uint64_t>(length);
    if (times != 0 && bytes > std::numeric_limits<uint64_t>::max() / 2 / times)
      refuse(fmt::format("'{}' has a shape that does not fit memory", array.name));
    bytes *= times;
  }
  if (bytes == 0) return;
  if (array.data == nullptr) refuse(fmt::format("'{}' has no memory: its data is NULL", array.name));
  if (!look.memory) return;
  const MemoryCheck::Finding found =
      look.at_all ? look.memory->look_at_all(array.data, bytes, look.map) : look.memory->look_at(array.data, bytes);
  if (!found.refusal.empty()) refuse(fmt::format("'{}' {}", array.name, found.refusal));
}

std::string layout_of(const std::vector<StateArray>& arrays, Look look) {
  std::string layout;
  std::set<std::string_view> names;
  for (const StateArray& array : arrays) {
    check(array, look);
    if (!names.insert(array.name).second) refuse(fmt::format("two arrays have the name '{}'", array.name));
    layout += fmt::format("{} {}[{}]\n", array.name, sdk::name_of(static_cast<sdk::DType>(array.dtype)),
                          fmt::join(array.shape, ","));
  }
  return layout;
}

std::vector<const void*> places_of(const std::vector<StateArray>& arrays) {
  std::vector<const void*> places;
  for (const StateArray& array : arrays) places.push_back(array.data);
  return places;
}

std::string_view next_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(text.size(), line.size() + 1));
  return line;
}

std::string named(std::string_view line) {
  return line.empty() ? "none" : printable(std::string(line));
}

/// "array 3 is 'w f32[2]' in this program and 'w f32[3]' in the snapshot"; empty: none.
std::string difference(std::string_view own, std::string_view other, const std::string& whose) {
  for (int number = 1; !own.empty() || !other.empty(); ++number) {
    const std::string_view here = next_line(own);
    const std::string_view there = next_line(other);
    if (here != there)
      return fmt::format("array {} is {} in this program, {} in {}", number, named(here), named(there), whose);
  }
  return {};
}

}  // namespace

uint64_t bytes_of(const StateArray& array) {
  uint64_t bytes = sdk::size_of(static_cast<sdk::DType>(array.dtype));
  for (const int64_t length : array.shape) bytes *= static_cast<uint64_t>(length);
  return bytes;
}

namespace {

/// "f32" of "f32[64,32]"; nullopt for no type that there is.
std::optional<DType> dtype_named(std::string_view name) {
  for (int32_t number = 1; sdk::size_of(static_cast<sdk::DType>(number)) > 0; ++number) {
    if (name == sdk::name_of(static_cast<sdk::DType>(number))) return static_cast<DType>(number);
  }
  return std::nullopt;
}

/// Adds the lengths of "64,32" to it; false for what is none, or too long for memory.
bool take_shape(std::string_view text, ArrayOfLayout& array) {
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max() / 2;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(','));
    if (word.size() + 1 == text.size()) return false;  // a comma with nothing behind
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    int64_t length = 0;
    const auto [end, fault] = std::from_chars(word.data(), word.data() + word.size(), length);
    if (fault != std::errc() || end != word.data() + word.size() || length < 0) return false;
    const auto times = static_cast<uint64_t>(length);
    if (times != 0 && array.bytes > kMost / times) return false;
    array.bytes *= times;
    array.shape.push_back(length);
  }
  return true;
}

std::optional<ArrayOfLayout> array_in(std::string_view line) {
  const size_t blank = line.find(' ');
  const size_t bracket = line.find('[');
  if (blank == std::string_view::npos || bracket == std::string_view::npos || bracket < blank || line.back() != ']') {
    return std::nullopt;
  }
  const std::optional<DType> dtype = dtype_named(line.substr(blank + 1, bracket - blank - 1));
  if (!dtype) return std::nullopt;
  ArrayOfLayout made{std::string(line.substr(0, blank)), *dtype, {}, sdk::size_of(static_cast<sdk::DType>(*dtype))};
  if (!take_shape(line.substr(bracket + 1, line.size() - bracket - 2), made)) return std::nullopt;
  return made;
}

}  // namespace

Result<std::vector<ArrayOfLayout>> arrays_of_layout(std::string_view layout) {
  std::vector<ArrayOfLayout> arrays;
  while (!layout.empty()) {
    const std::string_view line = next_line(layout);
    std::optional<ArrayOfLayout> array = array_in(line);
    if (!array) return failed(Status::kDataLoss, fmt::format("'{}' is not an array", printable(line)));
    arrays.push_back(std::move(*array));
  }
  return arrays;
}

StateArrays::StateArrays(TrainingState& program, std::optional<MemoryCheck> memory)
    : program_(program),
      memory_(std::move(memory)),
      first_(program.arrays()),
      layout_(layout_of(first_, {memory_, true})),
      looked_at_(places_of(first_)) {}

std::vector<StateArray> StateArrays::now(bool looks_at_all) const {
  std::vector<StateArray> arrays = program_.arrays();
  std::vector<const void*> places = places_of(arrays);
  const std::string layout = layout_of(arrays, {memory_, looks_at_all || places != looked_at_});
  looked_at_ = std::move(places);
  if (layout != layout_) require(layout, "its current arrays; they must stay as they were at Session::start");
  return arrays;
}

bool StateArrays::is_for_cpu(const StateArray& array) const {
  const uint64_t bytes = bytes_of(array);
  return memory_ && bytes > 0 && memory_->look_at(array.data, bytes).is_for_cpu;
}

void StateArrays::require_unchanged() const {
  const auto is_same = [](const StateArray& one, const StateArray& other) {
    return one.name == other.name && one.dtype == other.dtype && one.shape == other.shape;
  };
  const std::vector<StateArray> arrays = program_.arrays();
  if (!std::equal(arrays.begin(), arrays.end(), first_.begin(), first_.end(), is_same)) static_cast<void>(now());
}

void StateArrays::require(const std::string& other, const std::string& whose) const {
  if (other == layout_) return;
  throw Error(Status::kFailedPrecondition, "the state has other arrays: " + difference(layout_, other, whose),
              Origin::kInput);
}

void StateArrays::each_chunk(const std::function<void(void* data, uint64_t bytes)>& take) const {
  for (const StateArray& array : now(true)) {
    const uint64_t size = bytes_of(array);
    for (uint64_t at = 0; at < size; at += kChunkBytes)
      take(static_cast<char*>(array.data) + at, std::min(size - at, kChunkBytes));
  }
}

void write_arrays(const StateArrays& arrays, std::ostream& out, Stream& stream, Staging* staging) {
  stream.synchronize();
  arrays.each_chunk([&](void* data, uint64_t bytes) {
    const char* from = static_cast<const char*>(data);
    if (staging != nullptr) {
      stream.copy(staging->data(), data, bytes);
      stream.synchronize();
      from = staging->data();
    }
    out.write(from, static_cast<std::streamsize>(bytes));
  });
}

void read_arrays(const StateArrays& arrays, std::istream& in, Stream& stream, Staging* staging) {
  stream.synchronize();
  arrays.each_chunk([&](void* data, uint64_t bytes) {
    char* const to = staging != nullptr ? staging->data() : static_cast<char*>(data);
    if (!in.read(to, static_cast<std::streamsize>(bytes)) || staging == nullptr) return;
    stream.copy(data, to, bytes);
    stream.synchronize();
  });
}

}  // namespace pliant::elastic
