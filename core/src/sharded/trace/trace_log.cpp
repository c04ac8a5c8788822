#include "sharded/trace/trace_log.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <nlohmann/json.hpp>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "data/digest.hpp"
#include "pliant/error.hpp"
#include "sharded/trace/trace_model.hpp"
#include "sharded/trace/trace_words.hpp"

namespace pliant::sharded {

/// Records follow it, each a RecordHead, one of the structs below and what that counts. They are read on the machine
/// that wrote them, by the same version.
struct TraceLog::Head {
  uint64_t magic;
  std::atomic<uint64_t> end;  ///< of the last whole record
  std::atomic<uint64_t> is_full;
};

namespace {

constexpr uint64_t kTraceLogMagic = 0x3167'6f4c'7254'6c50U;
constexpr uint64_t kTraceWindow = uint64_t{1} << 20U;
constexpr uint64_t kFirstRecord = 64;
constexpr uint32_t kNoModule = UINT32_MAX;

enum RecordKind : uint32_t { kGroupRecord = 1, kCallRecord = 2, kTransferRecord = 3, kWaitRecord = 4 };

struct RecordHead {
  uint32_t kind;
  uint32_t bytes;  ///< that follow
};
struct GroupRecord {
  int64_t generation;
  uint64_t budget;
  int32_t rank;
  int32_t world_size;
  uint32_t compute;
  uint32_t reduce;
  uint32_t is_sharded;
  uint32_t is_host_visible;
  uint64_t coordinator_bytes;
  uint64_t model_bytes;  ///< 0: as in the group before
};
struct CallRecord {
  double began;
  double ended;
  int64_t step;
  uint64_t live_bytes;
  uint64_t most_bytes;
  uint32_t kind;
  uint32_t direction;
  uint32_t module;
  uint32_t micro_batches;
  uint64_t actions;
};
struct TransferRecord {
  double began;
  double ended;
  uint64_t bytes;
  uint64_t call;
  uint32_t kind;
  uint32_t is_ahead;
  uint64_t parameters;
};
struct WaitRecord {
  double began;
  double ended;
  uint64_t call;
  uint32_t of;
  uint32_t parameter;
};

template <class Enum>
uint32_t number_of(Enum value) {
  return static_cast<uint32_t>(value);
}

}  // namespace

// Writing.

Result<TraceLog> TraceLog::create(const std::filesystem::path& file, uint64_t most_bytes) {
  Result<FileDescriptor> fd = open_file(file, O_RDWR | O_CREAT | O_TRUNC, "write");
  if (!fd) return failed(std::move(fd));
  TraceLog made;
  made.file_ = std::move(*fd);
  made.most_bytes_ = std::max(most_bytes, kTraceWindow);
  if (!made.map_next()) return tl::unexpected<Error>(file_error(errno, "write", file));
  void* const head = ::mmap(nullptr, sizeof(Head), PROT_READ | PROT_WRITE, MAP_SHARED, made.file_.get(), 0);
  if (head == MAP_FAILED) return tl::unexpected<Error>(file_error(errno, "map", file));
  made.head_ = new (head) Head;
  made.head_->magic = kTraceLogMagic;
  made.head_->is_full.store(0, std::memory_order_relaxed);
  made.at_ = kFirstRecord;
  made.commit();
  return made;
}

TraceLog::TraceLog(TraceLog&& other) noexcept
    : file_(std::move(other.file_)),
      most_bytes_(other.most_bytes_),
      head_(std::exchange(other.head_, nullptr)),
      window_(std::exchange(other.window_, nullptr)),
      window_end_(other.window_end_),
      at_(other.at_),
      is_full_(other.is_full_),
      model_digest_(other.model_digest_) {}

TraceLog::~TraceLog() {
  if (window_ != nullptr) ::munmap(window_, kTraceWindow);
  if (head_ != nullptr) ::munmap(head_, sizeof(Head));
}

// With its blocks: a page that the disk has no room for would end the process as it is written.
bool TraceLog::map_next() noexcept {
  if (window_end_ + kTraceWindow > most_bytes_) return false;
  const auto begin = static_cast<off_t>(window_end_);
  const int error = ::posix_fallocate(file_.get(), begin, static_cast<off_t>(kTraceWindow));
  void* const next =
      error != 0 ? MAP_FAILED : ::mmap(nullptr, kTraceWindow, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), begin);
  if (error != 0) errno = error;
  if (next == MAP_FAILED) return false;
  if (window_ != nullptr) ::munmap(window_, kTraceWindow);
  window_ = static_cast<char*>(next);
  window_end_ += kTraceWindow;
  return true;
}

void TraceLog::put(const void* bytes, size_t count) noexcept {
  const auto* from = static_cast<const char*>(bytes);
  while (count > 0 && !is_full_) {
    if (at_ == window_end_ && !map_next()) {
      is_full_ = true;
      head_->is_full.store(1, std::memory_order_release);
      return;
    }
    const auto now = static_cast<size_t>(std::min<uint64_t>(count, window_end_ - at_));
    std::memcpy(window_ + (at_ % kTraceWindow), from, now);
    at_ += now;
    from += now;
    count -= now;
  }
}

