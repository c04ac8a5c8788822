// Lengths, rows and costs that a program gives as arrays.
#include "dataset.hpp"

#include "failure.hpp"

namespace pliant::python {

namespace {

Dataset lengths_of(const Config& config, GivenDataset& given) {
  if (!given.lengths) {
    if (given.loss_tokens) throw wrong("loss_tokens needs lengths beside it");
    Dataset loaded = without_gil([&] { return load_dataset(config); });
    if (given.content != 0) loaded.content = given.content;
    return loaded;
  }
  Dataset made;
  made.lengths = lengths_from(*given.lengths, "lengths");
  if (given.loss_tokens) made.loss_tokens = lengths_from(*given.loss_tokens, "loss_tokens");
  made.source = std::move(given.source);
  made.content = given.content;
  return made;
}

/// Copies of what was made beforehand.
void add_rows_and_costs(Dataset& dataset, const GivenDataset& given) {
  if (given.rows) {
    dataset.rows.offsets = integers_from(given.rows->first, "the offsets of rows");
    dataset.rows.ids = integers_from(given.rows->second, "the ids of rows");
    if (dataset.rows.empty()) throw wrong("rows is a pair of empty arrays; None stands for no rows");
  }
  if (given.costs) dataset.costs = costs_from(*given.costs, "costs");
  if (given.row_costs) dataset.row_costs = costs_from(*given.row_costs, "row_costs");
  const bool is_empty = (given.costs && dataset.costs.empty()) || (given.row_costs && dataset.row_costs.empty());
  if (is_empty) throw wrong("costs are an empty array; None stands for no costs");
}

/// An attribute of a range.
/// Of a range; `name` was made once for all.
int64_t bound_of(nb::handle range, nb::handle name) {
  const nb::object bound = range.attr(name);
  const long long value = PyLong_AsLongLong(bound.ptr());
  if (value == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
  return value;
}

}  // namespace

std::shared_ptr<const PyDataset> dataset_from(const Config& config, GivenDataset given) {
  Dataset dataset = lengths_of(config, given);
  add_rows_and_costs(dataset, given);
  Dataset complete = without_gil([&] { return complete_dataset(config, std::move(dataset)); });
  return std::make_shared<const PyDataset>(std::move(complete));
}

RowRange row_range_from(nb::handle rows, const char* name) {
  if (!PyRange_Check(rows.ptr())) {
    const auto type = nb::cast<std::string>(nb::str(rows.type().attr("__name__")));
    throw nb::type_error((std::string(name) + " is a " + type + "; a range of rows is needed").c_str());
  }
  static const nb::handle kStart = PyUnicode_InternFromString("start");
  static const nb::handle kStop = PyUnicode_InternFromString("stop");
  static const nb::handle kStep = PyUnicode_InternFromString("step");
  const int64_t first = bound_of(rows, kStart);
  const int64_t end = bound_of(rows, kStop);
  if (bound_of(rows, kStep) != 1) throw wrong(std::string(name) + " is a range whose step is not 1");
  if (end < first) return {first, 0};
  if (first < 0) throw wrong(std::string(name) + " begins at " + std::to_string(first));
  return {first, end - first};
}

}  // namespace pliant::python
