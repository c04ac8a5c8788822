// Ledger over one file of checksummed JSON lines.
#include "elastic/ledger.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <type_traits>

#include "base/durable_file.hpp"
#include "elastic/ledger_line.hpp"

namespace pliant::elastic {

namespace {

constexpr size_t kReadSize = size_t{64} << 10;
/// A commit of 100000 ranks fits; a file that is no ledger must not fill the memory.
constexpr size_t kLongestLine = size_t{16} << 20;

/// Why `record` cannot follow `lineage`; empty when it can.
std::string objection(const Lineage& lineage, const LedgerRecord& record) {
  const auto committed = static_cast<int64_t>(lineage.commits.size());
  if (const auto* commit = std::get_if<CommitRecord>(&record); commit != nullptr && commit->step != committed) {
    return fmt::format("it commits step {}, but the next step is {}", commit->step, committed);
  }
  if (const auto* snapshot = std::get_if<SnapshotRecord>(&record); snapshot != nullptr && snapshot->step > committed) {
    return fmt::format("it names a snapshot of {} steps, but only {} are committed", snapshot->step, committed);
  }
  if (const auto* restart = std::get_if<RestartRecord>(&record); restart != nullptr && restart->step > committed) {
    return fmt::format("it restarts from {} steps, but only {} are committed", restart->step, committed);
  }
  return {};
}

void restart_from(Lineage& lineage, int64_t step) {
  lineage.commits.resize(static_cast<size_t>(step));
  const auto is_void = [step](const SnapshotRecord& snapshot) { return snapshot.step > step; };
  lineage.snapshots.erase(std::remove_if(lineage.snapshots.begin(), lineage.snapshots.end(), is_void),
                          lineage.snapshots.end());
}

/// `record` has no objection.
void apply(Lineage& lineage, LedgerRecord&& record) {
  const auto add = [&lineage](auto& value) {
    using Record = std::decay_t<decltype(value)>;
    if constexpr (std::is_same_v<Record, HeaderRecord>) lineage.fingerprint = std::move(value.fingerprint);
    if constexpr (std::is_same_v<Record, CommitRecord>) lineage.commits.push_back(std::move(value));
    if constexpr (std::is_same_v<Record, GenerationRecord>) lineage.generations.push_back(std::move(value));
    if constexpr (std::is_same_v<Record, SnapshotRecord>) lineage.snapshots.push_back(std::move(value));
    if constexpr (std::is_same_v<Record, RestartRecord>) restart_from(lineage, value.step);
  };
  std::visit(add, record);
}

/// Replays the lines of one file, in order.
class Replay {
 public:
  explicit Replay(const std::filesystem::path& file) : file_(file) {}

  Result<> run(int fd) {
    std::string pending;
    std::string chunk(kReadSize, '\0');
    for (uint64_t offset = 0;;) {
      size_t got = 0;
      if (const int error = read_at(fd, chunk.data(), chunk.size(), offset, got); error != 0) {
        return tl::unexpected<Error>(file_error(error, "read the ledger", file_));
      }
      if (got == 0) break;
      offset += got;
      if (auto taken = take_lines(pending, std::string_view(chunk).substr(0, got)); !taken) return taken;
      if (pending.size() > kLongestLine) return damaged("it is longer than any record");
    }
    if (whole_bytes == 0) return damaged("it holds no whole header");
    return {};
  }

  Lineage lineage;
  uint64_t whole_bytes = 0;  ///< up to the end of the last line that ends in a newline

 private:
  Result<> take_lines(std::string& pending, std::string_view bytes) {
    for (size_t end = bytes.find('\n'); end != std::string_view::npos; end = bytes.find('\n')) {
      pending += bytes.substr(0, end);
      bytes.remove_prefix(end + 1);
      if (auto taken = take_line(pending); !taken) return taken;
      pending.clear();
    }
    pending += bytes;
    return {};
  }

  Result<> take_line(std::string_view line) {
    Result<LedgerRecord> record = decode_line(line);
    if (!record) return damaged(record.error().message());
    if (std::holds_alternative<HeaderRecord>(*record) != (whole_bytes == 0)) {
      return damaged(whole_bytes == 0 ? "it is not the header" : "it is a second header");
    }
    if (const std::string reason = objection(lineage, *record); !reason.empty()) return damaged(reason);
    apply(lineage, std::move(*record));
    whole_bytes += line.size() + 1;
    ++lines_;
    return {};
  }

  [[nodiscard]] tl::unexpected<Error> damaged(std::string_view reason) const {
    const std::string remedy =
        whole_bytes == 0
            ? std::string("the run cannot be resumed from this file: restore it from a copy or start a new run")
            : fmt::format(
                  "restore the file from a copy, or drop this and all later records with "
                  "`truncate -s {} {}` and resume: their steps are computed again",
                  whole_bytes, file_.string());
    return failed(Status::kDataLoss, fmt::format("{}:{}: this line of the ledger is damaged: {}; {}", file_.string(),
                                                 lines_ + 1, reason, remedy));
  }

