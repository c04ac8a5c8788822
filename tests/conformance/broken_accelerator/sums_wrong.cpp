// BROKEN: all_reduce adds in another order than that of the ranks, as the option `order` says.
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "honest.hpp"
#include "pliant/sdk/arithmetic.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)
using pliant::sdk::DType;

struct SumsWrong : Honest<SumsWrong> {
  std::string order = "descending";
  static void options(pliant::sdk::Options<SumsWrong>& table) {
    table
        .add("order", &SumsWrong::order,
             "descending: the last rank first; drawn: 16-bit floats in an order of the moment's choice, rounded every "
             "time.")
        .choices({"descending", "drawn"});
  }
  void all_reduce(Comm& comm, const void* send, void* recv, pliant::sdk::Elements elements, pliant::sdk::ReduceOp op,
                  Stream& stream) {
    const bool sixteen = elements.dtype == DType::kF16 || elements.dtype == DType::kBF16;
    if (order == "drawn" && !sixteen) return Device::all_reduce(comm, send, recv, elements, op, stream);
    const auto ranks = static_cast<size_t>(comm.world_size());
    const auto all = std::make_shared<std::vector<std::byte>>(elements.bytes() * ranks + 64);
    void* const parts = all->data() + (64 - reinterpret_cast<uintptr_t>(all->data()) % 64);
    Device::all_gather(comm, send, parts, elements, stream);
    const auto moment = static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
    stream.enqueue([=, kept = all, drawn = order == "drawn"] {
      std::vector<const void*> from;
      for (size_t r = 0; r < ranks; ++r) from.push_back(static_cast<std::byte*>(parts) + r * elements.bytes());
      if (!drawn) {
        std::reverse(from.begin(), from.end());
        return pliant::sdk::reduce(elements.dtype, op, from, 1, elements.count, recv, nullptr);
      }
      std::rotate(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(moment / 7 % ranks), from.end());
      std::vector<std::byte> sum(static_cast<const std::byte*>(from[0]),
                                 static_cast<const std::byte*>(from[0]) + elements.bytes());
      for (size_t r = 1; r < ranks; ++r) {
        const void* const two[] = {sum.data(), from[r]};
        pliant::sdk::reduce(elements.dtype, op, two, 1, elements.count, sum.data(), nullptr);
      }
      if (!sum.empty()) std::memcpy(recv, sum.data(), sum.size());
    });
  }
};

}  // namespace

PLIANT_BROKEN(SumsWrong, "sums-wrong")
