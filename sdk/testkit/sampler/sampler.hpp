// A sampler under test, and the epochs that it is asked for.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "pliant/abi/row_stream.h"
#include "pliant/sdk/sampler_rules.hpp"
#include "testkit/instance.hpp"

namespace pliant::testkit {

/// What an epoch is planned from.
struct EpochAsked {
  uint64_t seed = 1;
  int64_t epoch = 0;
  int64_t rows_per_batch = 1;
  std::vector<int32_t> lengths;
  std::vector<int32_t> loss_tokens;         ///< empty: all have a loss
  std::optional<std::vector<int64_t>> ids;  ///< those to use
  std::vector<uint64_t> row_offsets;        ///< rows made beforehand, which most samplers do not look at
  std::vector<int64_t> row_ids;
  [[nodiscard]] uint64_t sequences() const { return ids ? ids->size() : lengths.size(); }
  /// Of those to use.
  [[nodiscard]] uint64_t tokens() const;
  [[nodiscard]] std::string text() const;
};

/// Rows as flat arrays.
struct Rows {
  std::vector<uint64_t> offsets{0};
  std::vector<int64_t> ids;
  std::vector<int64_t> firsts;
  std::vector<int64_t> counts;
  [[nodiscard]] uint64_t size() const { return offsets.size() - 1; }
  [[nodiscard]] Rows part(uint64_t first, uint64_t count) const;
  void append(const Rows& more);
  bool operator==(const Rows&) const = default;
};

/// In which of its rules an epoch is broken.
enum class Part { kNone, kCounts, kForm, kPadding, kPieces, kOnce, kDrops };

/// An epoch as far as it could be read.
struct Epoch {
  Reply told;  ///< of begin_epoch
  sdk::EpochCounts counts;
  Rows rows;
  std::vector<int64_t> dropped;
  std::vector<int32_t> reasons;
  Part broken = Part::kNone;
  std::string fault;    ///< of `broken`
  std::string spilled;  ///< what it wrote that is the host's
  std::string refusal;  ///< what is wrong with the errors of its calls
  [[nodiscard]] bool is_sound() const { return told.ok() && broken == Part::kNone; }
};

class Sampler : public Instance<pliant_batch_sampler> {
 public:
  using Instance::Instance;

  /// Begins an epoch. The request and its ids are gone when this returns; lengths, loss tokens and rows stay with
  /// `asked`.
  [[nodiscard]] Reply begin(const EpochAsked& asked, Room<pliant_epoch>& made);
  /// An array that is too short says so by its status.
  [[nodiscard]] Reply offsets(uint64_t first, uint64_t count, Rows& rows);
  [[nodiscard]] Reply rows(uint64_t first, uint64_t count, uint64_t capacity, Rows& rows, std::string& spilled);
  [[nodiscard]] Reply pieces(uint64_t first, uint64_t count, uint64_t capacity, Rows& rows, std::string& spilled);
  /// Begins the epoch, reads all of it and holds it against the rules.
  [[nodiscard]] Epoch epoch(const EpochAsked& asked);
  /// nullptr where it has none.
  template <class Table>
  [[nodiscard]] std::optional<Table> extension(const char* id) const {
    if (plugin().record().extension == nullptr) return std::nullopt;
    const void* const found = plugin().record().extension(self(), id);
    return found == nullptr ? std::nullopt : std::optional(sdk::widened<Table>(found));
  }

 private:
  void read_rows(const EpochAsked& asked, Epoch& epoch);
  void judge(const EpochAsked& asked, Epoch& epoch);
  void read_dropped(Epoch& epoch);
};

pliant_epoch_request request_of(const EpochAsked& asked);

inline constexpr uint64_t kSamplers = 12;
inline constexpr uint64_t kEpochs = 10;

/// Number `index` of a seed: one sequence, few of them, many; short and long ones; with loss tokens and without.
EpochAsked drawn_epoch(uint64_t seed, uint64_t index);

/// Does `look(sampler, asked, index)` under the default options and under drawn ones, whose number is `index`. Several
/// epochs of each sampler.
template <class Look>
void for_each_request(const Subject& subject, const Look& look) {
  const OpenedPlugin plugin(subject.file);
  for (uint64_t index = 0; index < kSamplers; ++index) {
    Sampler sampler(plugin, subject, index);
    for (uint64_t epoch = 0; sampler.is_made() && epoch < kEpochs; ++epoch) {
      look(sampler, drawn_epoch(subject.seed, index * kEpochs + epoch), index);
    }
  }
}

/// The same for the epochs that it planned, with all of each: look(sampler, asked, epoch, index). Warns where it
/// refused all.
template <class Look>
void for_each_epoch(const Subject& subject, const Look& look) {
  bool has_planned = false;
  for_each_request(subject, [&](Sampler& sampler, const EpochAsked& asked, uint64_t index) {
    const Epoch epoch = sampler.epoch(asked);
    if (!epoch.told.ok()) return;
    has_planned = true;
    look(sampler, asked, epoch, index);
  });
  if (!has_planned) warn("it refuses every drawn epoch; set valid options with --set");
}

/// And for those that keep the rules: what does not is another check's.
template <class Look>
void for_each_sound_epoch(const Subject& subject, const Look& look) {
  for_each_epoch(subject, [&](Sampler& sampler, const EpochAsked& asked, const Epoch& epoch, uint64_t index) {
    if (epoch.is_sound()) look(sampler, asked, epoch, index);
  });
}

}  // namespace pliant::testkit
