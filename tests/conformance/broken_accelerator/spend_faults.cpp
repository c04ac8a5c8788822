// Faults of time that streams spend.
#include <chrono>
#include <memory>
#include <thread>

#include "faults.hpp"

namespace pliant::broken {
namespace {

/// short: half as long; at_call: counted from the call; blocks: it keeps its caller; together: fills of other streams
/// wait for its end.
class SpendWrong : public Honest {
 public:
  void spend(uint64_t nanoseconds, Stream& stream) override {
    if (way == "at_call") {
      const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(nanoseconds);
      stream.enqueue([until] { std::this_thread::sleep_until(until); });  // the fault itself
      return;
    }
    Device::spend(way == "short" ? nanoseconds / 2 : nanoseconds, stream);
    if (way == "blocks") stream.synchronize();
    if (way == "together") spent_ = stream.mark();
  }
  void fill(void* to, uint8_t byte, uint64_t bytes, Stream& stream) override {
    if (spent_ != nullptr) stream.wait_for(spent_);
    Device::fill(to, byte, bytes, stream);
  }

 private:
  std::shared_ptr<accelerator::Mark> spent_;
};

}  // namespace

std::vector<Fault> spend_faults() {
  return {{"spend-wrong", {"short", "at_call", "blocks", "together"}, make<SpendWrong>}};
}

}  // namespace pliant::broken
