// Sampler `rows`: every row is one that a program made beforehand, given as arrays of offsets and ids.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../common/order.hpp"
#include "../common/packing_report.hpp"
#include "../common/padding_rows.hpp"
#include "pliant/sdk/batch_sampler.hpp"

namespace {

namespace sampler = pliant::sampler;
namespace sdk = pliant::sdk;

/// Rows where the host holds them, in an order of their own.
class OrderedRows : public sdk::RowSource {
 public:
  std::span<const uint64_t> offsets{};
  std::span<const int64_t> ids{};
  std::vector<uint64_t> own_offsets;  ///< what `offsets` and `ids` view where not all sequences are used
  std::vector<int64_t> own_ids;
  std::vector<uint64_t> order;  ///< which row is which; empty = as given
  uint64_t rows = 0;            ///< of them those that are used
  uint64_t entries = 0;         ///< of those

  [[nodiscard]] uint64_t given(uint64_t row) const { return order.empty() ? row : order[row]; }
  [[nodiscard]] std::span<const int64_t> row(uint64_t row) const {
    const uint64_t at = given(row);
    return ids.subspan(offsets[at], offsets[at + 1] - offsets[at]);
  }
  [[nodiscard]] uint64_t row_count() const override { return rows; }
  [[nodiscard]] uint64_t entry_count() const override { return entries; }
  void write(uint64_t first, uint64_t count, uint64_t* to_offsets, int64_t* to_ids) override {
    to_offsets[0] = 0;
    for (uint64_t i = 0; i < count; ++i) {
      const std::span<const int64_t> held = row(first + i);
      if (to_ids != nullptr) std::copy(held.begin(), held.end(), to_ids + to_offsets[i]);
      to_offsets[i + 1] = to_offsets[i] + held.size();
    }
  }
};

/// "3, 17, 20 and 4 more".
class Named {
 public:
  void add(const std::string& one) {
    if (++count_ <= kNamed) text_ += (text_.empty() ? "" : ", ") + one;
  }
  [[nodiscard]] uint64_t count() const { return count_; }
  [[nodiscard]] std::string text() const {
    return count_ <= kNamed ? text_ : text_ + " and " + std::to_string(count_ - kNamed) + " more";
  }

 private:
  static constexpr uint64_t kNamed = 5;
  uint64_t count_ = 0;
  std::string text_;
};

class Rows {
 public:
  std::string offsets;
  std::string ids;
  std::string order = "dataloader";
  int64_t max_tokens = 0;
  std::string unused = "error";
  std::string tail = "keep";

  static void options(sdk::Options<Rows>& o) {
    o.add("offsets", &Rows::offsets,
          "Where each row begins in ids: a .npy file of integers, one more than rows, from 0 to the number of ids; "
          "relative to the config file. Not used if the program gives rows itself.")
        .row_offsets();
    o.add("ids", &Rows::ids,
          "The sequences of the rows: a .npy file of integers; row i is ids[offsets[i]] to ids[offsets[i + 1] - 1]. "
          "Relative to the config file.")
        .row_ids();
    o.add("order", &Rows::order,
          "Order of the rows: dataloader = as given; random = shuffled in each epoch as Python's "
          "random.Random(seed + (epoch << 64)).shuffle does. The sequences of a row keep their order.")
        .choices({"dataloader", "random"});
    o.add("max_tokens", &Rows::max_tokens, "Most tokens in a row; 0 = no limit. Rows with more are refused by number.")
        .at_least(0)
        .unit("tokens");
    o.add("unused", &Rows::unused,
          "What to do with sequences that are in no row: error = stop and name them; drop = drop them, counted as "
          "not_in_rows.")
        .choices({"error", "drop"});
    o.add("tail", &Rows::tail,
          "What to do with rows that do not fill the last batch: keep = a short batch; pad = fill it up with rows "
          "without sequences; drop = drop them, counted as incomplete_batch.")
        .choices({"keep", "pad", "drop"});
  }

  static std::array<const char*, 2> reasons() { return {"not_in_rows", "incomplete_batch"}; }

  void plan_epoch(const sdk::EpochRequest& request, sdk::EpochRows& rows) const {
    sampler::check_request(request);
    if (!request.has_rows) {
      throw sdk::Failure(PLIANT_FAILED_PRECONDITION,
                         "there are no rows; set offsets and ids to .npy files, or give rows with the lengths",
                         "offsets ids");
    }
    auto made = std::make_shared<OrderedRows>();
    made->offsets = request.row_offsets;
    made->ids = request.row_ids;
    drop_unused(request, *made, rows);
    made->rows = made->offsets.size() - 1;
    made->entries = made->ids.size();
    if (max_tokens > 0) check_budget(request, *made);
    if (order == "random") shuffle(request, *made);
    const auto batch = static_cast<uint64_t>(request.rows_per_batch);
    if (tail == "drop") drop_last_batch(batch, *made, rows);
    rows.source = std::move(made);
    if (tail == "pad") sampler::pad_last_batch(batch, rows);
  }

