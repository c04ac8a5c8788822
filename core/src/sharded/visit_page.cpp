#include "sharded/visit_page.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <new>
#include <system_error>
#include <utility>

#include "base/durable_file.hpp"
#include "base/whole_file.hpp"
#include "pliant/error.hpp"

namespace pliant::sharded {
namespace {

constexpr uint64_t kMagic = 0x3167617056746c50U;

/// Entries and names follow it.
struct Head {
  uint64_t magic = kMagic;
  uint64_t ring = VisitPage::kRing;
  uint64_t modules = 0;
  uint64_t parameters = 0;
  uint64_t name_bytes = 0;
  std::atomic<int64_t> generation = -1;
  std::atomic<uint64_t> count = 0;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && sizeof(Head) == 56);

/// Words that are read while another process may write them.
struct Entry {
  std::atomic<uint64_t> kind_and_what;
  std::atomic<uint64_t> number_and_passes;
  std::atomic<uint64_t> digest;
};
static_assert(sizeof(Entry) == 24);

constexpr uint64_t kEntries = sizeof(Head);
constexpr uint64_t kNames = kEntries + VisitPage::kRing * sizeof(Entry);

Head& head_of(void* mapped) {
  return *static_cast<Head*>(mapped);
}
Entry& entry_of(void* mapped, uint64_t place) {
  return reinterpret_cast<Entry*>(static_cast<std::byte*>(mapped) + kEntries)[place % VisitPage::kRing];
}

std::string names_of(const ModelTables& model) {
  std::string names;
  for (const ModuleRow& module : model.modules()) (names += module.name) += '\n';
  for (const ParameterRow& parameter : model.parameters()) (names += parameter.name) += '\n';
  return names;
}

const char* word_of(Visited::Kind kind) {
  switch (kind) {
    case Visited::Kind::kBackward:
    case Visited::Kind::kLeaveBackward:
      return "backward";
    case Visited::Kind::kRecompute:
    case Visited::Kind::kLeaveRecompute:
      return "recompute";
    default:
      return "forward";
  }
}

}  // namespace

// A page of that name may be mapped by a process of an agent that was killed: it is not made shorter under its hands.
Result<VisitPage> VisitPage::create(const std::filesystem::path& file, const ModelTables& model) {
  const std::string names = names_of(model);
  std::error_code absent;
  std::filesystem::remove(file, absent);
  Result<FileDescriptor> fd = open_file(file, O_RDWR | O_CREAT | O_EXCL, "write");
  if (!fd) return failed(std::move(fd));
  const auto bytes = static_cast<size_t>(kNames + names.size());
  // With its blocks: a page that the disk has no room for would end the process as it is written.
  if (const int error = ::posix_fallocate(fd->get(), 0, static_cast<off_t>(bytes)); error != 0) {
    std::filesystem::remove(file, absent);
    return tl::unexpected<Error>(file_error(error, "write", file));
  }
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd->get(), 0);
  if (mapped == MAP_FAILED) return tl::unexpected<Error>(file_error(errno, "map", file));
  VisitPage made;
  made.mapped_ = std::unique_ptr<void, UnmapPage>(mapped, UnmapPage{bytes});
  std::memcpy(static_cast<std::byte*>(mapped) + kNames, names.data(), names.size());
  auto* const head = new (mapped) Head;
  head->modules = model.modules().size();
  head->parameters = model.parameters().size();
  head->name_bytes = names.size();
  return made;
}

void UnmapPage::operator()(void* mapped) const noexcept {
  ::munmap(mapped, bytes);
}

void VisitPage::begin_group(int64_t generation) {
  now_ = before_given_back_ = {0, 0x9e3779b97f4a7c15U};
  begin_step();
  is_open_ = true;
  if (!mapped_) return;
  Head& head = head_of(mapped_.get());
  head.generation.store(-1, std::memory_order_release);
  head.count.store(0, std::memory_order_release);
  head.generation.store(generation, std::memory_order_release);
}

void VisitPage::end_group() {
  if (!std::exchange(is_open_, false)) return;
  now_ = before_given_back_;
  if (mapped_) head_of(mapped_.get()).count.store(now_.count, std::memory_order_release);
}

void VisitPage::add(Visited::Kind kind, uint32_t what) {
  if (!is_open_) return;
  const uint64_t word = static_cast<uint64_t>(kind) << 32U | what;
  now_.digest = (now_.digest ^ word) * 0xbf58476d1ce4e5b9U;
  now_.digest ^= now_.digest >> 29U;
  const uint64_t place = now_.count++;
  if (!gives_back(kind)) before_given_back_ = now_;
  if (kind == Visited::Kind::kPass || kind == Visited::Kind::kEvaluation) ++passes_;
  if (mapped_) {
    Entry& entry = entry_of(mapped_.get(), place);
    // Whoever sees a new word of the entry sees the count, too, which is a ring above what was there.
    entry.kind_and_what.store(word, std::memory_order_release);
    entry.number_and_passes.store(static_cast<uint64_t>(number_) << 32U | passes_, std::memory_order_release);
    entry.digest.store(now_.digest, std::memory_order_release);
    head_of(mapped_.get()).count.store(now_.count, std::memory_order_release);
  }
  if (is_enter(kind)) ++number_;
}

