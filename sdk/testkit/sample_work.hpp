// SampleWork: one small piece of each kind of work, with what it must make of its target.
#pragma once

#include "testkit/accelerator.hpp"

namespace pliant::testkit {

enum class WorkKind { kCopy, kBatch, kFill, kReduce, kCast };
inline constexpr WorkKind kWorkKinds[] = {WorkKind::kCopy, WorkKind::kBatch, WorkKind::kFill, WorkKind::kReduce,
                                          WorkKind::kCast};

/// The slot's name.
const char* name_of(WorkKind kind);

/// Device memory for one piece of work at a time. The CPU allocates nothing on the device while it is enqueued.
class SampleWork {
 public:
  SampleWork(const Accelerator& accelerator, uint64_t seed);
  /// Fails the check when the slot refuses. Any thread.
  void enqueue(WorkKind kind, const Stream& stream) const;
  /// The target is as it was made; looked at by way of a stream of its own where the CPU does not see it.
  [[nodiscard]] bool untouched() const;
  /// Fails the check unless the target holds what `kind` makes of it.
  void verify(WorkKind kind) const;

 private:
  static constexpr uint64_t kCount = 1024;
  static constexpr uint64_t kBytes = kCount * 4;
  static constexpr unsigned char kFresh = 0x11;
  const Accelerator& accelerator_;
  Bytes given_;
  Memory from_;
  Memory to_;
};

}  // namespace pliant::testkit