  const std::filesystem::path& file_;
  int64_t lines_ = 0;
};

[[nodiscard]] tl::unexpected<Error> in_use(const std::filesystem::path& file) {
  return failed(
      Status::kFailedPrecondition,
      fmt::format("the ledger {} is being written by another process; wait until that run has ended, or stop it",
                  file.string()));
}

}  // namespace

struct Ledger::State {
  std::filesystem::path file;
  FileDescriptor fd;
  uint64_t size = 0;   ///< bytes of whole records
  bool dirty = false;  ///< bytes behind `size` may be on disk
  Lineage lineage;

  /// Cuts off what is behind `size`. 0 or an errno value.
  int cut() {
    while (::ftruncate(fd.get(), static_cast<off_t>(size)) != 0) {
      if (errno != EINTR) return errno;
    }
    if (::fdatasync(fd.get()) != 0) return errno;
    dirty = false;
    return 0;
  }

  /// 0 or an errno value; nothing of `line` is left then, unless `dirty` still says so.
  int write(std::string_view line) {
    if (dirty) {
      if (const int error = cut(); error != 0) return error;
    }
    dirty = true;
    int error = write_all_at(fd.get(), line, size);
    if (error == 0 && ::fdatasync(fd.get()) != 0) error = errno;
    if (error != 0) {
      static_cast<void>(cut());
      return error;
    }
    dirty = false;
    size += line.size();
    return 0;
  }

  Result<> append(const LedgerRecord& record) {
    if (const std::string reason = objection(lineage, record); !reason.empty()) {
      return failed(Status::kInvalidArgument, fmt::format("the ledger {} refuses a record: {}", file.string(), reason));
    }
    const std::string line = encode_line(record);
    // The lineage takes what a reader of the file would get.
    Result<LedgerRecord> readable = decode_line(std::string_view(line).substr(0, line.size() - 1));
    if (!readable) {
      return failed(Status::kInvalidArgument,
                    fmt::format("the ledger {} refuses a record: {}", file.string(), readable.error().message()));
    }
    if (const int error = write(line); error != 0) {
      return tl::unexpected<Error>(file_error(error, "append to the ledger", file));
    }
    apply(lineage, std::move(*readable));
    return {};
  }
};

Ledger::Ledger(std::unique_ptr<State> state) : state_(std::move(state)) {}
Ledger::~Ledger() = default;
Ledger::Ledger(Ledger&&) noexcept = default;
Ledger& Ledger::operator=(Ledger&&) noexcept = default;

Result<Ledger> Ledger::create(const std::filesystem::path& file, const std::string& run_id,
                              const std::string& fingerprint) {
  Result<FileDescriptor> fd = open_file(file, O_RDWR | O_CREAT | O_EXCL, "create the ledger");
  if (!fd) {
    if (std::error_code ignored; !std::filesystem::exists(file, ignored)) return failed(std::move(fd));
    return failed(
        Status::kFailedPrecondition,
        fmt::format("the ledger {} exists already; resume its run or choose another directory", file.string()));
  }
  auto state = std::make_unique<State>();
  state->file = file;
  state->fd = std::move(*fd);
  if (!lock_for_writing(state->fd.get())) return in_use(file);
  Result<> done = state->append(HeaderRecord{run_id, fingerprint});
  if (done) done = sync_folder_of(file);
  if (!done) {
    ::unlink(file.c_str());
    return failed(std::move(done));
  }
  return Ledger(std::move(state));
}

Result<Ledger> Ledger::open(const std::filesystem::path& file) {
  Result<FileDescriptor> fd = open_file(file, O_RDWR, "open the ledger");
  if (!fd) return failed(std::move(fd));
  if (!lock_for_writing(fd->get())) return in_use(file);
  Replay replay(file);
  if (auto done = replay.run(fd->get()); !done) return failed(std::move(done));
  auto state = std::make_unique<State>();
  state->file = file;
  state->fd = std::move(*fd);
  state->size = replay.whole_bytes;
  state->lineage = std::move(replay.lineage);
  if (const int error = state->cut(); error != 0) {
    return tl::unexpected<Error>(file_error(error, "cut the torn last line of the ledger", file));
  }
  return Ledger(std::move(state));
}

Result<Lineage> Ledger::replay(const std::filesystem::path& file) {
  Result<FileDescriptor> fd = open_file(file, O_RDONLY, "open the ledger");
  if (!fd) return failed(std::move(fd));
  Replay replay(file);
  if (auto done = replay.run(fd->get()); !done) return failed(std::move(done));
  return std::move(replay.lineage);
}

Result<> Ledger::append(const CommitRecord& record) {
  return state_->append(record);
}
Result<> Ledger::append(const GenerationRecord& record) {
  return state_->append(record);
}
Result<> Ledger::append(const SnapshotRecord& record) {
  return state_->append(record);
}
Result<> Ledger::append(const RestartRecord& record) {
  return state_->append(record);
}
const Lineage& Ledger::lineage() const {
  return state_->lineage;
}

}  // namespace pliant::elastic
