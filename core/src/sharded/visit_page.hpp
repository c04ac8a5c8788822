// VisitPage: what a rank of a sharded job visits, in memory that its agent reads: ranks that differ are seen before
// they wait for each other, and named.
//
// A file: a head, a ring of the latest visits, and the names of modules and parameters. The rank maps it and writes
// without waiting for anybody. Whoever reads copies an entry and looks whether it was overwritten meanwhile; it does
// not map the file, which somebody might make shorter.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/durable_file.hpp"
#include "base/result.hpp"
#include "sharded/model_tables.hpp"

namespace pliant::sharded {

/// What other ranks must do, too, in the same order.
struct Visited {
  enum class Kind : uint32_t { kForward, kBackward, kRecompute, kPass, kEvaluation, kEndPass, kByHand, kMicroBatch };
  Kind kind = Kind::kPass;
  /// Module that is entered, parameter that is moved by hand, micro-batch that is begun, or how many more than one a
  /// pass is over.
  uint32_t what = 0;
  uint32_t number = 0;  ///< of the modules entered since the step began, from 0
  uint32_t passes = 0;  ///< begun since then
  uint64_t digest = 0;  ///< of all since the group formed, this one included
};

/// Of the process that visits. One thread at a time; no call waits, and none fails once it is made.
class VisitPage {
 public:
  static constexpr uint64_t kRing = 1024;  ///< visits that can be looked up

  /// Writes `file` anew, for the modules and parameters of a model.
  static Result<VisitPage> create(const std::filesystem::path& file, const ModelTables& model);
  VisitPage(VisitPage&& other) noexcept;
  VisitPage& operator=(VisitPage&&) = delete;
  ~VisitPage();

  /// The ranks of a generation begin to count.
  void begin_group(int64_t generation);
  /// What this rank visits from now on, until the next group, is nobody's business: it has given up its pass. What it
  /// has visited until now stays to be seen.
  void end_group() { is_open_ = false; }
  void begin_step();
  void add(Visited::Kind kind, uint32_t what);

 private:
  VisitPage() = default;
  void* mapped_ = nullptr;
  size_t bytes_ = 0;
  bool is_open_ = false;
  uint64_t count_ = 0;
  uint64_t digest_ = 0;
  uint32_t number_ = 0;
  uint32_t passes_ = 0;
};

/// Of another process. A page that was cut short says nothing.
class VisitReader {
 public:
  /// kNotFound; kDataLoss for what is no such page.
  static Result<VisitReader> open(const std::filesystem::path& file);
  [[nodiscard]] int64_t generation() const;
  /// Visits since the group formed.
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

/// Whether ranks that work together have visited the same so far; `pages` by rank, nullptr for one that has none. Those
/// that are behind have not differed yet, unless `all_done`: then all must have come equally far. In words who did what
/// at the first visit that differs: "rank 2 entered mlp.up (backward) as visit 17, ranks 0, 1, 3 entered attn.qkv
/// (forward) as visit 17". nullopt: they are the same, or of other generations. O(ranks * log(ring)).
std::optional<std::string> how_visits_differ(const std::vector<const VisitReader*>& pages, int64_t generation,
                                             bool all_done);

}  // namespace pliant::sharded
