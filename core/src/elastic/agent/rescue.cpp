#include "elastic/agent/rescue.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "base/durable_file.hpp"
#include "data/lengths_file.hpp"

namespace pliant::elastic {

namespace fs = std::filesystem;

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
                          const Ledger& ledger) {
  if (auto filled = fresh.fill(order.facts, order.config.resolved_toml()); !filled) return failed(std::move(filled));
  if (auto copied = data::write_dataset_once(fresh.dataset(), dataset); !copied) return failed(std::move(copied));
  for (const SnapshotRecord& snapshot : ledger.lineage().snapshots) {
    std::error_code error;  // it is gone, or on another disk: a worker writes one, or the resume goes further back
    fs::create_hard_link(order.directory.path() / snapshot.file, fresh.path() / snapshot.file, error);
  }
  return ledger.copy_to(fresh.ledger());
}

}  // namespace pliant::elastic
