// Runs parts of a plan side by side.
#include "threads.hpp"

#include <exception>
#include <thread>
#include <vector>

namespace pliant::sampler {

void in_parallel(size_t parts, const std::function<void(size_t)>& run) {
  std::vector<std::exception_ptr> failed(parts);
  const auto guarded = [&](size_t part) {
    try {
      run(part);
    } catch (...) {
      failed[part] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (size_t part = 1; part < parts; ++part) threads.emplace_back(guarded, part);
    guarded(0);
  }
  for (const std::exception_ptr& failure : failed) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace pliant::sampler
