// VisitPage: what a rank of a sharded job visits, in memory that its agent reads: ranks that differ are seen where they
// wait for each other, and named.
//
// A file: a head, a ring of the latest entries, and the names of modules and parameters. The rank maps it and writes
// without waiting for anybody. Whoever reads copies an entry and looks whether it was overwritten meanwhile; it does
// not map the file, which somebody might make shorter.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/durable_file.hpp"
#include "base/result.hpp"
#include "sharded/shards/model_tables.hpp"
#include "sharded/trace/visited.hpp"

namespace pliant::sharded {

/// Gives back what a page was mapped to.
struct UnmapPage {
  size_t bytes = 0;
  void operator()(void* mapped) const noexcept;
};

/// Of the process that visits: counts what it does and, where it has a page, shows it. One thread at a time; no call
/// waits, and none fails once it is made.
class VisitPage {
 public:
  static constexpr uint64_t kRing = uint64_t{1} << 16U;  ///< entries that can be looked up

  /// Without a page.
  VisitPage() = default;
  /// Makes `file` anew, for the modules and parameters of a model. One that is there stays with whoever has it mapped.
  static Result<VisitPage> create(const std::filesystem::path& file, const ModelTables& model);

  [[nodiscard]] bool is_shown() const { return mapped_ != nullptr; }
  /// The ranks of a generation begin to count.
  void begin_group(int64_t generation);
  /// What this rank does from now on, until the next group, is nobody's business: it has given up its pass. What it has
  /// done until now stays to be seen, but for what it gave back last of all: an exception on its way may have done
  /// that.
  void end_group();
  void begin_step() { number_ = passes_ = 0; }
  void add(Visited::Kind kind, uint32_t what);
  [[nodiscard]] VisitCount so_far() const { return now_; }

 private:
  std::unique_ptr<void, UnmapPage> mapped_;
  bool is_open_ = false;
  VisitCount now_;
  VisitCount before_given_back_;  ///< what came last: see gives_back
  uint32_t number_ = 0;
  uint32_t passes_ = 0;
};

/// Of another process. A page that was cut short says nothing.
class VisitReader {
 public:
  /// kNotFound; kDataLoss for what is no such page.
  static Result<VisitReader> open(const std::filesystem::path& file);
  [[nodiscard]] int64_t generation() const;
  /// Entries since the group formed.
  [[nodiscard]] uint64_t count() const;
  /// nullopt where it was overwritten, or there is none yet.
  [[nodiscard]] std::optional<Visited> at(uint64_t place) const;
  /// "entered mlp.up (backward) as visit 17": its number in the step.
  [[nodiscard]] std::string words(const Visited& visit) const;

 private:
  VisitReader() = default;
  [[nodiscard]] std::string_view name(bool of_module, uint32_t number) const;
  /// At `offset` of the file; nullopt where it is cut short.
  [[nodiscard]] std::optional<uint64_t> word(uint64_t offset) const;
  /// One that the other process changes.
  [[nodiscard]] std::optional<uint64_t> settled(uint64_t offset) const;

  FileDescriptor file_;
  std::string names_;
  std::vector<std::pair<size_t, size_t>> names_at_;  ///< begin and size in names_: modules, then parameters
  uint64_t first_parameter_ = 0;                     ///< in names_at_
};

}  // namespace pliant::sharded
