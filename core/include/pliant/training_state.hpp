// TrainingState: what a program brings to a job, and what is copied to those who join and kept in snapshots.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "pliant/accelerator.hpp"

namespace pliant {

/// A named part of the state: a dense array in plain or pinned host memory or in memory of the rank's device.
struct StateArray {
  std::string name;  ///< unique among the arrays; letters, digits and any of ".-_/:", such as "layers.0.weight"
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  ///< row-major; {} is one element
  void* data = nullptr;        ///< to read and write; NULL only where there are no elements
};

/// Everything that must be equal on all ranks between two steps: weights, optimizer, the program's own RNG. What is
/// large belongs in arrays, which are copied from where they lie to where they lie; the rest, in the program's own
/// form, into save and load: it goes from the one to the other piece by piece and is held nowhere else. All calls come
/// from the thread that uses the session, from within its calls.
class TrainingState {
 public:
  virtual ~TrainingState() = default;
  /// Number of floats of a gradient. Constant.
  [[nodiscard]] virtual uint64_t gradient_size() const = 0;
  /// What the elements of a gradient belong to, in any form: names and shapes of parameters, say. Asked for once, by
  /// Session::start; a worker whose text or gradient_size is another than that of most is named before it has a rank.
  /// Empty: sizes alone are compared.
  [[nodiscard]] virtual std::string gradient_layout() const { return {}; }
  /// The arrays, the same names, types and shapes in the same order on every worker and at every call; memory may move
  /// between two calls. Pliant reads them for snapshots and for those who join, and writes them when this worker joins
  /// or begins from a snapshot. Work that a device still does on them must be enqueued on Session::stream() before the
  /// call of the session, or be done.
  [[nodiscard]] virtual std::vector<StateArray> arrays() { return {}; }
  /// Writes all of the state that is no array. Same state, same bytes. Left out, with load, where all of it is in
  /// arrays.
  virtual void save(std::ostream& out) const { static_cast<void>(out); }
  /// Replaces it by what save wrote, on this or another worker, and reads all of it. The arrays have been written
  /// before. Throws on damaged bytes. Best read from front to back: what a stream of a worker that joins is to seek in,
  /// it holds in memory, and it cannot go back to what was read a MiB before the first seek. A snapshot of a program
  /// that had no arrays comes whole. Where the worker that saves is lost, the stream is bad: it has not just ended.
  virtual void load(std::istream& in) { static_cast<void>(in); }
};

}  // namespace pliant
