// Data sets for C: lengths that the caller lends or has copied.
#include "handles.hpp"
#include "pliant/analyse_lengths.hpp"
#include "structs.hpp"

namespace {

/// Lent arrays: `release` is called when the last view of them is gone.
struct Loan {
  explicit Loan(const pliant_lengths_t& lengths) : release(lengths.release), context(lengths.context) {}
  ~Loan() {
    if (is_begun) release(context);
  }
  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;

  void (*release)(void* context);
  void* context;
  bool is_begun = false;  // once nothing can fail any more
};

pliant::Lengths view_or_copy(std::span<const int32_t> values, const std::shared_ptr<Loan>& loan) {
  if (loan) return {values, loan};
  return {std::vector<int32_t>(values.begin(), values.end())};
}

pliant::Integers view_or_copy(std::span<const int64_t> values, const std::shared_ptr<Loan>& loan) {
  if (loan) return {values, loan};
  return {std::vector<int64_t>(values.begin(), values.end())};
}

/// The rows and costs that come with `lengths`.
void add_rows(const pliant_lengths_t& lengths, const std::shared_ptr<Loan>& loan, pliant::Dataset& dataset) {
  using pliant::capi::given_array;
  if (lengths.row_count > 0) {
    if (lengths.row_count > UINT64_MAX / 2 / sizeof(int64_t))
      throw pliant::capi::wrong("lengths.row_count is beyond memory");
    const auto offsets = given_array(lengths.row_offsets, lengths.row_count + 1, "lengths.row_offsets");
    const int64_t ids = offsets.back();
    if (ids < 1 || static_cast<uint64_t>(ids) > lengths.count) {  // a sequence is in one row at most
      throw pliant::capi::wrong("lengths.row_offsets ends with " + std::to_string(ids) +
                                "; it must end with the number of ids, 1 to " + std::to_string(lengths.count));
    }
    dataset.rows.offsets = view_or_copy(offsets, loan);
    dataset.rows.ids = view_or_copy(given_array(lengths.row_ids, static_cast<uint64_t>(ids), "lengths.row_ids"), loan);
  } else if (lengths.row_offsets != nullptr || lengths.row_ids != nullptr || lengths.row_costs != nullptr) {
    throw pliant::capi::wrong("lengths has arrays of rows, but row_count is 0");
  }
  if (lengths.costs != nullptr) dataset.costs = view_or_copy({lengths.costs, dataset.lengths.size()}, loan);
  if (lengths.row_costs != nullptr) dataset.row_costs = view_or_copy({lengths.row_costs, lengths.row_count}, loan);
}

std::unique_ptr<pliant_dataset_t> dataset_of(const pliant_lengths_t& lengths) {
  if (lengths.count == 0) throw pliant::capi::wrong("lengths has no sequences");
  const auto tokens = pliant::capi::given_array(lengths.lengths, lengths.count, "lengths.lengths");
  const auto loan = lengths.release == nullptr ? nullptr : std::make_shared<Loan>(lengths);
  pliant::Dataset dataset;
  dataset.lengths = view_or_copy(tokens, loan);
  if (lengths.loss_tokens != nullptr) dataset.loss_tokens = view_or_copy({lengths.loss_tokens, tokens.size()}, loan);
  if (lengths.source != nullptr) dataset.source = lengths.source;
  dataset.content = lengths.content;
  add_rows(lengths, loan, dataset);
  auto made = std::make_unique<pliant_dataset_t>(std::make_shared<const pliant::Dataset>(std::move(dataset)));
  if (loan) loan->is_begun = true;
  return made;
}

}  // namespace

int32_t pliant_dataset_make(const pliant_lengths_t* lengths, pliant_dataset_t** dataset, pliant_error_t* error) {
  return pliant::capi::hand_out(dataset, error, [&] { return dataset_of(pliant::capi::read(lengths, "lengths")); });
}

int32_t pliant_dataset_load(const pliant_config_t* config, pliant_dataset_t** dataset, pliant_error_t* error) {
  return pliant::capi::hand_out(dataset, error, [&] {
    return std::make_unique<pliant_dataset_t>(
        std::make_shared<const pliant::Dataset>(pliant::load_dataset(pliant::capi::given(config).config)));
  });
}

int32_t pliant_dataset_read(const char* file, const char* column, pliant_dataset_t** dataset, pliant_error_t* error) {
  return pliant::capi::hand_out(dataset, error, [&] {
    pliant::capi::require(file, "file");
    pliant::Dataset made;
    made.lengths = column == nullptr ? pliant::read_lengths(file) : pliant::read_lengths(file, column);
    made.source = file;
    return std::make_unique<pliant_dataset_t>(std::make_shared<const pliant::Dataset>(std::move(made)));
  });
}

int32_t pliant_analyse_lengths(const char* file, const pliant_length_analysis_t* analysis,
                               pliant_analysed_lengths_t* analysed, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    pliant::capi::require(file, "file");
    const pliant_length_analysis_t known = pliant::capi::read(analysis, "analysis");
    if (known.length_of == nullptr) throw pliant::capi::wrong("analysis.length_of is NULL");
    pliant::capi::require(known.identity, "analysis.identity");
    if (analysed != nullptr) pliant::capi::check_size(analysed, "analysed");
    pliant::LengthAnalysis wanted;
    wanted.count = known.count;
    wanted.identity = known.identity;
    wanted.threads = known.threads;
    wanted.length_of = [&known](int64_t number) {
      int64_t length = 0;
      pliant::capi::call_back("length_of", [&] { return known.length_of(known.context, number, &length); });
      return length;
    };
    if (known.progress != nullptr) {
      wanted.progress = [&known](int64_t done, int64_t total) {
        pliant::capi::call_back("progress", [&] { return known.progress(known.context, done, total); });
      };
    }
    const pliant::AnalysedLengths found = pliant::analyse_lengths(file, wanted);
    if (analysed == nullptr) return;
    pliant_analysed_lengths_t made{};
    made.measured = found.measured;
    made.resumed = found.resumed;
    pliant::capi::write(analysed, made, "analysed");
  });
}

int32_t pliant_dataset_free(pliant_dataset_t* dataset) {
  return pliant::capi::free_any(dataset);
}

int32_t pliant_dataset_look(const pliant_dataset_t* dataset, pliant_lengths_t* lengths, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const pliant::Dataset& known = *pliant::capi::given(dataset).dataset;
    pliant_lengths_t made{};
    made.count = known.lengths.size();
    made.lengths = known.lengths.data();
    made.loss_tokens = known.loss_tokens.empty() ? nullptr : known.loss_tokens.data();
    made.content = known.content;
    made.source = known.source.empty() ? nullptr : known.source.c_str();
    const auto array_of = [](const pliant::Integers& values) { return values.empty() ? nullptr : values.data(); };
    made.row_count = known.rows.count();
    made.row_offsets = array_of(known.rows.offsets);
    made.row_ids = array_of(known.rows.ids);
    made.costs = array_of(known.costs);
    made.row_costs = array_of(known.row_costs);
    pliant::capi::write(lengths, made, "lengths");
  });
}
