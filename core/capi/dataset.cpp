// Data sets for C: lengths that the caller lends or has copied.
#include "handles.hpp"
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

std::unique_ptr<pliant_dataset_t> dataset_of(const pliant_lengths_t& lengths) {
  if (lengths.count == 0) throw pliant::capi::wrong("lengths has no sequences");
  const auto tokens = pliant::capi::given_array(lengths.lengths, lengths.count, "lengths.lengths");
  const auto loan = lengths.release == nullptr ? nullptr : std::make_shared<Loan>(lengths);
  pliant::Dataset dataset;
  dataset.lengths = view_or_copy(tokens, loan);
  if (lengths.loss_tokens != nullptr) dataset.loss_tokens = view_or_copy({lengths.loss_tokens, tokens.size()}, loan);
  if (lengths.source != nullptr) dataset.source = lengths.source;
  dataset.content = lengths.content;
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
    pliant::capi::write(lengths, made, "lengths");
  });
}
