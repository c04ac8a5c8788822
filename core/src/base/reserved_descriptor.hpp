// ReservedDescriptor: a place in the process's table of descriptors, held so that a file can be opened when no other
// place is left.
#pragma once

#include <utility>

#include "base/durable_file.hpp"

namespace pliant {

class ReservedDescriptor {
 public:
  /// Takes a place; where none is left it holds none, and room() takes one as soon as there is.
  ReservedDescriptor();
  ReservedDescriptor(const ReservedDescriptor&) = delete;
  ReservedDescriptor& operator=(const ReservedDescriptor&) = delete;

  /// While it lives the place may be used.
  class [[nodiscard]] Room {
   public:
    explicit Room(ReservedDescriptor* of) : of_(of) {}
    Room(Room&& other) noexcept : of_(std::exchange(other.of_, nullptr)) {}
    Room& operator=(Room&&) = delete;
    ~Room();

   private:
    ReservedDescriptor* of_;
  };
  /// Room for one descriptor, if need be that of the place, which is taken again when the room ends. Another thread may
  /// be the first to use it: the caller's open fails then, as it would have. Of the room's life and this call: one
  /// thread at a time. Ends before this does.
  Room room();

 private:
  FileDescriptor held_;
};

}  // namespace pliant
