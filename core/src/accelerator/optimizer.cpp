// Updates and norms on a stream, by the accelerator or, where it has no optimizer, by the calling thread.
#include "pliant/optimizer.hpp"

#include <algorithm>
#include <vector>

#include "accelerator/norms_on_device.hpp"
#include "accelerator/optimizer_abi.hpp"
#include "accelerator/state.hpp"
#include "base/inside.hpp"
#include "pliant/sdk/optimizer.hpp"

namespace pliant {
namespace {

/// Elements of each array that go through the host together.
constexpr uint64_t kStaged = uint64_t{1} << 18U;

/// Runs `body`, which enqueues copies to and from memory of the caller's; when it throws, no copy uses that any longer.
template <class Body>
void drained(Stream& stream, Body&& body) {
  try {
    body();
  } catch (...) {
    try {
      stream.synchronize();
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): the first failure is told
    }
    throw;
  }
}

bool is_host_visible(const Stream::State& stream) {
  return (stream.accelerator->properties(stream.device).capabilities & PLIANT_CAP_HOST_VISIBLE) != 0;
}

void update_through_host(Stream& stream, const AdamWUpdate& update, const AdamWArrays& there) {
  const uint64_t width = std::min(there.count, kStaged);
  std::vector<float> staged(4 * width);
  float* const weights = staged.data();
  float* const gradient = weights + width;
  float* const first = gradient + width;
  float* const second = first + width;
  drained(stream, [&] {
    for (uint64_t at = 0; at < there.count; at += width) {
      const uint64_t count = std::min(width, there.count - at);
      const uint64_t bytes = count * sizeof(float);
      stream.copy(weights, there.weights + at, bytes);
      stream.copy(gradient, there.gradient + at, bytes);
      stream.copy(first, there.first_moment + at, bytes);
      stream.copy(second, there.second_moment + at, bytes);
      stream.synchronize();
      adamw(update, {weights, gradient, first, second, count});
      stream.copy(there.weights + at, weights, bytes);
      stream.copy(there.first_moment + at, first, bytes);
      stream.copy(there.second_moment + at, second, bytes);
      stream.synchronize();
    }
  });
}

void norms_through_host(Stream& stream, double* to, const float* from, uint64_t count) {
  const uint64_t width = std::min(count, kStaged);
  std::vector<float> staged(width);
  std::vector<double> norms(norm_chunks(width));
  drained(stream, [&] {
    for (uint64_t at = 0; at < count; at += width) {
      const uint64_t some = std::min(width, count - at);
      stream.copy(staged.data(), from + at, some * sizeof(float));
      stream.synchronize();
      squared_norms(norms.data(), staged.data(), some);
      stream.copy(to + at / kNormChunk, norms.data(), norm_chunks(some) * sizeof(double));
      stream.synchronize();
    }
  });
}

/// False where the accelerator has no such slot, or the device cannot.
template <class... Parameters, class... Arguments>
bool on_device(const Accelerator::State& accelerator, int32_t (*pliant_optimizer::*slot)(void*, Parameters...),
               const Arguments&... arguments) {
  if (!accelerator.optimizer.has(slot)) return false;
  const auto ask = [&] {
    try {
      accelerator.optimizer.must(slot, arguments...);
      return true;
    } catch (const sdk::Failure& failure) {
      if (failure.status() != PLIANT_UNIMPLEMENTED) throw;
      return false;
    }
  };
  return accelerator.told(ask);
}

}  // namespace

void adamw(Stream& stream, const AdamWUpdate& update, const AdamWArrays& arrays) {
  const Stream::State& inside = detail::inside(stream);
  inside.accelerator->told([&] {
    sdk::detail::check::adamw(
        {arrays.weights, arrays.gradient, arrays.first_moment, arrays.second_moment, arrays.count});
  });
  const pliant_adamw_update abi = as_abi(update);
  if (on_device(*inside.accelerator, &pliant_optimizer::adamw_async, &abi, arrays.weights, arrays.gradient,
                arrays.first_moment, arrays.second_moment, arrays.count, inside.handle)) {
    return;
  }
  if (!is_host_visible(inside)) return update_through_host(stream, update, arrays);
  stream.synchronize();
  adamw(update, arrays);
}

bool detail::squared_norms_there(Stream& stream, double* to, const float* from, uint64_t count) {
  const Stream::State& inside = detail::inside(stream);
  inside.accelerator->told([&] { sdk::detail::check::squared_norms(to, from, count); });
  return on_device(*inside.accelerator, &pliant_optimizer::squared_norms_async, to, from, count, inside.handle);
}

void squared_norms(Stream& stream, double* to, const float* from, uint64_t count) {
  if (detail::squared_norms_there(stream, to, from, count)) return;
  const Stream::State& inside = detail::inside(stream);
  if (!is_host_visible(inside)) return norms_through_host(stream, to, from, count);
  stream.synchronize();
  squared_norms(to, from, count);
}

}  // namespace pliant
