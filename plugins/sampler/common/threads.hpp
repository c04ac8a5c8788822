// The option `threads`, and running parts of a plan side by side. What a sampler plans never depends on it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>

#include "pliant/sdk/batch_sampler.hpp"

namespace pliant::sampler {

/// Base of samplers that can use several threads. Not part of their saved options: the rows are the same.
struct ThreadOption {
  int64_t threads = 1;

  [[nodiscard]] size_t thread_count() const {
    return threads == 0 ? std::max(1U, std::thread::hardware_concurrency()) : static_cast<size_t>(threads);
  }
};

template <class T>
void add_thread_option(sdk::Options<T>& o) {
  o.add("threads", static_cast<int64_t T::*>(&ThreadOption::threads),
        "Number of threads that plan an epoch; the rows do not depend on it. Use 1 if several ranks share a machine, "
        "since each of them plans; 0 = as many as the machine has CPUs.")
      .range(0, 256)
      .unit("threads");
}

/// Part `part` of `parts` of 0 .. count: [slice(part), slice(part + 1)), cut at multiples of `unit`.
inline size_t slice(size_t count, size_t part, size_t parts, size_t unit = 1) {
  if (part >= parts) return count;
  const size_t units = count / unit;
  return (units / parts * part + units % parts * part / parts) * unit;
}

/// Calls run(part) for 0 .. parts-1, each on a thread of its own; rethrows what the first of them throws.
void in_parallel(size_t parts, const std::function<void(size_t)>& run);

/// How many threads are worth their start for `count` sequences.
inline size_t useful_threads(size_t wanted, size_t count) {
  constexpr size_t kLeast = size_t{1} << 15U;
  return std::clamp(count / kLeast, size_t{1}, std::max(wanted, size_t{1}));
}

}  // namespace pliant::sampler
