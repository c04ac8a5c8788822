// The table of all faults, by name. The functions that fill it are those of the files beside this one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "honest.hpp"

namespace pliant::broken {

struct Fault {
  const char* name;
  std::vector<const char*> ways;  ///< of going wrong; none: there is but one
  std::unique_ptr<Honest> (*make)();
};

template <class T>
std::unique_ptr<Honest> make() {
  return std::make_unique<T>();
}

std::vector<Fault> memory_faults();
std::vector<Fault> stream_memory_faults();
std::vector<Fault> copy_faults();
std::vector<Fault> reduce_faults();
std::vector<Fault> cast_faults();
std::vector<Fault> digest_faults();
std::vector<Fault> order_faults();
std::vector<Fault> pointer_faults();
std::vector<Fault> event_faults();
std::vector<Fault> async_faults();
std::vector<Fault> thread_faults();
std::vector<Fault> lifetime_faults();
std::vector<Fault> limit_faults();
std::vector<Fault> collective_faults();
std::vector<Fault> piece_faults();
std::vector<Fault> failure_faults();
std::vector<Fault> renewal_faults();
std::vector<Fault> window_faults();
std::vector<Fault> fork_faults();
std::vector<Fault> ipc_faults();
std::vector<Fault> optimizer_faults();
std::vector<Fault> slot_faults();
std::vector<Fault> spend_faults();
std::vector<Fault> register_faults();

/// `name`: that of a fault, for its first way, or that of a fault, a dot and a way: `copy-wrong.odd`. With any other
/// nothing is wrong: a refusal would look like the fault that a test wants to see.
std::unique_ptr<Honest> make_fault(const std::string& name);

}  // namespace pliant::broken
