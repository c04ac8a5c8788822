// Checks of kind pliant.accelerator/0, by subject.
#pragma once

#include <vector>

#include "testkit/check.hpp"

namespace pliant::testkit {

std::vector<Check> device_checks();
std::vector<Check> memory_checks();
std::vector<Check> alignment_checks();  // of memory
std::vector<Check> pointer_checks();
std::vector<Check> register_checks();
std::vector<Check> work_checks();   // copy, fill, reduce, cast
std::vector<Check> order_checks();  // streams
std::vector<Check> event_checks();
std::vector<Check> spend_checks();
std::vector<Check> async_checks();
std::vector<Check> thread_checks();
std::vector<Check> collective_checks();  // what they compute
std::vector<Check> piece_checks();       // of arrays that lie with several ranks
std::vector<Check> failure_checks();     // how they end
std::vector<Check> loss_checks();        // when a rank dies or stops
std::vector<Check> renewal_checks();     // what comes after
std::vector<Check> window_checks();      // on memory that communicators know
std::vector<Check> lifetime_checks();
std::vector<Check> limit_checks();
std::vector<Check> fork_checks();
std::vector<Check> leak_checks();
std::vector<Check> ipc_checks();  // memory between processes
std::vector<Check> ipc_event_checks();
std::vector<Check> stream_memory_checks();
std::vector<Check> optimizer_checks();

}  // namespace pliant::testkit
