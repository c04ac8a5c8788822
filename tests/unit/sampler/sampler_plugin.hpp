// A sampler plugin as the host sees it: opened from the build tree, made with options, asked for epochs.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "pliant/abi/batch_sampler.h"
#include "pliant/abi/packing.h"
#include "pliant/abi/row_stream.h"
#include "plugin/option_values.hpp"
#include "plugin/plugin.hpp"

namespace pliant::test {

using OptionText = std::variant<int64_t, bool, std::string, std::vector<int64_t>, std::vector<std::string>>;
using OptionMap = std::map<std::string, OptionText>;

/// What is asked; without has_ids all of `lengths`.
struct Asked {
  std::vector<int32_t> lengths;
  int64_t rows_per_batch = 1;
  uint64_t seed = 0;
  int64_t epoch = 0;
  bool has_ids = false;
  std::vector<int64_t> ids;
  std::vector<int32_t> loss_tokens;     ///< empty = not given
  std::vector<uint64_t> row_offsets{};  ///< as the next one for `rows`; empty = not given
  std::vector<int64_t> row_ids{};
};

struct Planned {
  std::vector<std::vector<int64_t>> rows;
  std::vector<std::pair<int64_t, std::string>> dropped;
  std::vector<std::vector<std::pair<int64_t, int64_t>>> pieces;  ///< of each row's entries: first token, token count
  uint64_t sequence_count = 0;
  uint64_t truncated_count = 0;
  bool operator==(const Planned&) const = default;
};

class OpenedSampler {
 public:
  OpenedSampler(const std::string& name, const OptionMap& options) : instance_(make(name, options)) {}

  Result<Planned> plan(const Asked& asked) {
    const auto& slots = instance_.table<pliant_batch_sampler>();
    const pliant_epoch_request request = request_of(asked);
    pliant_epoch epoch{};
    epoch.struct_size = sizeof(epoch);
    pliant_error error = plugin::fresh_error();
    const int32_t status = slots.begin_epoch(instance_.self(), &request, &epoch, &error);
    if (status != PLIANT_OK) return tl::unexpected<Error>(plugin::to_error(instance_.plugin(), status, error));
    return fetch(epoch);
  }
  /// The extension pliant.row_stream/0, or nullptr.
  [[nodiscard]] const pliant_row_stream* stream() {
    const auto& record = instance_.plugin().record();
    return static_cast<const pliant_row_stream*>(record.extension(instance_.self(), PLIANT_ROW_STREAM));
  }
  /// What the extension pliant.packing/0 says of the epoch that was planned last, whose `Asked` must still live.
  Result<pliant_packing_report> report() {
    const auto& record = instance_.plugin().record();
    const auto* packing = static_cast<const pliant_packing*>(record.extension(instance_.self(), PLIANT_PACKING));
    REQUIRE(packing != nullptr);
    pliant_packing_report report{};
    report.struct_size = sizeof(report);
    pliant_error error = plugin::fresh_error();
    const int32_t status = packing->report(instance_.self(), &report, &error);
    if (status != PLIANT_OK) return tl::unexpected<Error>(plugin::to_error(instance_.plugin(), status, error));
    return report;
  }
  /// Opens the stream of `asked`, which outlives it.
  Result<> open(const Asked& asked) {
    const pliant_epoch_request request = request_of(asked);
    pliant_error error = plugin::fresh_error();
    const int32_t status = stream()->open(instance_.self(), &request, &error);
    if (status != PLIANT_OK) return tl::unexpected<Error>(plugin::to_error(instance_.plugin(), status, error));
    return {};
  }
  /// Appends up to `rows` next rows to `to`; how many there were.
  Result<uint64_t> next(uint64_t rows, Planned& to, uint64_t capacity = 4096) {
    std::vector<uint64_t> offsets(rows + 1);
    std::vector<int64_t> ids(capacity);
    std::vector<int64_t> firsts(capacity);
    std::vector<int64_t> counts(capacity);
    uint64_t got = 0;
    pliant_error error = plugin::fresh_error();
    const int32_t status = stream()->next(instance_.self(), rows, capacity, &got, offsets.data(), ids.data(),
                                          firsts.data(), counts.data(), &error);
    if (status != PLIANT_OK) return tl::unexpected<Error>(plugin::to_error(instance_.plugin(), status, error));
    for (uint64_t row = 0; row < got; ++row) {
      auto& of_row = to.rows.emplace_back();
      auto& pieces = to.pieces.emplace_back();
      for (uint64_t i = offsets[row]; i < offsets[row + 1]; ++i) {
        of_row.push_back(ids[i]);
        pieces.emplace_back(firsts[i], counts[i]);
      }
    }
    return got;
  }
  [[nodiscard]] plugin::Instance& instance() { return instance_; }

