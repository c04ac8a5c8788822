#include "elastic/staging.hpp"

#include <string>

#include "pliant/error.hpp"

namespace pliant::elastic {

char* Staging::data() {
  if (memory_ != nullptr) return memory_.get();
  const uint64_t rounded = (bytes_ + Buffer::kPageAlignment - 1) / Buffer::kPageAlignment * Buffer::kPageAlignment;
  std::unique_ptr<char, Free> made(static_cast<char*>(std::aligned_alloc(Buffer::kPageAlignment, rounded)));
  if (made == nullptr) {
    throw Error(Status::kResourceExhausted,
                "out of memory: the system refused " + std::to_string(rounded) + " bytes for staging state");
  }
  registered_ = RegisteredMemory(accelerator_, made.get(), rounded);
  memory_ = std::move(made);
  return memory_.get();
}

}  // namespace pliant::elastic
