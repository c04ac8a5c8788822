// The data set that a config names.
#include <fmt/format.h>

#include "base/result.hpp"
#include "config/instances.hpp"
#include "data/epoch_plan.hpp"
#include "data/lengths/formats.hpp"
#include "data/lengths_file.hpp"
#include "pliant/batches.hpp"

namespace pliant {

namespace {

Lengths read_key(const Config& config, const char* key, const std::string& file, const std::string& column,
                 const data::Counted& counted) {
  Result<Lengths> read = data::read_counts(file, column, counted);
  if (!read) throw config::at_core_option(config, "data", key, read.error());
  return std::move(*read);
}

}  // namespace

Dataset load_dataset(const Config& config) {
  const DataOptions& options = config.data();
  if (options.lengths.empty()) {
    const std::string file = config.file().string();
    const std::string missing =
        "[data] lengths is missing; set it to a file with the lengths of the sequences (.npy, .i32, .i64, .jsonl, "
        ".txt, .idx)";
    throw Error(Status::kInvalidArgument, fmt::format("{}: error: {}", file, missing), Origin::kInput)
        .set_findings({{file, 0, 0, missing}});
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
    throw config::at_core_option(config, "data", dataset.loss_tokens.empty() ? "lengths" : "loss_tokens",
                                 checked.error());
  }
  return dataset;
}

}  // namespace pliant