  [[nodiscard]] sdk::PackingReport packing_report(const sdk::PackedEpoch& epoch) const {
    return sampler::report_sums(epoch, max_tokens, 0, PLIANT_UNIT_TOKENS,
                                [](int64_t, int64_t tokens) { return tokens; });
  }
  const void* extension(const char* id) const {
    return std::strcmp(id, PLIANT_PACKING) == 0 ? sdk::packing_table<Rows>() : nullptr;
  }

  void save(const sdk::Writer& out) const { sampler::save_options(out, kStateTag, options_text()); }
  void load(const sdk::Reader& in) const { sampler::load_options(in, kStateTag, options_text()); }

 private:
  enum Reason : int32_t { kNotInRows = 0, kIncompleteBatch = 1 };
  static constexpr const char* kStateTag = "sampler rows, state 1";

  /// The rows themselves are data, which the host compares.
  [[nodiscard]] std::string options_text() const {
    return "order = " + order + ", max_tokens = " + std::to_string(max_tokens) + ", unused = " + unused +
           ", tail = " + tail;
  }

  /// Sequences in no row are refused or dropped; those that the request leaves out are taken out of the rows.
  void drop_unused(const sdk::EpochRequest& request, OrderedRows& made, sdk::EpochRows& rows) const {
    std::vector<bool> is_left(request.lengths.size(), !request.has_ids);
    if (request.has_ids) {
      for (const int64_t id : sampler::chosen_ids(request)) {
        if (is_left[static_cast<size_t>(id)]) {
          throw sdk::Failure(PLIANT_INVALID_ARGUMENT,
                             "sequence " + std::to_string(id) + " is asked for twice; rows use a sequence once");
        }
        is_left[static_cast<size_t>(id)] = true;
      }
      keep_only(is_left, made);
    }
    for (const int64_t id : made.ids) is_left[static_cast<size_t>(id)] = false;
    Named named;
    for (size_t id = 0; id < is_left.size(); ++id) {
      if (!is_left[id]) continue;
      if (unused == "error") named.add(std::to_string(id));
      if (unused == "drop") rows.drop(static_cast<int64_t>(id), kNotInRows);
    }
    if (named.count() == 0) return;
    throw sdk::Failure(PLIANT_INVALID_ARGUMENT,
                       std::to_string(named.count()) + " of " + std::to_string(request.lengths.size()) +
                           " sequences are in no row; ids: " + named.text() +
                           ". Add rows with them, or set unused = \"drop\" to leave them out",
                       "unused ids");
  }

  static void keep_only(const std::vector<bool>& kept, OrderedRows& made) {
    made.own_offsets.assign(1, 0);
    for (size_t row = 0; row + 1 < made.offsets.size(); ++row) {
      for (uint64_t i = made.offsets[row]; i < made.offsets[row + 1]; ++i) {
        if (kept[static_cast<size_t>(made.ids[i])]) made.own_ids.push_back(made.ids[i]);
      }
      if (made.own_ids.size() > made.own_offsets.back()) made.own_offsets.push_back(made.own_ids.size());
    }
    made.offsets = made.own_offsets;
    made.ids = made.own_ids;
  }

  void check_budget(const sdk::EpochRequest& request, const OrderedRows& made) const {
    Named named;
    int64_t most = 0;
    for (uint64_t row = 0; row < made.rows; ++row) {
      int64_t tokens = 0;
      for (const int64_t id : made.row(row)) tokens += request.lengths[static_cast<size_t>(id)];
      if (tokens <= max_tokens) continue;
      most = std::max(most, tokens);
      named.add(std::to_string(row) + " (" + std::to_string(tokens) + ")");
    }
    if (named.count() == 0) return;
    throw sdk::Failure(PLIANT_INVALID_ARGUMENT,
                       std::to_string(named.count()) + " of " + std::to_string(made.rows) +
                           " rows have more than max_tokens = " + std::to_string(max_tokens) +
                           " tokens; rows (tokens): " + named.text() + ". Pack them again, or raise max_tokens to " +
                           std::to_string(most),
                       "max_tokens offsets");
  }

  static void shuffle(const sdk::EpochRequest& request, OrderedRows& made) {
    made.order.resize(made.rows);
    std::iota(made.order.begin(), made.order.end(), uint64_t{0});
    const std::vector<uint32_t> key = sampler::seed_words(request.seed, static_cast<uint64_t>(request.epoch));
    sampler::python_shuffle(std::span(made.order), std::span<const uint32_t>(key));
  }

  static void drop_last_batch(uint64_t batch, OrderedRows& made, sdk::EpochRows& rows) {
    const uint64_t kept = made.rows - made.rows % batch;
    if (kept == 0 && made.rows > 0) {
      throw sdk::Failure(PLIANT_FAILED_PRECONDITION,
                         "not enough rows for one batch: " + std::to_string(made.rows) + " rows, a batch has " +
                             std::to_string(batch) +
                             ". Use a smaller global batch, or set tail = \"keep\" to keep a short one",
                         "tail");
    }
    for (uint64_t row = kept; row < made.rows; ++row) {
      for (const int64_t id : made.row(row)) rows.drop(id, kIncompleteBatch);
      made.entries -= made.row(row).size();
    }
    made.rows = kept;
  }
};

}  // namespace

PLIANT_BATCH_SAMPLER(Rows, "rows", "0.1.0", "Rows that were made beforehand, given as arrays")