void TraceLog::commit() noexcept {
  if (!is_full_) head_->end.store(at_, std::memory_order_release);
}

template <class Record>
void TraceLog::begin_record(uint32_t kind, const Record& record, size_t more) noexcept {
  static_assert(std::is_trivially_copyable_v<Record>);
  const RecordHead head{kind, static_cast<uint32_t>(sizeof(record) + more)};
  put(&head, sizeof(head));
  put(&record, sizeof(record));
}

void TraceLog::begin(const TracedGroup& group) {
  fmt::memory_buffer model;
  if (group.model != nullptr) append_model(model, *group.model);
  data::Digest digest;
  digest.add(std::string_view(model.data(), model.size()));
  const bool is_same = digest.value() == model_digest_;
  model_digest_ = digest.value();
  const size_t bytes = is_same ? 0 : model.size();
  begin_record(kGroupRecord,
               GroupRecord{group.generation, group.budget, group.rank, group.world_size, number_of(group.compute),
                           number_of(group.reduce), group.model != nullptr ? 1U : 0U, group.host_visible ? 1U : 0U,
                           group.coordinator.size(), bytes},
               group.coordinator.size() + bytes);
  put(group.coordinator.data(), group.coordinator.size());
  put(model.data(), bytes);
  commit();
}

void TraceLog::add(const TracedCall& call) noexcept {
  const size_t bytes = call.actions.size() * sizeof(pliant_action);
  begin_record(
      kCallRecord,
      CallRecord{call.began, call.ended, call.step, call.live_bytes, call.most_bytes, number_of(call.kind),
                 number_of(call.direction), call.module.value_or(kNoModule), call.micro_batches, call.actions.size()},
      bytes);
  put(call.actions.data(), bytes);
  commit();
}

void TraceLog::add(const TracedTransfer& transfer) noexcept {
  const size_t bytes = transfer.parameters.size() * sizeof(uint32_t);
  begin_record(kTransferRecord,
               TransferRecord{transfer.began, transfer.ended, transfer.bytes, transfer.call, number_of(transfer.kind),
                              transfer.is_ahead ? 1U : 0U, transfer.parameters.size()},
               bytes);
  put(transfer.parameters.data(), bytes);
  commit();
}

void TraceLog::add(const TracedWait& wait) noexcept {
  begin_record(kWaitRecord, WaitRecord{wait.began, wait.ended, wait.call, number_of(wait.of), wait.parameter}, 0);
  commit();
}

// Reading.

namespace {

/// The bytes of one record.
class RecordBytes {
 public:
  explicit RecordBytes(std::string_view bytes) : rest_(bytes) {}
  template <class Value>
  bool take(Value& value) {
    static_assert(std::is_trivially_copyable_v<Value>);
    if (rest_.size() < sizeof(value)) return false;
    std::memcpy(&value, rest_.data(), sizeof(value));
    rest_.remove_prefix(sizeof(value));
    return true;
  }
  template <class Value>
  bool take_all(std::vector<Value>& values, uint64_t count) {
    if (rest_.size() != count * sizeof(Value)) return false;
    values.resize(static_cast<size_t>(count));
    if (count > 0) std::memcpy(values.data(), rest_.data(), rest_.size());
    return true;
  }
  bool take_text(std::string& text, uint64_t bytes) {
    if (rest_.size() < bytes) return false;
    text = rest_.substr(0, static_cast<size_t>(bytes));
    rest_.remove_prefix(static_cast<size_t>(bytes));
    return true;
  }

 private:
  std::string_view rest_;
};

/// Takes records in turn; false for one that is none.
class LogReading {
 public:
  explicit LogReading(int64_t worker) : worker_(worker) {}

  bool take(uint32_t kind, RecordBytes bytes) {
    if (kind == kGroupRecord) return take_group(bytes);
    if (trace_.ranks.empty()) return false;
    if (kind == kCallRecord) return take_call(bytes);
    if (kind == kTransferRecord) return take_transfer(bytes);
    return kind == kWaitRecord && take_wait(bytes);
  }
  TraceFile finish(bool is_cut) {
    if (!trace_.ranks.empty()) trace_.ranks.back().is_cut = is_cut;
    for (TracedRank& rank : trace_.ranks) {
      const auto is_open = [&rank](const auto& one) { return one.call >= rank.calls.size(); };
      std::erase_if(rank.transfers, is_open);
      std::erase_if(rank.waits, is_open);
    }
    if (is_sharded_) trace_.model = model_from_json(nlohmann::json::parse(model_));
    return std::move(trace_);
  }

