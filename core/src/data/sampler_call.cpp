// The request, the checks of what comes back, and the choice between planned and streamed rows.
#include "data/sampler_call.hpp"

namespace pliant::data {

tl::unexpected<Error> broke(const Sampler& sampler, int64_t epoch, const std::string& how) {
  return failed(Status::kInternal, fmt::format("{} violates its contract in epoch {}: {}", sampler.name, epoch, how),
                Origin::kPlugin);
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
  const GivenRows& rows = inputs.dataset.rows;
  if (rows.empty()) return request;
  request.given_rows = rows.count();
  request.row_offsets = reinterpret_cast<const uint64_t*>(rows.offsets.data());  // none is negative
  request.row_ids = rows.ids.data();
  return request;
}

Result<> check_offsets(const Sampler& sampler, int64_t epoch, const std::vector<uint64_t>& offsets, uint64_t first_row,
                       uint64_t most_entries) {
  const std::string fault = sdk::offsets_fault(offsets, first_row, most_entries);
  if (!fault.empty()) return broke(sampler, epoch, fault);
  return {};
}

Result<> check_entries(const Sampler& sampler, const EpochInputs& inputs, const RowBlock& block) {
  const std::string fault =
      sdk::entries_fault(block.ids, block.first_tokens, block.token_counts, inputs.dataset.lengths.view());
  if (!fault.empty()) return broke(sampler, inputs.epoch, fault);
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
