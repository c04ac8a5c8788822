// The data set that a config names.
#include <fmt/format.h>

#include "base/inside.hpp"
#include "base/result.hpp"
#include "config/state.hpp"
#include "data/epoch_plan.hpp"
#include "data/lengths/formats.hpp"
#include "data/lengths_file.hpp"
#include "pliant/batches.hpp"

namespace pliant {

namespace {

/// `error` with the position of [data] `key`.
Error at_key(const Config& config, const char* key, const Error& error) {
  const detail::ConfigState& state = detail::inside(config);
  const auto table = state.core_tables.find("data");
  const config::Effective* row = table == state.core_tables.end() ? nullptr : table->second.find(key);
  if (row == nullptr) return error;
  config::Finding finding;
  finding.origin = row->value.origin;
  finding.message = error.message();
  return error.with_message(state.diagnostics->render(finding)).set_located();
}

Lengths read_key(const Config& config, const char* key, const std::string& file, const std::string& column,
                 const data::Counted& counted) {
  Result<Lengths> read = data::read_counts(file, column, counted);
  if (!read) throw at_key(config, key, read.error());
  return std::move(*read);
}

}  // namespace

Dataset load_dataset(const Config& config) {
  const DataOptions& options = config.data();
  if (options.lengths.empty()) {
    throw Error(Status::kInvalidArgument,
                fmt::format("{}: error: [data] lengths is missing; set it to a file with the lengths of the sequences "
                            "(.npy, .i32, .i64, .jsonl, .txt, .idx)",
                            config.file().string()),
                ExitCode::kUsage)
        .set_located();
  }
  Dataset dataset;
  dataset.source = options.lengths;
  dataset.lengths = read_key(config, "lengths", options.lengths, options.length_column, {});
  if (options.loss_tokens.empty() && data::is_of_a_run(options.lengths)) {
    dataset.loss_tokens =
        or_throw(data::read_dataset(std::filesystem::path(options.lengths))).loss_tokens;  // it was read before
  } else if (!options.loss_tokens.empty()) {
    dataset.loss_tokens =
        read_key(config, "loss_tokens", options.loss_tokens, options.loss_tokens_column, {"number of loss tokens", 0});
  }
  if (const Result<> checked = data::check_dataset(dataset); !checked) {
    throw at_key(config, dataset.loss_tokens.empty() ? "lengths" : "loss_tokens", checked.error());
  }
  return dataset;
}

}  // namespace pliant
