// What is behind ShardedModel of the package: a model that is cut over the ranks, for the bridge to PyTorch.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "pliant/sharded.hpp"

namespace pliant::python {

class PySession;

/// The model, which the session needs to its own end.
struct ShardedCore {
  nb::object initialise;              ///< called with the number of a parameter, an address and a count of floats
  std::optional<ShardedModel> model;  ///< none once the session has ended
  bool is_started = false;            ///< the session needs it
};

/// Calls come from any thread; core refuses two at once.
class PySharded : public Serial {
 public:
  /// `owner`: of `session`.
  PySharded(nb::object owner, PySession& session, std::vector<std::string> states, nb::object initialise);
  ~PySharded();
  PySharded(const PySharded&) = delete;
  PySharded& operator=(const PySharded&) = delete;

  /// What `work` returns of the model, without the lock of the interpreter.
  template <class Work>
  auto call(Work&& work) {
    ShardedModel& model = here();
    return without_gil([&] { return std::forward<Work>(work)(model); });
  }
  /// The model. Throws kFailedPrecondition in a process that was forked, and once the session has ended.
  ShardedModel& here();
  uint32_t add_parameter(const std::string& name, std::vector<int64_t> shape, bool frozen);

  [[nodiscard]] PySession& session() const { return *session_; }
  /// What the collector of garbage is to know of; NULL stands for none.
  [[nodiscard]] std::array<PyObject*, 2> held() const;
  void clear();

 private:
  /// A model that no session began with makes room for another one.
  void give_back();
  nb::object owner_;
  PySession* session_;
  std::shared_ptr<ShardedCore> core_;
};

}  // namespace pliant::python
