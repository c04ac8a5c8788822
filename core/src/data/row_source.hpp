// RowSource: the rows of one epoch as a sampler gives them, portion by portion, each portion held to the contract.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "pliant/abi/batch_sampler.h"
#include "pliant/abi/row_stream.h"
#include "pliant/batches.hpp"
#include "pliant/sdk/sampler_rules.hpp"

namespace pliant::data {

/// Data sets of so many sequences are streamed where the sampler can.
/// Planning is the quicker way as long as the rows fit: 4 to 5 bytes a sequence.
inline constexpr size_t kStreamFrom = size_t{1} << 28U;

/// A sampler as the core calls it.
struct Sampler {
  std::string name;  ///< "sampler 'seqlen'", for messages
  const pliant_batch_sampler* slots = nullptr;
  void* self = nullptr;
  /// What to report when a slot answers with another status than PLIANT_OK.
  std::function<Error(int32_t status, const pliant_error& error)> refusal;
  const pliant_row_stream* stream = nullptr;  ///< nullptr: it has none, or none is wanted
  std::function<Result<std::string>()> save;  ///< with `stream`
  std::function<Result<>(std::string_view)> load;
};

/// What an epoch is planned from.
struct EpochInputs {
  uint64_t seed = 0;
  int64_t epoch = 0;
  int64_t rows_per_batch = 1;
  Dataset dataset;
};

/// Row i holds entries [offsets[i], offsets[i + 1]).
struct RowBlock {
  std::vector<uint64_t> offsets;  ///< from 0 on
  std::vector<int64_t> ids;
  std::vector<int64_t> first_tokens;  ///< of each entry; empty = all are whole sequences
  std::vector<int64_t> token_counts;
  [[nodiscard]] uint64_t rows() const { return offsets.empty() ? 0 : offsets.size() - 1; }
};

class RowSource {
 public:
  virtual ~RowSource() = default;
  /// Rows from `first` on: `count` of them, or fewer where the epoch ends. In `block` ids are in the data set, rows
  /// have entries and pieces lie within their sequences. An error when the sampler breaks its contract or refuses.
  virtual Result<> read(uint64_t first, uint64_t count, RowBlock& block) = 0;
  /// What the sampler says of the epoch; nullopt: the rows are all there is, and nothing is dropped.
  [[nodiscard]] virtual std::optional<sdk::EpochCounts> announced() const = 0;
  /// Ids by reason, ascending.
  virtual Result<std::map<std::string, std::vector<int64_t>>> dropped() = 0;
};

/// Asks for the epoch's rows: streams them where `sampler` can, else has it plan. Views `sampler` and `inputs`.
Result<std::unique_ptr<RowSource>> open_rows(const Sampler& sampler, const EpochInputs& inputs);

/// The sampler broke its contract: kInternal, kPlugin.
[[nodiscard]] tl::unexpected<Error> broke(const Sampler& sampler, int64_t epoch, const std::string& how);

}  // namespace pliant::data