  static Result<plugin::Instance> try_make(const std::string& name, const OptionMap& options) {
    const auto file = std::filesystem::path(PLIANT_PLUGIN_DIR) / ("sampler-" + name + ".pliant.so");
    auto opened = plugin::Plugin::open(file, *plugin::kind_of("sampler"));
    if (!opened) return failed(std::move(opened));
    const auto& table = (*opened)->options();
    plugin::OptionValues values;
    values.state().reset(table);
    for (size_t i = 0; i < table.size(); ++i) {
      const auto given = options.find(table[i].key);
      if (given == options.end()) {
        values.state().set_default(i, table[i]);
      } else if (table[i].type == PLIANT_INT_LIST) {
        values.state().set_integers(i, std::get<std::vector<int64_t>>(given->second));
      } else if (table[i].type == PLIANT_STRING_LIST) {
        values.state().set_texts(i, std::get<std::vector<std::string>>(given->second));
      } else if (table[i].type == PLIANT_STRING) {
        values.state().set_text(i, std::get<std::string>(given->second));
      } else if (table[i].type == PLIANT_BOOL) {
        values.state().set_integer(i, std::get<bool>(given->second) ? 1 : 0);
      } else {
        values.state().set_integer(i, std::get<int64_t>(given->second));
      }
    }
    return plugin::Instance::create(*opened, values);
  }

 private:
  static pliant_epoch_request request_of(const Asked& asked) {
    static constexpr int64_t kNone = 0;
    pliant_epoch_request request{};
    request.struct_size = sizeof(request);
    request.seed = asked.seed;
    request.epoch = asked.epoch;
    request.rows_per_batch = asked.rows_per_batch;
    request.sequence_count = asked.lengths.size();
    request.lengths = asked.lengths.data();
    request.id_count = asked.ids.size();
    request.loss_tokens = asked.loss_tokens.empty() ? nullptr : asked.loss_tokens.data();
    request.ids = !asked.has_ids ? nullptr : asked.ids.empty() ? &kNone : asked.ids.data();
    if (asked.row_offsets.empty()) return request;
    request.given_rows = asked.row_offsets.size() - 1;
    request.row_offsets = asked.row_offsets.data();
    request.row_ids = asked.row_ids.data();
    return request;
  }
  static plugin::Instance make(const std::string& name, const OptionMap& options) {
    return or_throw(try_make(name, options));
  }

  Planned fetch(const pliant_epoch& epoch) {
    const auto& slots = instance_.table<pliant_batch_sampler>();
    pliant_error error = plugin::fresh_error();
    std::vector<uint64_t> offsets(epoch.row_count + 1);
    std::vector<int64_t> ids(epoch.entry_count);
    REQUIRE(slots.rows(instance_.self(), 0, epoch.row_count, offsets.data(), ids.data(), ids.size(), &error) ==
            PLIANT_OK);
    std::vector<int64_t> firsts(ids.size());
    std::vector<int64_t> counts(ids.size());
    REQUIRE(slots.pieces(instance_.self(), 0, epoch.row_count, firsts.data(), counts.data(), ids.size(), &error) ==
            PLIANT_OK);
    Planned planned;
    planned.sequence_count = epoch.sequence_count;
    planned.truncated_count = epoch.truncated_count;
    for (size_t i = 0; i < epoch.row_count; ++i) {
      planned.rows.emplace_back(ids.begin() + static_cast<std::ptrdiff_t>(offsets[i]),
                                ids.begin() + static_cast<std::ptrdiff_t>(offsets[i + 1]));
      auto& pieces = planned.pieces.emplace_back();
      for (uint64_t at = offsets[i]; at < offsets[i + 1]; ++at) pieces.emplace_back(firsts[at], counts[at]);
    }
    std::vector<int64_t> dropped(epoch.dropped_count);
    std::vector<int32_t> reasons(epoch.dropped_count);
    REQUIRE(slots.dropped(instance_.self(), 0, dropped.size(), dropped.data(), reasons.data(), &error) == PLIANT_OK);
    for (size_t i = 0; i < dropped.size(); ++i) {
      const char* word = slots.drop_reason(instance_.self(), reasons[i]);
      planned.dropped.emplace_back(dropped[i], word == nullptr ? "(no name)" : word);
    }
    return planned;
  }

  plugin::Instance instance_;
};

}  // namespace pliant::test