Result<VisitReader> VisitReader::open(const std::filesystem::path& file) {
  Result<FileDescriptor> fd = open_file(file, O_RDONLY, "read");
  if (!fd) return failed(std::move(fd));
  struct stat status {};
  if (::fstat(fd->get(), &status) != 0) return tl::unexpected<Error>(file_error(errno, "read", file));
  const auto no_page = [&file] {
    return failed(Status::kDataLoss, fmt::format("{} is not a visit page", file.string()));
  };
  const auto bytes = static_cast<uint64_t>(status.st_size);
  VisitReader made;
  made.file_ = std::move(*fd);
  const auto word = [&made](uint64_t offset) { return made.word(offset).value_or(0); };
  if (bytes < kNames || word(offsetof(Head, magic)) != kMagic || word(offsetof(Head, ring)) != VisitPage::kRing ||
      word(offsetof(Head, name_bytes)) != bytes - kNames) {
    return no_page();
  }
  made.names_.resize(bytes - kNames);
  size_t got = 0;
  if (const int error = read_at(made.file_.get(), made.names_.data(), made.names_.size(), kNames, got); error != 0) {
    return tl::unexpected<Error>(file_error(error, "read", file));
  }
  if (got < made.names_.size()) return no_page();
  made.first_parameter_ = word(offsetof(Head, modules));
  for (size_t begin = 0, end = 0; (end = made.names_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    made.names_at_.emplace_back(begin, end - begin);
  }
  return made;
}

std::optional<uint64_t> VisitReader::word(uint64_t offset) const {
  uint64_t value = 0;
  size_t got = 0;
  const int error = read_at(file_.get(), reinterpret_cast<char*>(&value), sizeof(value), offset, got);
  return error == 0 && got == sizeof(value) ? std::optional<uint64_t>(value) : std::nullopt;
}

// A read of the file may see a number half old and half new, but not the same one twice.
std::optional<uint64_t> VisitReader::settled(uint64_t offset) const {
  constexpr int kTries = 100;
  std::optional<uint64_t> last = word(offset);
  for (int i = 0; last && i < kTries; ++i) {
    const std::optional<uint64_t> again = word(offset);
    if (again == last) return last;
    last = again;
  }
  return std::nullopt;
}

int64_t VisitReader::generation() const {
  return static_cast<int64_t>(settled(offsetof(Head, generation)).value_or(UINT64_MAX));
}

uint64_t VisitReader::count() const {
  return settled(offsetof(Head, count)).value_or(0);
}

std::optional<Visited> VisitReader::at(uint64_t place) const {
  if (place >= count()) return std::nullopt;
  const uint64_t entry = kEntries + place % VisitPage::kRing * sizeof(Entry);
  const std::optional<uint64_t> what = word(entry + offsetof(Entry, kind_and_what));
  const std::optional<uint64_t> number = word(entry + offsetof(Entry, number_and_passes));
  const std::optional<uint64_t> digest = word(entry + offsetof(Entry, digest));
  const std::optional<uint64_t> after = settled(offsetof(Head, count));
  if (!what || !number || !digest || !after || *after >= place + VisitPage::kRing) return std::nullopt;
  Visited made;
  made.kind = static_cast<Visited::Kind>(*what >> 32U);
  made.what = static_cast<uint32_t>(*what);
  made.number = static_cast<uint32_t>(*number >> 32U);
  made.passes = static_cast<uint32_t>(*number);
  made.digest = *digest;
  return made;
}

std::string_view VisitReader::name(bool of_module, uint32_t number) const {
  const uint64_t place = of_module ? number : first_parameter_ + number;
  const uint64_t end = of_module ? first_parameter_ : names_at_.size();
  if (place >= std::min<uint64_t>(end, names_at_.size())) return "?";
  const auto [begin, size] = names_at_[place];
  return std::string_view(names_).substr(begin, size);
}

std::string VisitReader::words(const Visited& visit) const {
  switch (visit.kind) {
    case Visited::Kind::kPass:
      return fmt::format("began pass {} of the step{}", visit.passes,
                         visit.what > 0 ? fmt::format(", over {} micro-batches", visit.what + 1) : "");
    case Visited::Kind::kEvaluation:
      return "began an evaluation";
    case Visited::Kind::kEndPass:
      return fmt::format("ended its pass after {} visits", visit.number);
    case Visited::Kind::kByHand:
      return fmt::format("moved {} by hand", name(false, visit.what));
    case Visited::Kind::kRelease:
      return fmt::format("released {} by hand", name(false, visit.what));
    case Visited::Kind::kWrite:
      return fmt::format("wrote {}", name(false, visit.what));
    case Visited::Kind::kMicroBatch:
      return fmt::format("began micro-batch {} of its pass after {} visits", visit.what, visit.number);
    case Visited::Kind::kModel:
      return fmt::format("began a pass with modules changed by set_parameters (digest {:08x})", visit.what);
    case Visited::Kind::kCommit:
      return fmt::format("reached Step::commit after {} visits", visit.number);
    case Visited::Kind::kEndStep:
      return fmt::format("ended the step after {} visits", visit.number);
    default:
      break;
  }
  const std::string_view module = name(true, visit.what);
  if (is_leave(visit.kind)) {
    return fmt::format("left {} ({}) after {} visits", module, word_of(visit.kind), visit.number);
  }
  return fmt::format("entered {} ({}) as visit {}", module, word_of(visit.kind), visit.number);
}

}  // namespace pliant::sharded
