#include "base/reserved_descriptor.hpp"

#include <fcntl.h>

#include <cerrno>

namespace pliant {
namespace {

FileDescriptor any_descriptor() {
  return FileDescriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

}  // namespace

ReservedDescriptor::ReservedDescriptor() : held_(any_descriptor()) {}

ReservedDescriptor::Room ReservedDescriptor::room() {
  FileDescriptor other = any_descriptor();
  const bool is_full = other.get() < 0 && errno == EMFILE;
  if (held_.get() < 0) held_ = std::move(other);
  if (!is_full) return Room(nullptr);
  held_ = FileDescriptor();
  return Room(this);
}

ReservedDescriptor::Room::~Room() {
  if (of_ != nullptr) of_->held_ = any_descriptor();
}

}  // namespace pliant
