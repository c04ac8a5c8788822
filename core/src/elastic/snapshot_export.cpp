// export_snapshot(): finds a snapshot by the ledger and copies its arrays into a .safetensors file.
#include <fmt/format.h>

#include <algorithm>
#include <istream>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "elastic/best_snapshot.hpp"
#include "elastic/ledger.hpp"
#include "elastic/run_directory.hpp"
#include "elastic/snapshot.hpp"
#include "elastic/snapshot_arrays.hpp"
#include "elastic/state_arrays.hpp"
#include "pliant/config.hpp"
#include "pliant/snapshot.hpp"
#include "sharded/files/safetensors.hpp"

namespace pliant {

namespace {

namespace fs = std::filesystem;
using elastic::Lineage;
using elastic::RunDirectory;
using elastic::SnapshotHeader;
using elastic::SnapshotRecord;

[[noreturn]] void refuse_export(Status status, const std::string& why) {
  throw Error(status, why, Origin::kInput);
}

/// A snapshot, whose it is, and why it.
struct FoundSnapshot {
  fs::path file;
  std::optional<elastic::SnapshotOwner> owner;
  std::optional<BestSnapshot> best;
};

/// Of one run.
class RunSearch {
 public:
  explicit RunSearch(const fs::path& run) : directory_(or_throw(RunDirectory::open(run))) {
    std::error_code error;
    if (!fs::exists(directory_.ledger(), error)) {
      refuse_export(Status::kNotFound, elastic::why_no_ledger(run) + "; a snapshot file will do, too");
    }
    lineage_ = or_throw(elastic::Ledger::replay(directory_.ledger()));
  }

  [[nodiscard]] FoundSnapshot make(const SnapshotChoice& which) const {
    if (which.best) return best();
    const auto& all = lineage_.snapshots;
    const auto found = std::find_if(all.rbegin(), all.rend(), [&](const SnapshotRecord& one) {
      return (!which.step || one.step == *which.step) && is_there(one);
    });
    if (found == all.rend()) refuse_missing(which);
    return at(found->file);
  }

 private:
  [[nodiscard]] bool is_there(const SnapshotRecord& one) const {
    std::error_code error;
    return fs::exists(directory_.path() / one.file, error);
  }
  [[nodiscard]] FoundSnapshot at(const std::string& file) const {
    return {directory_.path() / file, elastic::SnapshotOwner{lineage_.run_id, lineage_.fingerprint}, {}};
  }

  [[nodiscard]] FoundSnapshot best() const {
    ConfigOverrides as_resolved;
    as_resolved.read_environment = false;
    const RunOptions run = Config::open(directory_.config(), {}, as_resolved).run();
    if (run.keep_best.empty()) {
      refuse_export(Status::kFailedPrecondition,
                    fmt::format("the run in {} keeps no best snapshot: its [run] keep_best is not set. Take the newest "
                                "one, or set keep_best in the next run",
                                directory_.path().string()));
    }
    std::optional<BestSnapshot> found =
        elastic::best_snapshot(lineage_, run, [this](const SnapshotRecord& one) { return is_there(one); });
    if (!found) {
      refuse_export(Status::kNotFound,
                    fmt::format("no snapshot of {} has a finite value of {}, by which the best one is kept; {}",
                                directory_.path().string(), run.keep_best, there()));
    }
    FoundSnapshot made = at(found->file);
    made.best = std::move(found);
    return made;
  }

  [[noreturn]] void refuse_missing(const SnapshotChoice& which) const {
    const std::string wanted = which.step ? fmt::format("snapshot of step {}", *which.step) : "snapshot";
    refuse_export(Status::kNotFound, fmt::format("{} has no {}; {}", directory_.path().string(), wanted, there()));
  }
  /// For messages: those that there are.
  [[nodiscard]] std::string there() const {
    std::string steps;
    for (const SnapshotRecord& one : lineage_.snapshots) {
      if (is_there(one)) steps += fmt::format("{}{}", steps.empty() ? "" : ", ", one.step);
    }
    return steps.empty() ? "[run] snapshot_every has a job write some" : "there are snapshots of step " + steps;
  }

