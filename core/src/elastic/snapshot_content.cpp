#include "pliant/snapshot.hpp"

#include <fmt/format.h>

#include <istream>
#include <utility>

#include "elastic/snapshot.hpp"
#include "elastic/snapshot_arrays.hpp"
#include "elastic/state_arrays.hpp"
#include "pliant/error.hpp"

namespace pliant {
namespace {

SnapshotContent content_of(const elastic::SnapshotHeader& header) {
  if (header.parameters.empty() && !header.model.empty()) {
    throw Error(
        Status::kFailedPrecondition,
        "its model is cut over the ranks, and an earlier release wrote it, which did not name the parameters; a "
        "program of that model reads it, as after --resume, and writes another one",
        Origin::kInput);
  }
  Result<std::vector<elastic::SnapshotArray>> arrays = elastic::arrays_of_snapshot(header);
  if (!arrays) throw Error(Status::kDataLoss, "its arrays are damaged: " + arrays.error().message(), Origin::kInput);
  SnapshotContent content{header.step, header.run_id, {}, !header.parameters.empty()};
  for (elastic::SnapshotArray& one : *arrays) {
    std::string name = one.of.empty() ? std::move(one.name) : one.of + "/" + one.name;
    content.arrays.push_back({std::move(name), one.dtype, std::move(one.shape), nullptr});
  }
  return content;
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
    content = content_of(header);
    place(content);
    for (const StateArray& array : content.arrays) read_array(array, in);
    if (load) load(in);
  };
  const Result<elastic::SnapshotHeader> read = elastic::read_snapshot(file, take);
  if (!read) throw Error(read.error());
  return content;
}

}  // namespace pliant
