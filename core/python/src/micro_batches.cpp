// Padded micro-batches for Python.
#include "pliant/micro_batches.hpp"

#include "arrays.hpp"
#include "bindings.hpp"
#include "failure.hpp"

namespace pliant::python {

namespace {

Line line_of(const std::string& word) {
  if (word == "sequence") return Line::kSequence;
  if (word == "row") return Line::kRow;
  throw wrong("line is \"" + word + "\"; it must be \"sequence\" or \"row\"");
}

PadTo pad_to_of(const std::string& word) {
  if (word == "nothing") return PadTo::kNothing;
  if (word == "micro_batch") return PadTo::kMicroBatch;
  if (word == "batch") return PadTo::kBatch;
  throw wrong("pad_to is \"" + word + "\"; it must be \"nothing\", \"micro_batch\" or \"batch\"");
}

RowMap row_map_of(const std::string& word) {
  if (word == "contiguous") return RowMap::kContiguous;
  if (word == "interleaved") return RowMap::kInterleaved;
  throw wrong("rows is \"" + word + "\"; it must be \"contiguous\" or \"interleaved\"");
}

template <class Value>
nb::object member_of(nb::handle self, std::vector<Value> MicroBatch::*member) {
  return view_of(std::span(nb::cast<const MicroBatch&>(self).*member), self);
}

nb::object piece_tuples(const MicroBatch& of) {
  if (of.pieces.empty()) return nb::none();
  nb::list made;
  for (const Piece& piece : of.pieces) made.append(nb::make_tuple(piece.first, piece.count, piece.last));
  return made;
}

}  // namespace

void bind_micro_batches(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<MicroBatch>(module, "MicroBatch")
      .def_prop_ro("rows", [](nb::handle self) { return member_of(self, &MicroBatch::rows); })
      .def_prop_ro("ids", [](nb::handle self) { return member_of(self, &MicroBatch::ids); })
      .def_prop_ro("lengths", [](nb::handle self) { return member_of(self, &MicroBatch::lengths); })
      .def_prop_ro("pieces", &piece_tuples)
      .def_ro("empty_lines", &MicroBatch::empty_lines)
      .def_ro("tokens", &MicroBatch::tokens);
  module.def(
      "micro_batches",
      [](const PyBatch& batch, int64_t rank, int64_t world_size, int64_t micro_batch, int64_t granule,
         const std::string& rows, const std::string& line, const std::string& pad_to, int64_t multiple, bool even,
         bool one_shape) {
        Layout layout;
        layout.world_size = positive(world_size, "world_size");
        layout.micro_batch = positive(micro_batch, "micro_batch");
        layout.granule = positive(granule, "granule");
        layout.rows = row_map_of(rows);
        layout.padding = {line_of(line), pad_to_of(pad_to), positive(multiple, "multiple")};
        layout.even = even;
        layout.one_shape = one_shape;
        return without_gil([&] { return padded_micro_batches(*batch.batch, batch.dataset->get(), layout, rank); });
      },
      "batch"_a, nb::kw_only(), "rank"_a, "world_size"_a, "micro_batch"_a, "granule"_a = 1, "rows"_a = "contiguous",
      "line"_a = "sequence", "pad_to"_a = "micro_batch", "multiple"_a = 1, "even"_a = false, "one_shape"_a = false);
}

}  // namespace pliant::python
