// The items of a sampler: what a rank computes of a batch, as lists of the integers that a loader asks a data set for.
#include "arrays.hpp"
#include "bindings.hpp"
#include "failure.hpp"

namespace pliant::python {

namespace {

/// Names that are looked up for every item.
struct Names {
  PyObject* row = PyUnicode_InternFromString("row");
  PyObject* piece = PyUnicode_InternFromString("piece");
  PyObject* position = PyUnicode_InternFromString("position");
};

const Names& names() {
  static Names& one = *new Names;
  return one;
}

void set(nb::handle item, PyObject* name, nb::handle value) {
  if (PyObject_SetAttr(item.ptr(), name, value.ptr()) != 0) throw nb::python_error();
}

/// Rows that lie in `batch`, the first of which is row `first` of the global batch.
struct RowsAt {
  const Batch* batch;
  int64_t first;
};

/// Makes items. A type that is called makes a tuple of its arguments and looks for __init__, which takes as long as the
/// item.
class ItemMaker {
 public:
  explicit ItemMaker(nb::handle type)
      : type_(reinterpret_cast<PyTypeObject*>(type.ptr())),
        make_(reinterpret_cast<newfunc>(PyType_GetSlot(type_, Py_tp_new))),
        arguments_(nb::steal(PyTuple_New(1))) {}

  /// An item of value `id`, whose attributes are `attributes`, its own.
  [[nodiscard]] nb::object make(int64_t id, const nb::object& attributes) {
    nb::object value = nb::steal(PyLong_FromLongLong(id));
    if (!value.is_valid() || PyTuple_SetItem(arguments_.ptr(), 0, value.release().ptr()) != 0) throw nb::python_error();
    nb::object item = nb::steal(make_(type_, arguments_.ptr(), nullptr));
    if (!item.is_valid() || PyObject_GenericSetDict(item.ptr(), attributes.ptr(), nullptr) != 0)
      throw nb::python_error();
    return item;
  }

 private:
  PyTypeObject* type_;
  newfunc make_;
  nb::object arguments_;  // nobody else's, so that it may be used again
};

void put(const nb::object& dict, PyObject* name, nb::handle value) {
  if (PyDict_SetItem(dict.ptr(), name, value.ptr()) != 0) throw nb::python_error();
}

nb::object attributes_of(const nb::object& row, nb::handle position, const Piece* piece) {
  nb::object made = nb::steal(PyDict_New());
  if (!made.is_valid()) throw nb::python_error();
  put(made, names().row, row);
  put(made, names().position, position);
  if (piece != nullptr) put(made, names().piece, nb::make_tuple(piece->first, piece->count, piece->last));
  return made;
}

nb::object copy_of(const nb::object& dict) {
  nb::object made = nb::steal(PyDict_Copy(dict.ptr()));
  if (!made.is_valid()) throw nb::python_error();
  return made;
}

/// Adds an item for each entry of the rows of `block`.
void add_items(RowsAt rows, RowRange block, ItemMaker& maker, nb::handle position, nb::handle to) {
  for (int64_t row = block.first; row < block.first + block.count; ++row) {
    const std::span<const int64_t> ids = rows.batch->row(row - rows.first);
    const std::span<const Piece> pieces = rows.batch->row_pieces(row - rows.first);
    const nb::object number = nb::int_(row);
    // Of each item its own: what a program sets on one is not on the others.
    const nb::object of_last = pieces.empty() ? attributes_of(number, position, nullptr) : nb::object();
    for (size_t i = 0; i < ids.size(); ++i) {
      const bool is_last = i + 1 == ids.size();
      const nb::object own = !pieces.empty() ? attributes_of(number, position, &pieces[i])
                             : is_last       ? of_last
                                             : copy_of(of_last);
      const nb::object item = maker.make(ids[i], own);
      if (PyList_Append(to.ptr(), item.ptr()) != 0) throw nb::python_error();
    }
  }
}

using Blocks = std::vector<std::tuple<int64_t, int64_t>>;

/// The micro-batches of batch `index`, the last one first: of each of `blocks` a list of type `list_type`, filled up
/// with empty ones to `count`. `batch`: what holds the rows of the blocks, from row `first_row` of the global batch on;
/// nullptr: there are none.
nb::list deal(const PyBatch* batch, int64_t first_row, const Blocks& blocks, int64_t epoch, int64_t index,
              int64_t count, nb::handle item_type, nb::handle list_type, bool is_last_step) {
  nb::list made;
  ItemMaker maker(item_type);
  for (int64_t micro = count - 1; micro >= 0; --micro) {
    const bool is_end = micro == count - 1;
    const nb::object position =
        nb::make_tuple(epoch, is_end ? index + 1 : index, is_end ? 0 : micro + 1, is_end && is_last_step);
    const nb::object list = nb::steal(PyObject_CallNoArgs(list_type.ptr()));
    if (!list.is_valid()) throw nb::python_error();
    set(list, names().position, position);
    if (batch != nullptr && micro < static_cast<int64_t>(blocks.size())) {
      const auto [first, rows] = blocks[static_cast<size_t>(micro)];
      if (first < first_row || rows < 0 || first + rows > first_row + batch->batch->size.rows)
        throw wrong("a block of rows that the batch has not");
      add_items({batch->batch.get(), first_row}, {first, rows}, maker, position, list);
    }
    made.append(list);
  }
  return made;
}

}  // namespace

void bind_items(nb::module_& module) {
  using namespace nb::literals;
  module.def("_deal", &deal, "batch"_a.none(), "first_row"_a, "blocks"_a, "epoch"_a, "index"_a, "count"_a,
             "item_type"_a, "list_type"_a, "is_last_step"_a);
}

}  // namespace pliant::python
