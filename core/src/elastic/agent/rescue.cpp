#include "elastic/agent/rescue.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "base/durable_file.hpp"
#include "config/app_places.hpp"
#include "data/lengths_file.hpp"
#include "elastic/epoch_log.hpp"
#include "elastic/state_digest.hpp"

namespace pliant::elastic {

namespace fs = std::filesystem;

namespace {

/// What cannot be copied is left out: a run goes on without it.
void copy_lines(int from, const fs::path& file) {
  if (from < 0) return;
  const Result<FileDescriptor> to = open_file(file, O_WRONLY | O_CREAT | O_EXCL, "copy the lines");
  if (!to) return;
  std::string piece(size_t{64} << 10, '\0');
  for (uint64_t at = 0;; at += piece.size()) {
    size_t got = 0;
    if (read_at(from, piece.data(), piece.size(), at, got) != 0) return;
    if (write_all_at(to->get(), std::string_view(piece).substr(0, got), at) != 0 || got < piece.size()) return;
  }
}

}  // namespace

Result<RunDirectory> rescue_directory(const RunDirectory& directory) {
  constexpr int kMost = 100;
  const fs::path base = directory.path().string() + "-rescued";
  std::error_code error;
  fs::create_directories(base.parent_path(), error);  // that may be gone, too
  fs::path path = base;
  for (int i = 2; ::mkdir(path.c_str(), 0777) != 0; ++i) {
    if (errno != EEXIST || i > kMost) return tl::unexpected<Error>(file_error(errno, "create the folder", path));
    path = fmt::format("{}-{}", base.string(), i);
  }
  return RunDirectory(path);
}

Result<Ledger> rescue_run(const RunDirectory& fresh, const AgentOrder& order, const Dataset& dataset,
                          const Ledger& ledger, const HeldLists& lists) {
  if (auto filled = fresh.fill(order.facts, order.config.resolved_toml()); !filled) return failed(std::move(filled));
  if (auto copied = data::write_dataset_once(fresh.dataset(), dataset); !copied) return failed(std::move(copied));
  if (auto placed = write_file(fresh.app_places(), config::app_places(order.config)); !placed)
    return failed(std::move(placed));
  for (const SnapshotRecord& snapshot : ledger.lineage().snapshots) {
    std::error_code error;  // it is gone, or on another disk: a worker writes one, or the resume goes further back
    fs::create_hard_link(order.directory.path() / snapshot.file, fresh.path() / snapshot.file, error);
  }
  std::error_code error;
  for (const GenerationRecord& generation : ledger.lineage().generations) {
    if (!fs::exists(order.directory.config_before(generation.config), error)) continue;
    fs::create_directories(fresh.path() / "configs", error);
    fs::create_hard_link(order.directory.config_before(generation.config), fresh.config_before(generation.config),
                         error);
  }
  copy_lines(lists.digests.get(), fresh.path() / kDigestsFile);
  copy_lines(lists.epochs.get(), fresh.path() / kEpochsFile);
  return ledger.copy_to(fresh.ledger());
}

}  // namespace pliant::elastic