  RunDirectory directory_;
  Lineage lineage_;
};

FoundSnapshot find_snapshot(const fs::path& from, const SnapshotChoice& which) {
  std::error_code error;
  if (which.best && which.step) {
    refuse_export(Status::kInvalidArgument, "the best snapshot and that of a step were both asked for; choose one");
  }
  if (fs::is_directory(from, error)) return RunSearch(from).make(which);
  if (!fs::exists(from, error)) {
    refuse_export(Status::kNotFound, fmt::format("{} does not exist; give the directory of a run, such as "
                                                 "pliant-runs/NAME/latest, or a snapshot file",
                                                 from.string()));
  }
  if (which.best || which.step) {
    refuse_export(Status::kInvalidArgument,
                  fmt::format("{} is a file; only of the directory of a run can a snapshot be chosen", from.string()));
  }
  return {from, {}, {}};
}

/// Before anything is read, for a state may be large. Whether somebody else writes there meanwhile is seen at the end.
void require_new(const fs::path& file) {
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return;  // of all else the writer knows better what to say
  refuse_export(
      Status::kFailedPrecondition,
      fmt::format("{} exists already; choose another name, or overwrite it with --force (in a program: replace)",
                  file.string()));
}

/// A tensor and how many bytes of the state lie between the one before it and this.
struct ExportedPart {
  sharded::Tensor tensor;
  uint64_t bytes = 0;
  uint64_t skipped = 0;
};

sharded::Tensor tensor_of(std::string name, DType dtype, std::vector<int64_t> shape) {
  sharded::Tensor made;
  made.name = std::move(name);
  made.dtype = dtype;
  made.shape = std::move(shape);
  return made;
}

/// All arrays; of a sharded job its weights.
Result<std::vector<ExportedPart>> exported_parts(const SnapshotHeader& header) {
  const Result<std::vector<elastic::SnapshotArray>> arrays = elastic::arrays_of_snapshot(header);
  if (!arrays) return failed(arrays.error().status(), arrays.error().message());
  std::vector<ExportedPart> parts;
  uint64_t before = 0;
  for (const elastic::SnapshotArray& one : *arrays) {
    if (one.of.empty() || one.of == elastic::kWeights) {
      parts.push_back({tensor_of(one.name, one.dtype, one.shape), one.bytes, std::exchange(before, 0)});
    } else {
      before += one.bytes;
    }
  }
  return parts;
}

Result<> cut_short() {
  return failed(Status::kDataLoss, "its arrays are longer than its state");
}

Result<> copy_parts(std::istream& in, const std::vector<ExportedPart>& parts, sharded::SafetensorsSink& sink) {
  std::vector<char> room(static_cast<size_t>(elastic::StateArrays::kChunkBytes));
  for (const ExportedPart& part : parts) {
    in.ignore(static_cast<std::streamsize>(part.skipped));
    for (uint64_t left = part.bytes; left > 0;) {
      const uint64_t bytes = std::min<uint64_t>(left, room.size());
      if (!in.read(room.data(), static_cast<std::streamsize>(bytes))) return cut_short();
      if (Result<> written = sink.write(room.data(), bytes); !written) return written;
      left -= bytes;
    }
  }
  return {};
}

}  // namespace

SnapshotExport export_snapshot(const fs::path& from, const SnapshotChoice& which, const fs::path& file, bool replace) {
  if (file.empty()) refuse_export(Status::kInvalidArgument, "the name of the file to write is empty");
  const FoundSnapshot found = find_snapshot(from, which);
  if (!replace) require_new(file);
  SnapshotExport made;
  made.snapshot = found.file;
  made.best = found.best;
  Result<> written;
  const auto write = [&](std::istream& state, const SnapshotHeader& header) -> Result<> {
    const Result<std::vector<ExportedPart>> parts = exported_parts(header);
    if (!parts) {
      return failed(parts.error().status(), fmt::format("the snapshot {} is damaged: {}; restore it from a copy",
                                                        found.file.string(), parts.error().message()));
    }
    if (parts->empty()) {
      return failed(Status::kFailedPrecondition,
                    fmt::format("the snapshot {} has no arrays: its program writes its state as one piece. What "
                                "a state names as arrays can be exported",
                                found.file.string()),
                    Origin::kInput);
    }
    sharded::SafetensorsHeader head;
    head.metadata = {{"run_id", header.run_id}, {"step", std::to_string(header.step)}};
    if (found.best)
      head.metadata.insert({{"metric", found.best->metric}, {"value", fmt::format("{}", found.best->value)}});
    for (const ExportedPart& one : *parts) {
      head.tensors.push_back(one.tensor);
      made.bytes += one.bytes;
    }
    made.tensors = static_cast<int64_t>(parts->size());
    made.step = header.step;
    made.run_id = header.run_id;
    return sharded::write_safetensors(file, std::move(head), replace,
                                      [&](sharded::SafetensorsSink& sink) { return copy_parts(state, *parts, sink); });
  };
  or_throw(elastic::read_snapshot(
      found.file, [&](std::istream& state, const SnapshotHeader& header) { written = write(state, header); },
      found.owner));
  or_throw(written);
  return made;
}

}  // namespace pliant
