// The batches of a job for Python: arrays are views of what C++ holds.
#include "pliant/batches.hpp"

#include <array>
#include <string_view>

#include "arrays.hpp"
#include "bindings.hpp"
#include "dataset.hpp"
#include "failure.hpp"

namespace pliant::python {

namespace {

/// Of arrays that the program may change: order counts, and every bit.
uint64_t digest_of(std::span<const int32_t> values, uint64_t seed) {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15ULL;
  std::array<uint64_t, 4> lanes{seed, seed + 1, seed + 2, seed + 3};
  size_t i = 0;
  for (; i + 4 <= values.size(); i += 4) {
    for (size_t lane = 0; lane < 4; ++lane)
      lanes[lane] = (lanes[lane] ^ static_cast<uint32_t>(values[i + lane])) * kOdd;
  }
  for (; i < values.size(); ++i) lanes[0] = (lanes[0] ^ static_cast<uint32_t>(values[i])) * kOdd;
  uint64_t all = values.size();
  for (const uint64_t lane : lanes) all = (all ^ (lane ^ (lane >> 29U))) * kOdd;
  return all;
}

std::string_view text_of(const nb::bytes& bytes) {
  return {bytes.c_str(), bytes.size()};
}

nb::bytes bytes_of(const std::string& text) {
  return nb::bytes(text.data(), text.size());
}

void make_batches(PyBatches* self, const PyConfig& config, const Plan& plan, const GivenArray& lengths,
                  const GivenArray& loss_tokens, const std::string& source, uint64_t content, const GivenPair& rows,
                  const GivenArray& costs, const GivenArray& row_costs, const std::optional<nb::bytes>& state) {
  const auto dataset = dataset_from(*config.config, {lengths, loss_tokens, source, content, rows, costs, row_costs});
  const std::optional<std::string_view> saved = state ? std::optional(text_of(*state)) : std::nullopt;
  without_gil([&] {
    if (saved) {
      new (self) PyBatches(dataset, Batches(*config.config, plan, dataset->get(), *saved));
    } else {
      new (self) PyBatches(dataset, Batches(*config.config, plan, dataset->get()));
    }
  });
}

PyBatch lend(const PyBatches& of, Batch batch) {
  return {std::make_shared<const Batch>(std::move(batch)), of.dataset};
}

PyBatch next_or_stop(PyBatches& self) {
  std::optional<Batch> next = self.next();
  if (!next) throw nb::stop_iteration();
  return lend(self, std::move(*next));
}

nb::object ids_of(nb::handle self, nb::handle rows) {
  const Batch& batch = *nb::cast<const PyBatch&>(self).batch;
  const RowRange range = row_range_from(rows, "rows");
  if (range.first < 0 || range.count > batch.size.rows - range.first) {
    throw nb::index_error(("rows " + std::to_string(range.first) + " to " + std::to_string(range.first + range.count) +
                           " of " + std::to_string(batch.size.rows))
                              .c_str());
  }
  return view_of(batch.ids_of(range), self);
}

nb::object row_of(nb::handle self, int64_t row) {
  const Batch& batch = *nb::cast<const PyBatch&>(self).batch;
  const int64_t rows = batch.size.rows;
  const int64_t place = row < 0 ? row + rows : row;
  if (place < 0 || place >= rows)
    throw nb::index_error(("row " + std::to_string(row) + " of " + std::to_string(rows)).c_str());
  return view_of(batch.row(place), self);
}

/// One member of each piece, where they lie.
template <class Member>
nb::object pieces_of(nb::handle self, Member Piece::*member) {
  const std::vector<Piece>& pieces = nb::cast<const PyBatch&>(self).batch->pieces;
  if (pieces.empty()) return nb::none();
  using Array = nb::ndarray<nb::numpy, const Member, nb::ndim<1>>;
  return nb::cast(
      Array(&(pieces.front().*member), {pieces.size()}, self, {static_cast<int64_t>(sizeof(Piece) / sizeof(Member))}));
}

void bind_sizes(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<BatchSize>(module, "BatchSize")
      .def(
          "__init__",
          [](BatchSize* self, int64_t rows, int64_t sequences, int64_t tokens, int64_t loss_tokens,
             int64_t padding_rows) {
            if (padding_rows < 0 || rows < padding_rows || sequences < 0 || tokens < 0 || loss_tokens < 0)
              throw wrong("a count below 0, or more rows of padding than rows");
            new (self) BatchSize{rows, sequences, tokens, loss_tokens, padding_rows};
          },
          nb::kw_only(), "rows"_a = 0, "sequences"_a = 0, "tokens"_a = 0, "loss_tokens"_a = 0, "padding_rows"_a = 0)
      .def_ro("rows", &BatchSize::rows)
      .def_ro("sequences", &BatchSize::sequences)
      .def_ro("tokens", &BatchSize::tokens)
      .def_ro("loss_tokens", &BatchSize::loss_tokens)
      .def_ro("padding_rows", &BatchSize::padding_rows)
      .def(
          "__eq__", [](const BatchSize& self, const BatchSize& other) { return self == other; }, nb::is_operator())
      .def("__hash__",
           [](const BatchSize& self) { return nb::hash(nb::make_tuple(self.rows, self.sequences, self.tokens)); })
      .def("__repr__",
           [](const BatchSize& self) {
             return "BatchSize(rows=" + std::to_string(self.rows) + ", sequences=" + std::to_string(self.sequences) +
                    ", tokens=" + std::to_string(self.tokens) + ", loss_tokens=" + std::to_string(self.loss_tokens) +
                    ", padding_rows=" + std::to_string(self.padding_rows) + ")";
           })
      .def("__getstate__",
           [](const BatchSize& self) {
             return std::vector{self.rows, self.sequences, self.tokens, self.loss_tokens, self.padding_rows};
           })
      .def("__setstate__", [](BatchSize& self, const std::vector<int64_t>& state) {
        if (state.size() != 5) throw wrong("this is no pickled BatchSize");
        new (&self) BatchSize{state[0], state[1], state[2], state[3], state[4]};
      });
  nb::class_<EpochSummary>(module, "EpochSummary")
      .def_ro("rows", &EpochSummary::rows)
      .def_ro("padding_rows", &EpochSummary::padding_rows)
      .def_ro("batches", &EpochSummary::batches)
      .def_ro("sequences", &EpochSummary::sequences)
      .def_ro("tokens", &EpochSummary::tokens)
      .def_ro("loss_tokens", &EpochSummary::loss_tokens)
      .def_ro("longest_row", &EpochSummary::longest_row)
      .def_ro("truncated", &EpochSummary::truncated)
      .def_ro("tokens_cut", &EpochSummary::tokens_cut)
      .def_prop_ro("dropped", [](const EpochSummary& self) { return self.dropped; })
      .def("mean_batch", &EpochSummary::mean_batch);
  nb::class_<JobLength>(module, "JobLength")
      .def(
          "__init__",
          [](JobLength* self, int64_t steps, const BatchSize& size) {
            new (self) JobLength{steps, size};
          },
          "steps"_a, "size"_a)
      .def_ro("steps", &JobLength::steps)
      .def_ro("size", &JobLength::size);
}

void bind_batch(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<PyBatch>(module, "Batch")
      .def_prop_ro("epoch", [](const PyBatch& self) { return self.batch->epoch; })
      .def_prop_ro("index", [](const PyBatch& self) { return self.batch->index; })
      .def_prop_ro("size", [](const PyBatch& self) { return self.batch->size; })
      .def_prop_ro("longest_entry", [](const PyBatch& self) { return self.batch->longest_entry; })
      .def_prop_ro("digest", [](const PyBatch& self) { return self.batch->digest; })
      .def_prop_ro("ids",
                   [](nb::handle self) { return view_of(std::span(nb::cast<const PyBatch&>(self).batch->ids), self); })
      .def_prop_ro(
          "offsets",
          [](nb::handle self) { return view_of(std::span(nb::cast<const PyBatch&>(self).batch->offsets), self); })
      .def_prop_ro("first_tokens", [](nb::handle self) { return pieces_of(self, &Piece::first); })
      .def_prop_ro("token_counts", [](nb::handle self) { return pieces_of(self, &Piece::count); })
      .def_prop_ro("is_last", [](nb::handle self) { return pieces_of(self, &Piece::last); })
      .def("__len__", [](const PyBatch& self) { return self.batch->size.rows; })
      .def("row", &row_of, "row"_a)
      .def("ids_of", &ids_of, "rows"_a)
      .def("__getitem__", &row_of, "row"_a)
      .def("__repr__", [](const PyBatch& self) {
        return "<pliant.Batch " + std::to_string(self.batch->index) + " of epoch " + std::to_string(self.batch->epoch) +
               ": " + std::to_string(self.batch->size.rows) + " rows, " + std::to_string(self.batch->ids.size()) +
               " entries>";
      });
}

}  // namespace

PyDataset::PyDataset(Dataset dataset)
    : dataset_(std::move(dataset)), digest_(without_gil([this] { return digest(); })) {}

uint64_t PyDataset::digest() const {
  return digest_of(dataset_.loss_tokens.view(), digest_of(dataset_.lengths.view(), 1));
}

void PyDataset::check_unchanged() const {
  if (digest() == digest_) return;
  throw Error(Status::kFailedPrecondition,
              "the array of lengths was changed after the batches were made of it: give them a copy");
}

std::optional<Batch> PyBatches::next() {
  return without_gil([this] {
    const Turn turn(*this, kName);
    if (is_at_border) expect_plans();
    std::optional<Batch> next = batches->next();
    if (next) {
      know(*next, batches->next_step() - 1);
      is_at_border = batches->next_step() >= end_step;
    }
    return next;
  });
}

void PyBatches::expect_plans() {
  is_at_border = true;
  planned = -1;
  first_step = end_step = 0;
  dataset->check_unchanged();
}

void PyBatches::know(const Batch& batch, int64_t step) {
  planned = batch.epoch;
  first_step = step - batch.index;
  end_step = first_step + batches->epoch(batch.epoch).batches;
}

Batch PyBatches::at_step(int64_t step) {
  if (step < first_step || step >= end_step) expect_plans();
  Batch batch = batches->at_step(step);
  know(batch, step);
  return batch;
}

bool PyBatches::has_step(int64_t step) {
  if (end_step == 0 || step < first_step || step > end_step) expect_plans();
  return batches->has_step(step);
}

void bind_batches(nb::module_& module) {
  using namespace nb::literals;
  bind_sizes(module);
  bind_batch(module);
  nb::class_<PyBatches>(module, "Batches")
      .def("__init__", &make_batches, "config"_a, "plan"_a, "lengths"_a = nb::none(), "loss_tokens"_a = nb::none(),
           nb::kw_only(), "source"_a = "", "content"_a = 0, "rows"_a = nb::none(), "costs"_a = nb::none(),
           "row_costs"_a = nb::none(), "state"_a = nb::none())
      .def("__iter__", [](nb::handle self) { return nb::borrow(self); })
      .def("__next__", &next_or_stop)
      .def_prop_ro("next_step",
                   [](PyBatches& self) {
                     const Turn turn(self, PyBatches::kName);
                     return self.batches->next_step();
                   })
      .def_prop_ro("fingerprint",
                   [](PyBatches& self) {
                     const Turn turn(self, PyBatches::kName);
                     return self.batches->fingerprint();
                   })
      .def(
          "at_step",
          [](PyBatches& self, int64_t step) {
            return lend(self, self.call([&](Batches&) { return self.at_step(step); }));
          },
          "step"_a)
      .def(
          "batch",
          [](PyBatches& self, int64_t epoch, int64_t index) {
            return lend(self, self.call(epoch, [&](Batches& all) { return all.batch(epoch, index); }));
          },
          "epoch"_a, "index"_a)
      .def(
          "rows",
          [](PyBatches& self, int64_t epoch, int64_t first, int64_t count) {
            return lend(self, self.call(epoch, [&](Batches& all) { return all.rows(epoch, first, count); }));
          },
          "epoch"_a, "first"_a, "count"_a)
      .def(
          "epoch",
          [](PyBatches& self, int64_t epoch) {
            return self.call(epoch, [&](Batches& all) { return EpochSummary(all.epoch(epoch)); });
          },
          "epoch"_a)
      .def(
          "dropped",
          [](PyBatches& self, int64_t epoch) {
            return array_of(self.call(epoch, [&](Batches& all) { return all.dropped(epoch); }));
          },
          "epoch"_a)
      .def(
          "truncated",
          [](PyBatches& self, int64_t epoch) {
            return array_of(self.call(epoch, [&](Batches& all) { return all.truncated(epoch); }));
          },
          "epoch"_a)
      .def(
          "has_step",
          [](PyBatches& self, int64_t step) { return self.call([&](Batches&) { return self.has_step(step); }); },
          "step"_a)
      .def("expected_steps",
           [](PyBatches& self) { return self.call_planning([](Batches& all) { return all.expected_steps(); }); })
      .def("job_length",
           [](PyBatches& self) { return self.call_planning([](Batches& all) { return all.job_length(); }); })
      .def("save",
           [](PyBatches& self) {
             const Turn turn(self, PyBatches::kName);
             return bytes_of(self.batches->save());
           })
      .def(
          "load",
          [](PyBatches& self, const nb::bytes& state) {
            const std::string_view saved = text_of(state);
            self.call([&](Batches& all) {
              self.is_at_border = true;
              self.first_step = self.end_step = 0;
              all.load(saved);
            });
          },
          "state"_a);
}

}  // namespace pliant::python
