// What is behind the handles of devices, which sessions and communicators know, too.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "handle.hpp"
#include "pliant/accelerator.hpp"

struct pliant_accelerator_t : pliant::capi::Handle<pliant::capi::Tag::kAccelerator> {
  static constexpr const char* kName = "accelerator";
  explicit pliant_accelerator_t(pliant::Accelerator opened) : accelerator(std::move(opened)) {}

  const pliant::Accelerator accelerator;
  mutable std::mutex mutex;  // of what was lent
  mutable std::optional<std::string> why_none;
};

struct pliant_stream_t : pliant::capi::SerialHandle<pliant::capi::Tag::kStream> {
  static constexpr const char* kName = "stream";
  explicit pliant_stream_t(std::shared_ptr<pliant::Stream> made) : own(std::move(made)), stream(*own) {}
  explicit pliant_stream_t(pliant::Stream& of_session) : stream(of_session) {}

  const std::shared_ptr<pliant::Stream> own;  // empty: the session's, which frees it
  pliant::Stream& stream;
};

namespace pliant::capi {

/// Numbers of the header as core has them. Throw for those that are none.
[[nodiscard]] DType dtype_of(int32_t number);
[[nodiscard]] ReduceOp reduce_op_of(int32_t number);

}  // namespace pliant::capi
