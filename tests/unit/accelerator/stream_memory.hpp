// The extension pliant.stream_memory/0 of a device, called so that a failure is an Outcome.
#pragma once

#include <stdexcept>

#include "device.hpp"
#include "pliant/abi/stream_memory.h"

namespace pliant_test {

class StreamPool {
 public:
  explicit StreamPool(const Device& device)
      : device_(device), table_(static_cast<const pliant_stream_memory*>(device.extension(PLIANT_STREAM_MEMORY))) {
    if (table_ == nullptr) throw std::runtime_error("there is no " PLIANT_STREAM_MEMORY);
  }
  Outcome alloc(uint64_t bytes, pliant_stream* stream, void** out, int32_t on = 0) const {
    pliant_error error = fresh();
    const int32_t status = table_->alloc_async(device_.self(), on, bytes, stream, out, &error);
    return {status, status == PLIANT_OK ? "" : error.message};
  }
  /// Throws where it is refused.
  [[nodiscard]] char* take(uint64_t bytes, pliant_stream* stream) const {
    void* out = nullptr;
    const Outcome made = alloc(bytes, stream, &out);
    if (!made.ok()) throw std::runtime_error("alloc_async: " + made.text());
    return static_cast<char*>(out);
  }
  Outcome free(void* pointer, pliant_stream* stream) const {
    pliant_error error = fresh();
    const int32_t status = table_->free_async(device_.self(), 0, pointer, stream, &error);
    return {status, status == PLIANT_OK ? "" : error.message};
  }
  Outcome trim(uint64_t keep) const {
    pliant_error error = fresh();
    const int32_t status = table_->trim(device_.self(), 0, keep, &error);
    return {status, status == PLIANT_OK ? "" : error.message};
  }

 private:
  static pliant_error fresh() {
    pliant_error error{};
    error.struct_size = sizeof(error);
    return error;
  }
  const Device& device_;
  const pliant_stream_memory* table_;
};

}  // namespace pliant_test
