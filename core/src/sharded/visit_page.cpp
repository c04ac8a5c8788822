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
#include <map>
#include <new>
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

std::string ranks_text(const std::vector<size_t>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

}  // namespace

Result<VisitPage> VisitPage::create(const std::filesystem::path& file, const ModelTables& model) {
  const std::string names = names_of(model);
  Result<FileDescriptor> fd = open_file(file, O_RDWR | O_CREAT | O_TRUNC, "write");
  if (!fd) return failed(std::move(fd));
  VisitPage made;
  made.bytes_ = static_cast<size_t>(kNames + names.size());
  // With its blocks: a page that the disk has no room for would end the process as it is written.
  if (const int error = ::posix_fallocate(fd->get(), 0, static_cast<off_t>(made.bytes_)); error != 0) {
    return tl::unexpected<Error>(file_error(error, "write", file));
  }
  void* const mapped = ::mmap(nullptr, made.bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd->get(), 0);
  if (mapped == MAP_FAILED) return tl::unexpected<Error>(file_error(errno, "map", file));
  made.mapped_ = mapped;
  std::memcpy(static_cast<std::byte*>(mapped) + kNames, names.data(), names.size());
  auto* const head = new (mapped) Head;
  head->modules = model.modules().size();
  head->parameters = model.parameters().size();
  head->name_bytes = names.size();
  return made;
}

VisitPage::VisitPage(VisitPage&& other) noexcept
    : mapped_(std::exchange(other.mapped_, nullptr)),
      bytes_(other.bytes_),
      is_open_(other.is_open_),
      count_(other.count_),
      digest_(other.digest_),
      number_(other.number_),
      passes_(other.passes_) {}

VisitPage::~VisitPage() {
  if (mapped_ != nullptr) ::munmap(mapped_, bytes_);
}

void VisitPage::begin_group(int64_t generation) {
  Head& head = head_of(mapped_);
  head.generation.store(-1, std::memory_order_release);
  head.count.store(0, std::memory_order_release);
  count_ = 0;
  digest_ = 0x9e3779b97f4a7c15U;
  begin_step();
  is_open_ = true;
  head.generation.store(generation, std::memory_order_release);
}

void VisitPage::begin_step() {
  number_ = passes_ = 0;
}

void VisitPage::add(Visited::Kind kind, uint32_t what) {
  if (!is_open_) return;
  const uint64_t word = static_cast<uint64_t>(kind) << 32U | what;
  digest_ = (digest_ ^ word) * 0xbf58476d1ce4e5b9U;
  digest_ ^= digest_ >> 29U;
  if (kind == Visited::Kind::kPass || kind == Visited::Kind::kEvaluation) ++passes_;
  Entry& entry = entry_of(mapped_, count_);
  // Whoever sees a new word of the entry sees the count, too, which is a ring above what was there.
  entry.kind_and_what.store(word, std::memory_order_release);
  entry.number_and_passes.store(static_cast<uint64_t>(number_) << 32U | passes_, std::memory_order_release);
  entry.digest.store(digest_, std::memory_order_release);
  head_of(mapped_).count.store(++count_, std::memory_order_release);
  if (kind <= Visited::Kind::kRecompute) ++number_;
}

Result<VisitReader> VisitReader::open(const std::filesystem::path& file) {
  Result<FileDescriptor> fd = open_file(file, O_RDONLY, "read");
  if (!fd) return failed(std::move(fd));
  struct stat status {};
  if (::fstat(fd->get(), &status) != 0) return tl::unexpected<Error>(file_error(errno, "read", file));
  const auto no_page = [&file] {
    return failed(Status::kDataLoss, fmt::format("{} is no page of visits", file.string()));
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
  const char* direction = "forward";
  switch (visit.kind) {
    case Visited::Kind::kPass:
      return fmt::format("began pass {} of the step{}", visit.passes,
                         visit.what > 0 ? fmt::format(", over {} micro-batches", visit.what + 1) : "");
    case Visited::Kind::kEvaluation:
      return "began an evaluation";
    case Visited::Kind::kEndPass:
      return fmt::format("ended its pass after visit {}", visit.number);
    case Visited::Kind::kByHand:
      return fmt::format("moved {} by hand", name(false, visit.what));
    case Visited::Kind::kMicroBatch:
      return fmt::format("began micro-batch {} of its pass after visit {}", visit.what, visit.number);
    case Visited::Kind::kBackward:
      direction = "backward";
      break;
    case Visited::Kind::kRecompute:
      direction = "recompute";
      break;
    case Visited::Kind::kForward:
      break;
  }
  return fmt::format("entered {} ({}) as visit {}", name(true, visit.what), direction, visit.number);
}

std::optional<std::string> how_visits_differ(const std::vector<const VisitReader*>& pages, int64_t generation,
                                             bool all_done) {
  uint64_t least = UINT64_MAX;
  uint64_t most = 0;
  for (const VisitReader* const page : pages) {
    if (page == nullptr || page->generation() != generation) return std::nullopt;
    least = std::min(least, page->count());
    most = std::max(most, page->count());
  }
  const auto same_at = [&pages](uint64_t place) -> std::optional<bool> {
    std::optional<uint64_t> digest;
    for (const VisitReader* const page : pages) {
      const std::optional<Visited> one = page->at(place);
      if (!one) return std::nullopt;
      if (digest.value_or(one->digest) != one->digest) return false;
      digest = one->digest;
    }
    return true;
  };
  if (pages.empty() || (least == 0 && !all_done)) return std::nullopt;
  const bool is_same = least == 0 || same_at(least - 1).value_or(true);
  if (is_same && (!all_done || least == most)) return std::nullopt;
  uint64_t first = least;
  if (!is_same) {  // digests that differ once differ from there on
    uint64_t low = most >= VisitPage::kRing ? most - VisitPage::kRing + 1 : 0;
    uint64_t high = least - 1;
    while (low < high) {
      const uint64_t middle = low + (high - low) / 2;
      if (same_at(middle).value_or(true)) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    first = high;
  }
  std::map<std::string, std::vector<size_t>> by_words;
  for (size_t rank = 0; rank < pages.size(); ++rank) {
    const std::optional<Visited> one = pages[rank]->at(first);
    by_words[one ? pages[rank]->words(*one) : std::string("visited nothing more")].push_back(rank);
  }
  std::vector<std::pair<std::string, std::vector<size_t>>> sides(by_words.begin(), by_words.end());
  std::sort(sides.begin(), sides.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second.size(), a.second.front()) < std::pair(b.second.size(), b.second.front());
  });
  std::string text;
  for (const auto& [words, ranks] : sides) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", ranks_text(ranks), words);
  }
  return text;
}

}  // namespace pliant::sharded
