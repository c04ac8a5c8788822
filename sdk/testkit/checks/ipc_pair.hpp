// Two ranks that pass handles on: rank 0 exports, rank 1 imports.
#pragma once

#include <string>

#include "testkit/ranks.hpp"

namespace pliant::testkit {

/// Carries handles from one rank to the other, with their descriptors. The check carries its name.
class HandlePost {
 public:
  /// Of the rank that receives.
  explicit HandlePost(const Rank& rank);
  /// Of the rank that sends.
  explicit HandlePost(const std::string& name);
  ~HandlePost();
  HandlePost(const HandlePost&) = delete;
  HandlePost& operator=(const HandlePost&) = delete;

  void send(pliant_ipc_handle handle) const;
  [[nodiscard]] pliant_ipc_handle receive() const;

 private:
  HandlePost();
  int socket_;
};

/// The post between the two ranks: the name goes from rank 1 by way of the check to rank 0.
HandlePost post_of(const Rank& rank);
/// Rank 1 has come so far; rank 0 goes on, and rank 1 when rank 0 has.
void meet(const Rank& rank);
void end(const Rank& rank);

/// Sends a handle and closes this side's descriptor. Rank 1 takes it at the same time, so that what rank 0 failed with
/// before is told, and not that nothing came.
void hand_over(const Rank& rank, const HandlePost& post, const pliant_ipc_handle& handle);
pliant_ipc_handle take(const Rank& rank, const HandlePost& post);
void close_descriptor(const pliant_ipc_handle& handle);

/// Skips the check where there is no memory between processes; fails it where there is half of it.
void need_ipc(const Subject& subject);
/// Carries steps between the ranks until rank 1 says what is no step; that is given back, and was told rank 0.
std::string conduct(Ranks& ranks);
/// A check of two ranks that run `script`.
void run_pair(const Subject& subject, const std::string& script);

void refused_as(const char* what, const Outcome& outcome, int32_t wanted);
int64_t open_descriptors();
/// The same for the same arguments.
Bytes pattern(uint64_t bytes, uint64_t seed);

// Memory of one process in the other.
pliant_ipc_handle exported(const Accelerator& accelerator, const void* memory);
/// Fails the check when it is refused.
sdk::ImportedMemory imported(const Accelerator& accelerator, const pliant_ipc_handle& handle);

}  // namespace pliant::testkit
