// BROKEN: memory in stream order is wrong in one way, the option `fault`.
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "honest.hpp"
#include "pliant/sdk/stream_memory.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)
using pliant::sdk::Failure;
using pliant::sdk::Memory;

struct StreamMemoryWrong : Honest<StreamMemoryWrong> {
  std::string fault = "shares";

  static void options(pliant::sdk::Options<StreamMemoryWrong>& table) {
    table
        .add("fault", &StreamMemoryWrong::fault,
             "shares: 100 bytes lie where the last 100 do; blocks: alloc_async waits for the stream; early: what is "
             "given back is anybody's at once; internal: a refusal has another status; hoards: trim keeps all.")
        .choices({"shares", "blocks", "early", "internal", "hoards"});
  }
  const void* extension(const char* id) const {
    const bool own = std::strcmp(id, PLIANT_STREAM_MEMORY) == 0;
    return own ? pliant::sdk::stream_memory_table<StreamMemoryWrong>() : Honest::extension(id);
  }

  void* alloc_async(int32_t device, uint64_t bytes, Stream& stream) {
    if (fault == "blocks") stream.synchronize();
    {
      const std::lock_guard lock(mutex_);
      if (fault == "shares" && bytes == 100 && last_ != nullptr) return last_;
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
      if (fault == "internal") throw Failure(PLIANT_INTERNAL, refused.what());
      throw;
    }
  }
  void free_async(int32_t, void* pointer, Stream& stream) {
    const auto keep = [this, pointer] {
      const std::lock_guard lock(mutex_);
      kept_[bytes_of_.at(pointer)].push_back(pointer);
    };
    if (fault == "early") return keep();
    stream.enqueue(keep);
  }
  void trim(int32_t device, uint64_t) {
    if (fault == "hoards") return;
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

PLIANT_BROKEN(StreamMemoryWrong, "stream-memory-wrong")
