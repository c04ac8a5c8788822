// The way from a handle of the embedding API to what it stands for. The library has it, programs have not.
#pragma once

#include <memory>
#include <utility>

namespace pliant::detail {

struct Inside {
  template <class Handle>
  static const auto& pointer(const Handle& handle) {
    return handle.state_;
  }
  /// The handle of `state`.
  template <class Handle, class State>
  static Handle handle_of(std::shared_ptr<State> state) {
    return Handle(std::move(state));
  }
};

/// What `handle` stands for.
template <class Handle>
auto& inside(const Handle& handle) {
  return *Inside::pointer(handle);
}
/// The same, for those who keep it alive.
template <class Handle>
const auto& shared_inside(const Handle& handle) {
  return Inside::pointer(handle);
}

}  // namespace pliant::detail
