// Calling a sampler: statuses and exceptions become errors, arrays are checked before anybody indexes with them.
#pragma once

#include <fmt/format.h>

#include <string>

#include "data/row_source.hpp"
#include "pliant/sdk/calls.hpp"
#include "plugin/plugin.hpp"

namespace pliant::data {

/// Calls a slot; a status or an exception of the plugin becomes an Error.
template <class Call>
Result<> ask(const Sampler& sampler, int64_t epoch, const char* slot, Call&& call) {
  pliant_error error = plugin::fresh_error();
  bool threw = false;
  const int32_t status = sdk::fenced(
      error, slot, [&] { return call(&error); }, &threw);
  if (threw) return broke(sampler, epoch, error.message);
  if (status != PLIANT_OK) return tl::unexpected<Error>(sampler.refusal(status, error));
  return {};
}

pliant_epoch_request request_of(const EpochInputs& inputs);

/// The first offset is 0, rows have entries, and the last ends within `most_entries`. `first_row` is for messages.
Result<> check_offsets(const Sampler& sampler, int64_t epoch, const std::vector<uint64_t>& offsets, uint64_t first_row,
                       uint64_t most_entries);
/// Ids are in the data set, pieces within their sequences.
Result<> check_entries(const Sampler& sampler, const EpochInputs& inputs, const RowBlock& block);

Result<std::unique_ptr<RowSource>> plan_rows(const Sampler& sampler, const EpochInputs& inputs);
/// nullptr where the sampler's options need the whole epoch at once.
Result<std::unique_ptr<RowSource>> stream_rows(const Sampler& sampler, const EpochInputs& inputs);

}  // namespace pliant::data
