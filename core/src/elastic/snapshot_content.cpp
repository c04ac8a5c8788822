#include "pliant/snapshot.hpp"

#include <fmt/format.h>

#include <charconv>
#include <istream>
#include <optional>
#include <string_view>

#include "elastic/snapshot.hpp"
#include "elastic/state_arrays.hpp"
#include "pliant/error.hpp"
#include "pliant/sdk/accelerator.hpp"

namespace pliant {
namespace {

std::optional<DType> type_named(std::string_view name) {
  for (int32_t number = PLIANT_F32; number <= PLIANT_BF16; ++number) {
    const auto type = static_cast<sdk::DType>(number);
    if (name == sdk::name_of(type)) return static_cast<DType>(type);
  }
  return std::nullopt;
}

std::optional<std::vector<int64_t>> shape_in(std::string_view text) {
  std::vector<int64_t> shape;
  while (!text.empty()) {
    int64_t length = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), length);
    if (problem != std::errc() || length < 0) return std::nullopt;
    shape.push_back(length);
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    if (text.empty()) break;
    if (text.front() != ',' || text.size() == 1) return std::nullopt;
    text.remove_prefix(1);
  }
  return shape;
}

/// "layers.0.weight f32[64,32]", as StateArrays::layout has it.
std::optional<StateArray> array_in(std::string_view line) {
  const size_t space = line.find(' ');
  const size_t bracket = line.find('[', space == std::string_view::npos ? line.size() : space);
  if (space == std::string_view::npos || bracket == std::string_view::npos || line.back() != ']') return std::nullopt;
  const std::optional<DType> type = type_named(line.substr(space + 1, bracket - space - 1));
  auto shape = shape_in(line.substr(bracket + 1, line.size() - bracket - 2));
  if (!type || !shape) return std::nullopt;
  return StateArray{std::string(line.substr(0, space)), *type, std::move(*shape), nullptr};
}

std::vector<StateArray> arrays_in(std::string_view layout) {
  std::vector<StateArray> arrays;
  while (!layout.empty()) {
    const std::string_view line = layout.substr(0, layout.find('\n'));
    std::optional<StateArray> array = array_in(line);
    if (!array) throw Error(Status::kDataLoss, "its arrays are damaged", Origin::kInput);
    arrays.push_back(std::move(*array));
    layout.remove_prefix(std::min(layout.size(), line.size() + 1));
  }
  return arrays;
}

void read_array(const StateArray& array, std::istream& in) {
  const auto bytes = static_cast<std::streamsize>(elastic::bytes_of(array));
  if (array.data != nullptr) {
    in.read(static_cast<char*>(array.data), bytes);
  } else {
    in.ignore(bytes);
  }
  if (in.gcount() != bytes) {
    throw Error(Status::kDataLoss, fmt::format("it ends within array '{}'", array.name), Origin::kInput);
  }
}

}  // namespace

SnapshotContent load_snapshot(const std::filesystem::path& file, const std::function<void(SnapshotContent&)>& place,
                              const std::function<void(std::istream&)>& load) {
  SnapshotContent content;
  const auto take = [&](std::istream& in, const elastic::SnapshotHeader& header) {
    if (!header.parameters.empty() || !header.model.empty()) {
      throw Error(
          Status::kFailedPrecondition,
          "its model is cut over the ranks; a program of that model reads it, as after --resume, and exports it",
          Origin::kInput);
    }
    content = {header.step, header.run_id, arrays_in(header.arrays)};
    place(content);
    for (const StateArray& array : content.arrays) read_array(array, in);
    if (load) load(in);
  };
  const Result<elastic::SnapshotHeader> read = elastic::read_snapshot(file, take);
  if (!read) throw Error(read.error());
  return content;
}

}  // namespace pliant
