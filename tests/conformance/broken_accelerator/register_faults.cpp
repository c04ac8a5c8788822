// Faults of memory that the program registers.
#include <cstddef>
#include <optional>

#include "faults.hpp"

namespace pliant::broken {
namespace {

/// kind: it is device memory; lasts: the second time it is unregistered it stays; twice: what is registered is taken
/// again; inner: it goes by a pointer to its middle, too.
class RegisterWrong : public Honest {
 public:
  std::optional<sdk::PointerInfo> pointer_info(const void* pointer) override {
    std::optional<sdk::PointerInfo> made = Device::pointer_info(pointer);
    if (way == "kind" && made && made->memory == Memory::kPinned) made->memory = Memory::kDevice;
    return made;
  }
  void register_host(void* pointer, uint64_t bytes) override {
    try {
      Device::register_host(pointer, bytes);
    } catch (const Failure&) {
      if (way != "twice") throw;
    }
  }
  void unregister_host(void* pointer) override {
    if (way == "lasts" && ++times_ == 2) return;
    const auto known = Device::pointer_info(pointer);
    Device::unregister_host(way == "inner" && known ? const_cast<void*>(known->base) : pointer);
  }

 private:
  int times_ = 0;
};

}  // namespace

std::vector<Fault> register_faults() {
  return {{"register-wrong", {"kind", "lasts", "twice", "inner"}, make<RegisterWrong>}};
}

}  // namespace pliant::broken
