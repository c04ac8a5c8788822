// The request, the checks of what comes back, and the choice between planned and streamed rows.
#include "data/sampler_call.hpp"

namespace pliant::data {

tl::unexpected<Error> broke(const Sampler& sampler, int64_t epoch, const std::string& how) {
  return failed(Status::kInternal, fmt::format("{} violates its contract in epoch {}: {}", sampler.name, epoch, how),
                ExitCode::kPlugin);
}

pliant_epoch_request request_of(const EpochInputs& inputs) {
  pliant_epoch_request request{};
  request.struct_size = sizeof(request);
  request.seed = inputs.seed;
  request.epoch = inputs.epoch;
  request.rows_per_batch = inputs.rows_per_batch;
  request.sequence_count = inputs.dataset.lengths.size();
  request.lengths = inputs.dataset.lengths.data();
  const Lengths& loss_tokens = inputs.dataset.loss_tokens;
  request.loss_tokens = loss_tokens.empty() ? nullptr : loss_tokens.data();
  return request;
}

Result<> check_offsets(const Sampler& sampler, int64_t epoch, const std::vector<uint64_t>& offsets, uint64_t first_row,
                       uint64_t most_entries) {
  if (offsets.front() != 0) {
    return broke(sampler, epoch, fmt::format("the first offset is {}, not 0", offsets.front()));
  }
  for (size_t row = 0; row + 1 < offsets.size(); ++row) {
    const uint64_t begin = offsets[row];
    const uint64_t end = offsets[row + 1];
    if (end < begin || end > most_entries) {
      return broke(sampler, epoch,
                   fmt::format("row {} ends at {} but begins at {}; there are {} sequences", first_row + row, end,
                               begin, most_entries));
    }
  }
  return {};
}

Result<> check_entries(const Sampler& sampler, const EpochInputs& inputs, const RowBlock& block) {
  const Lengths& lengths = inputs.dataset.lengths;
  for (const int64_t id : block.ids) {
    if (static_cast<uint64_t>(id) < lengths.size()) continue;
    return broke(sampler, inputs.epoch,
                 fmt::format("sequence id {} in a row; ids are 0 to {}", id, lengths.size() - 1));
  }
  for (size_t i = 0; i < block.first_tokens.size(); ++i) {
    const int64_t length = lengths[static_cast<size_t>(block.ids[i])];
    const int64_t first = block.first_tokens[i];
    const int64_t count = block.token_counts[i];
    if (first >= 0 && count >= 1 && count <= length - first) continue;
    return broke(sampler, inputs.epoch,
                 fmt::format("a piece of sequence {} begins at token {} and has {} tokens; the sequence has {}",
                             block.ids[i], first, count, length));
  }
  return {};
}

Result<std::unique_ptr<RowSource>> open_rows(const Sampler& sampler, const EpochInputs& inputs) {
  if (sampler.stream != nullptr) {
    auto streamed = stream_rows(sampler, inputs);
    if (!streamed || *streamed != nullptr) return streamed;
  }
  return plan_rows(sampler, inputs);
}

}  // namespace pliant::data
