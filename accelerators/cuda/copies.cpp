// One call for a batch of copies, or one for each.
#include "copies.hpp"

#include <vector>

#include "result.hpp"

namespace pliant::cuda {
namespace {

/// cudaErrorNotSupported where there is no such call.
cudaError_t submit_batch(const Api& api, std::span<const pliant_copy> copies, cudaStream_t stream) {
  if (api.copy_batch_12 == nullptr && api.copy_batch_13 == nullptr) return cudaErrorNotSupported;
  std::vector<void*> to;
  std::vector<const void*> from;
  std::vector<size_t> bytes;
  for (const pliant_copy& one : copies) {
    to.push_back(one.to);
    from.push_back(one.from);
    bytes.push_back(one.bytes);
  }
  cudaMemcpyAttributes attributes{};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  size_t first = 0;
  if (api.copy_batch_13 != nullptr) {
    return api.copy_batch_13(to.data(), from.data(), bytes.data(), copies.size(), &attributes, &first, 1, stream);
  }
  size_t failed = 0;
  auto* const sources = const_cast<void**>(from.data());
  return api.copy_batch_12(to.data(), sources, bytes.data(), copies.size(), &attributes, &first, 1, &failed, stream);
}

}  // namespace

void submit_copies(const Api& api, std::span<const pliant_copy> copies, cudaStream_t stream) {
  if (copies.size() > 1) {
    const cudaError_t result = submit_batch(api, copies, stream);
    const bool is_there = result != cudaErrorNotSupported && result != cudaErrorCallRequiresNewerDriver;
    if (is_there) return check(api, result, "cudaMemcpyBatchAsync");
    static_cast<void>(api.cudaGetLastError());
  }
  for (const pliant_copy& one : copies) {
    check(api, api.cudaMemcpyAsync(one.to, one.from, one.bytes, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
  }
}

}  // namespace pliant::cuda
