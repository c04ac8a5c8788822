// Faults of memory in stream order.
#include <map>
#include <mutex>
#include <vector>

#include "faults.hpp"

namespace pliant::broken {
namespace {

/// shares: 100 bytes lie where the last 100 do; blocks: alloc_async waits for the stream; early: what is given back is
/// anybody's at once; internal: a refusal has another status; hoards: trim keeps all.
class StreamMemoryWrong : public Honest {
 public:
  StreamMemoryWrong() : Honest({.stream_memory = true}) {}

  void* alloc_async(int32_t device, uint64_t bytes, Stream& stream) override {
    if (way == "blocks") stream.synchronize();
    {
      const std::lock_guard lock(mutex_);
      if (way == "shares" && bytes == 100 && last_ != nullptr) return last_;
      std::vector<void*>& kept = kept_[bytes];
      if (!kept.empty()) {
        void* const found = kept.back();
        kept.pop_back();
        return found;
      }
    }
    try {
      void* const made = Device::alloc(device, Memory::kDevice, bytes);
      const std::lock_guard lock(mutex_);
      bytes_of_[made] = bytes;
      if (bytes == 100) last_ = made;
      return made;
    } catch (const Failure& refused) {
      if (way == "internal") throw Failure(PLIANT_INTERNAL, refused.what());
      throw;
    }
  }
  void free_async(int32_t, void* pointer, Stream& stream) override {
    const auto keep = [this, pointer] {
      const std::lock_guard lock(mutex_);
      kept_[bytes_of_.at(pointer)].push_back(pointer);
    };
    if (way == "early") return keep();
    stream.enqueue(keep);
  }
  void trim(int32_t device, uint64_t) override {
    if (way == "hoards") return;
    const std::lock_guard lock(mutex_);
    for (const auto& [bytes, pointers] : kept_) {
      for (void* const one : pointers) Device::free(device, Memory::kDevice, one);
    }
    kept_.clear();
    last_ = nullptr;
  }

 private:
  std::mutex mutex_;
  std::map<uint64_t, std::vector<void*>> kept_;  // by size
  std::map<void*, uint64_t> bytes_of_;
  void* last_ = nullptr;
};

}  // namespace

std::vector<Fault> stream_memory_faults() {
  return {{"stream-memory-wrong", {"shares", "blocks", "early", "internal", "hoards"}, make<StreamMemoryWrong>}};
}

}  // namespace pliant::broken
