// Ledger over one file of checksummed JSON lines.
#include "elastic/ledger.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <iterator>
#include <type_traits>

#include "base/durable_file.hpp"
#include "base/whole_file.hpp"
#include "elastic/ledger_line.hpp"

namespace pliant::elastic {

namespace {

constexpr size_t kReadSize = size_t{64} << 10;
/// A commit of 100000 ranks fits; a file that is no ledger must not fill the memory.
constexpr size_t kLongestRecord = size_t{16} << 20;

/// Why `record` cannot follow `lineage`; empty when it can.
std::string objection(const Lineage& lineage, const LedgerRecord& record) {
  const auto committed = static_cast<int64_t>(lineage.commits.size());
  if (const auto* commit = std::get_if<CommitRecord>(&record); commit != nullptr && commit->step != committed) {
    return fmt::format("it commits step {}, but the next step is {}", commit->step, committed);
  }
  if (const auto* snapshot = std::get_if<SnapshotRecord>(&record); snapshot != nullptr && snapshot->step > committed) {
    return fmt::format("it names a snapshot of {} steps, but only {} steps are committed", snapshot->step, committed);
  }
  if (const auto* restart = std::get_if<RestartRecord>(&record); restart != nullptr && restart->step > committed) {
    return fmt::format("it restarts from {} steps, but only {} steps are committed", restart->step, committed);
  }
  if (const auto* end = std::get_if<EndRecord>(&record); end != nullptr && end->step != committed) {
    return fmt::format("it ends the job after {} steps, but {} steps are committed", end->step, committed);
  }
  const auto* const evaluation = std::get_if<Evaluation>(&record);
  if (evaluation != nullptr && evaluation->step > committed) {
    return fmt::format("it evaluates the state of {} steps, but only {} steps are committed", evaluation->step,
                       committed);
  }
  return {};
}

void restart_from(Lineage& lineage, int64_t step) {
  lineage.commits.resize(static_cast<size_t>(step));
  lineage.began_before.resize(static_cast<size_t>(step));
  const auto is_void = [step](const SnapshotRecord& snapshot) { return snapshot.step > step; };
  lineage.snapshots.erase(std::remove_if(lineage.snapshots.begin(), lineage.snapshots.end(), is_void),
                          lineage.snapshots.end());
  if (lineage.end && lineage.end->step > step) lineage.end.reset();
  std::erase_if(lineage.evaluations, [step](const Evaluation& one) { return one.step > step; });
}

/// What is said of a state that was evaluated before replaces what has the same names.
void add_evaluation(Lineage& lineage, Evaluation&& added) {
  const auto later = [](int64_t step, const Evaluation& one) { return step < one.step; };
  const auto at = std::upper_bound(lineage.evaluations.begin(), lineage.evaluations.end(), added.step, later);
  if (at == lineage.evaluations.begin() || std::prev(at)->step != added.step) {
    lineage.evaluations.insert(at, std::move(added));
    return;
  }
  Evaluation& before = *std::prev(at);
  before.ranks = added.ranks;
  before.lost = added.lost;
  for (auto& [name, value] : added.values) before.values[name] = value;
}

/// A step that is snapshotted again is still one snapshot: its file holds what was written last.
void add_snapshot(Lineage& lineage, SnapshotRecord&& added) {
  const auto is_older = [&added](const SnapshotRecord& snapshot) {
    return snapshot.step == added.step || snapshot.file == added.file;
  };
  lineage.snapshots.erase(std::remove_if(lineage.snapshots.begin(), lineage.snapshots.end(), is_older),
                          lineage.snapshots.end());
  lineage.snapshots.push_back(std::move(added));
}

/// All ranks that made a step from one state have what snapshots of that state and of those before it hold.
void confirm_snapshots(Lineage& lineage) {
  for (SnapshotRecord& snapshot : lineage.snapshots) snapshot.unconfirmed = false;
}

/// `record` has no objection.
void apply(Lineage& lineage, LedgerRecord&& record) {
  const auto add = [&lineage](auto& value) {
    using Record = std::decay_t<decltype(value)>;
    if constexpr (std::is_same_v<Record, HeaderRecord>) {
      lineage.run_id = std::move(value.run_id);
      lineage.fingerprint = std::move(value.fingerprint);
    }
    if constexpr (std::is_same_v<Record, CommitRecord>) {
      if (value.state) confirm_snapshots(lineage);
      lineage.end.reset();
      lineage.commits.push_back(std::move(value));
      lineage.began_before.push_back(lineage.generations.size());
    }
    if constexpr (std::is_same_v<Record, GenerationRecord>) lineage.generations.push_back(std::move(value));
    if constexpr (std::is_same_v<Record, SnapshotRecord>) add_snapshot(lineage, std::move(value));
    if constexpr (std::is_same_v<Record, NotFiniteRecord>) lineage.not_finite_step = value.step;
    if constexpr (std::is_same_v<Record, RestartRecord>) restart_from(lineage, value.step);
    if constexpr (std::is_same_v<Record, EndRecord>) lineage.end = std::move(value);
    if constexpr (std::is_same_v<Record, Evaluation>) add_evaluation(lineage, std::move(value));
  };
  std::visit(add, record);
}

/// Replays the lines of one file, in order.
class Replay {
 public:
  explicit Replay(const std::filesystem::path& file, const std::function<void(const LedgerRecord&)>& see = {})
      : file_(file), see_(see) {}

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
      if (pending.size() > kLongestRecord) return damaged("it is longer than any record");
    }
    if (whole_bytes == 0) return damaged("it has no complete header");
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
    if (see_) see_(*record);
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
  std::function<void(const LedgerRecord&)> see_;
  int64_t lines_ = 0;
};

[[nodiscard]] tl::unexpected<Error> in_use(const std::filesystem::path& file) {
  return failed(
      Status::kFailedPrecondition,
      fmt::format("another process is writing the ledger {}; wait until that run ends, or stop it", file.string()));
}

/// Makes `file` of what `fill` writes (it returns 0 or an errno value), whole or not at all, and opens it.
Result<FileDescriptor> create_whole(const std::filesystem::path& file, const std::function<int(int fd)>& fill) {
  if (Result<> written = write_whole(file, WholeFile{fill, {}, {}}, false); !written) {
    if (std::error_code ignored; !std::filesystem::exists(file, ignored)) return failed(std::move(written));
    return failed(
        Status::kFailedPrecondition,
        fmt::format("the ledger {} exists already; resume its run or choose another directory", file.string()));
  }
  Result<FileDescriptor> fd = open_file(file, O_RDWR, "open the ledger");
  if (fd && !lock_for_writing(fd->get())) return in_use(file);
  return fd;
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

  [[nodiscard]] Result<> check_in_place() const {
    if (!names(file, fd.get())) {
      return failed(Status::kNotFound, fmt::format("the ledger {} was removed, moved or replaced", file.string()));
    }
    struct stat now {};
    if (::fstat(fd.get(), &now) != 0) return tl::unexpected<Error>(file_error(errno, "check the ledger", file));
    const auto found = static_cast<uint64_t>(now.st_size);
    if (found == size || (dirty && found > size)) return {};
    return failed(Status::kDataLoss,
                  fmt::format("another program has changed the ledger {}: it has {} bytes instead of {}", file.string(),
                              found, size));
  }

  Result<> append(const LedgerRecord& record) {
    if (const std::string reason = objection(lineage, record); !reason.empty()) {
      return failed(Status::kInvalidArgument, fmt::format("cannot append to the ledger {}: {}", file.string(), reason));
    }
    const std::string line = encode_line(record);
    // The lineage takes what a reader of the file would get.
    Result<LedgerRecord> readable = decode_line(std::string_view(line).substr(0, line.size() - 1));
    if (!readable) {
      return failed(Status::kInvalidArgument,
                    fmt::format("cannot append to the ledger {}: {}", file.string(), readable.error().message()));
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
  const std::string line = encode_line(HeaderRecord{run_id, fingerprint});
  Result<FileDescriptor> fd = create_whole(file, [&line](int to) { return write_all_at(to, line, 0); });
  if (!fd) return failed(std::move(fd));
  auto state = std::make_unique<State>();
  state->file = file;
  state->fd = std::move(*fd);
  state->size = line.size();
  Result<LedgerRecord> header = decode_line(std::string_view(line).substr(0, line.size() - 1));
  if (!header) return failed(std::move(header));
  apply(state->lineage, std::move(*header));
  return Ledger(std::move(state));
}

Result<Ledger> Ledger::copy_to(const std::filesystem::path& file) const {
  const Lineage& lineage = state_->lineage;
  std::string lines = encode_line(HeaderRecord{lineage.run_id, lineage.fingerprint});
  size_t began = 0;
  for (size_t i = 0; i < lineage.commits.size(); ++i) {
    while (began < lineage.began_before[i]) lines += encode_line(lineage.generations[began++]);
    lines += encode_line(lineage.commits[i]);
  }
  while (began < lineage.generations.size()) lines += encode_line(lineage.generations[began++]);
  for (const SnapshotRecord& snapshot : lineage.snapshots) lines += encode_line(snapshot);
  for (const Evaluation& evaluation : lineage.evaluations) lines += encode_line(evaluation);
  if (lineage.end) lines += encode_line(*lineage.end);
  if (lineage.not_finite_step) lines += encode_line(NotFiniteRecord{*lineage.not_finite_step, {}});
  Result<FileDescriptor> fd = create_whole(file, [&lines](int to) { return write_all_at(to, lines, 0); });
  if (!fd) return failed(std::move(fd));
  auto state = std::make_unique<State>();
  state->file = file;
  state->fd = std::move(*fd);
  state->size = lines.size();
  state->lineage = lineage;
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
    return tl::unexpected<Error>(file_error(error, "remove the incomplete last line of the ledger", file));
  }
  return Ledger(std::move(state));
}

Result<Lineage> Ledger::replay(const std::filesystem::path& file, const std::function<void(const LedgerRecord&)>& see) {
  Result<FileDescriptor> fd = open_file(file, O_RDONLY, "open the ledger");
  if (!fd) return failed(std::move(fd));
  Replay replay(file, see);
  if (auto done = replay.run(fd->get()); !done) return failed(std::move(done));
  return std::move(replay.lineage);
}

bool Ledger::is_blank(const std::filesystem::path& file) {
  const Result<FileDescriptor> fd = open_file(file, O_RDONLY, "open the ledger");
  if (!fd) return false;
  std::string begin(kReadSize, '\0');
  size_t got = 0;
  if (read_at(fd->get(), begin.data(), begin.size(), 0, got) != 0 || got == begin.size()) return false;
  return begin.find('\n') >= got;
}

Result<> Ledger::check_in_place() const {
  return state_->check_in_place();
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
Result<> Ledger::append(const NotFiniteRecord& record) {
  return state_->append(record);
}
Result<> Ledger::append(const Evaluation& record) {
  return state_->append(record);
}
Result<> Ledger::append(const EndRecord& record) {
  return state_->append(record);
}
const Lineage& Ledger::lineage() const {
  return state_->lineage;
}

}  // namespace pliant::elastic