 private:
  bool take_group(RecordBytes& bytes) {
    GroupRecord record{};
    std::string model;
    if (!bytes.take(record) || !bytes.take_text(trace_.coordinator, record.coordinator_bytes) ||
        !bytes.take_text(model, record.model_bytes)) {
      return false;
    }
    if (!model.empty()) model_ = std::move(model);
    is_sharded_ = record.is_sharded != 0;
    trace_.budget = record.budget;
    trace_.compute = static_cast<DType>(record.compute);
    trace_.reduce = static_cast<DType>(record.reduce);
    trace_.host_visible = record.is_host_visible != 0;
    TracedRank rank;
    rank.rank = record.rank;
    rank.worker = worker_;
    rank.generation = record.generation;
    rank.world_size = record.world_size;
    trace_.ranks.push_back(std::move(rank));
    return true;
  }
  bool take_call(RecordBytes& bytes) {
    CallRecord record{};
    TracedCall call;
    if (!bytes.take(record) || !bytes.take_all(call.actions, record.actions) || record.kind >= kCallWords.size() ||
        record.direction >= kDirectionWords.size()) {
      return false;
    }
    for (pliant_action& action : call.actions) {
      if (action.kind == PLIANT_ACTION_DROP_TRACE || action.kind == PLIANT_ACTION_BOUND_WAITS)
        action.parameter = PLIANT_NO_PARAMETER;  // whatever a coordinator left there
    }
    call.kind = static_cast<TracedCall::Kind>(record.kind);
    call.direction = static_cast<Direction>(record.direction);
    if (record.module != kNoModule) call.module = record.module;
    call.step = record.step;
    call.micro_batches = record.micro_batches;
    call.began = record.began;
    call.ended = record.ended;
    call.live_bytes = record.live_bytes;
    call.most_bytes = record.most_bytes;
    trace_.ranks.back().calls.push_back(std::move(call));
    return true;
  }
  bool take_transfer(RecordBytes& bytes) {
    TransferRecord record{};
    TracedTransfer transfer;
    if (!bytes.take(record) || !bytes.take_all(transfer.parameters, record.parameters) ||
        record.kind >= kTransferWords.size()) {
      return false;
    }
    transfer.kind = static_cast<TracedTransfer::Kind>(record.kind);
    transfer.bytes = record.bytes;
    transfer.is_ahead = record.is_ahead != 0;
    transfer.call = static_cast<size_t>(record.call);
    transfer.began = record.began;
    transfer.ended = record.ended;
    trace_.ranks.back().transfers.push_back(std::move(transfer));
    return true;
  }
  bool take_wait(RecordBytes& bytes) {
    WaitRecord record{};
    if (!bytes.take(record) || record.of >= kTransferWords.size()) return false;
    TracedWait wait;
    wait.of = static_cast<TracedTransfer::Kind>(record.of);
    wait.parameter = record.parameter;
    wait.call = static_cast<size_t>(record.call);
    wait.began = record.began;
    wait.ended = record.ended;
    trace_.ranks.back().waits.push_back(wait);
    return true;
  }

  const int64_t worker_;
  TraceFile trace_;
  std::string model_;
  bool is_sharded_ = false;
};

tl::unexpected<Error> no_log(const std::filesystem::path& file) {
  return failed(Status::kDataLoss, fmt::format("{} is not a worker's record for a trace", file.string()));
}

}  // namespace

Result<TraceFile> read_trace_log(const std::filesystem::path& file, int64_t worker) {
  Result<FileDescriptor> fd = open_file(file, O_RDONLY, "read");
  if (!fd) return failed(std::move(fd));
  std::string head(kFirstRecord, '\0');
  size_t got = 0;
  const auto word = [&head](size_t place) {
    uint64_t value = 0;
    std::memcpy(&value, head.data() + place * sizeof(value), sizeof(value));
    return value;
  };
  if (const int error = read_at(fd->get(), head.data(), head.size(), 0, got); error != 0)
    return tl::unexpected<Error>(file_error(error, "read", file));
  if (got < head.size() || word(0) != kTraceLogMagic || word(1) < kFirstRecord) return no_log(file);
  struct stat status {};
  if (::fstat(fd->get(), &status) != 0) return tl::unexpected<Error>(file_error(errno, "read", file));
  const uint64_t end = std::min(word(1), static_cast<uint64_t>(status.st_size));
  std::string text(static_cast<size_t>(end - std::min(end, kFirstRecord)), '\0');
  if (const int error = read_at(fd->get(), text.data(), text.size(), kFirstRecord, got); error != 0)
    return tl::unexpected<Error>(file_error(error, "read", file));
  text.resize(got);
  try {
    LogReading reading(worker);
    for (std::string_view rest = text; !rest.empty();) {
      RecordHead record{};
      if (rest.size() < sizeof(record)) break;
      std::memcpy(&record, rest.data(), sizeof(record));
      rest.remove_prefix(sizeof(record));
      if (record.bytes > rest.size() || !reading.take(record.kind, RecordBytes(rest.substr(0, record.bytes)))) break;
      rest.remove_prefix(record.bytes);
    }
    return reading.finish(word(2) != 0);
  } catch (const std::bad_alloc&) {
    return failed(Status::kResourceExhausted, fmt::format("no memory for {}", file.string()));
  } catch (const std::exception&) {  // its model is none
    return no_log(file);
  }
}

}  // namespace pliant::sharded
