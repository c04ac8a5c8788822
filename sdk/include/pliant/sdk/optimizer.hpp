// Gives an accelerator the extension pliant.optimizer/0: return optimizer_table<T>() from `extension` for
// PLIANT_OPTIMIZER. The SDK checks every argument that can be checked before the class sees it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "pliant/abi/optimizer.h"
#include "pliant/sdk/accelerator.hpp"
#include "pliant/sdk/failure.hpp"

namespace pliant::sdk {

inline constexpr uint64_t kNormChunk = PLIANT_NORM_CHUNK;

/// Chunks of so many elements.
constexpr uint64_t norm_chunks(uint64_t count) {
  return count / kNormChunk + (count % kNormChunk != 0 ? 1 : 0);
}

/// The arrays of one update; no two overlap.
struct AdamWArrays {
  float* weights = nullptr;
  const float* gradient = nullptr;
  float* first_moment = nullptr;
  float* second_moment = nullptr;
  uint64_t count = 0;
};

namespace detail {

namespace check {

inline void adamw(const AdamWArrays& arrays) {
  struct Named {
    const float* pointer;
    const char* name;
  };
  const std::array<Named, 4> all{{{arrays.weights, "the array of weights"},
                                  {arrays.gradient, "the gradient"},
                                  {arrays.first_moment, "the first moment"},
                                  {arrays.second_moment, "the second moment"}}};
  const Elements floats = elements(arrays.count, PLIANT_F32, 1);
  for (const Named& one : all) buffer(one.pointer, floats, one.name);
  const uint64_t bytes = floats.bytes();
  for (size_t a = 0; a < all.size(); ++a) {
    for (size_t b = a + 1; b < all.size(); ++b) {
      const auto begins = reinterpret_cast<uintptr_t>(all[a].pointer);
      const auto other = reinterpret_cast<uintptr_t>(all[b].pointer);
      require(bytes == 0 || begins + bytes <= other || other + bytes <= begins,
              [&] { return std::string(all[a].name) + " and " + all[b].name + " overlap"; });
    }
  }
}

inline void squared_norms(const double* to, const float* from, uint64_t count) {
  const Elements floats = elements(count, PLIANT_F32, 1);
  const Elements chunks{norm_chunks(count), DType::kF64};
  buffer(to, chunks, "the target");
  buffer(from, floats, "the source");
  apart(to, chunks.bytes(), from, floats.bytes());
}

}  // namespace check

template <class T>
struct OptimizerAdapter : private AcceleratorAdapter<T> {
  using AcceleratorAdapter<T>::device_of;
  using AcceleratorAdapter<T>::open;

  static int32_t adamw_async(void* self, const pliant_adamw_update* update, float* weights, const float* gradient,
                             float* first_moment, float* second_moment, uint64_t count, pliant_stream* stream,
                             pliant_error* error) noexcept {
    return guarded(error, [&] {
      const pliant_adamw_update known = taken(update, &pliant_adamw_update::decay, "pliant_adamw_update");
      const AdamWArrays arrays{weights, gradient, first_moment, second_moment, count};
      check::adamw(arrays);
      device_of(self).adamw(known, arrays, open(stream));
    });
  }
  static int32_t squared_norms_async(void* self, double* to, const float* from, uint64_t count, pliant_stream* stream,
                                     pliant_error* error) noexcept {
    return guarded(error, [&] {
      check::squared_norms(to, from, count);
      device_of(self).squared_norms(to, from, count, open(stream));
    });
  }
};

}  // namespace detail

/// The extension's table for accelerator class T, which has
///   void adamw(const pliant_adamw_update&, const AdamWArrays&, Stream&);       // the update may be gone afterwards
///   void squared_norms(double* to, const float* from, uint64_t count, Stream&);
/// Both with the bits that pliant/abi/optimizer.h says; optimizer_arithmetic.hpp computes them on the processors.
template <class T>
const pliant_optimizer* optimizer_table() {
  using A = detail::OptimizerAdapter<T>;
  static const pliant_optimizer kTable{sizeof(pliant_optimizer), 0, &A::adamw_async, &A::squared_norms_async};
  return &kTable;
}

}  // namespace pliant::sdk
