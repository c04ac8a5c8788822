// One job that is disturbed from outside and resumed until it is finished.
#pragma once

#include <string>

#include "chaos/blow.hpp"
#include "chaos/evidence.hpp"

namespace pliant::test {

/// What an undisturbed job of the same config ends with.
struct Undisturbed {
  std::string refused;  ///< why this kind cannot be played here
  std::string state;    ///< of the program, from its last snapshot
  int64_t samples = 0;
  int64_t stops = 0;  ///< entries and returns of system calls of the process that Play::trace_child names
};

/// The config of a play, for the toy worker.
std::string config_of(const Play& play);
/// Plays the job without blows.
Undisturbed play_undisturbed(const Play& play);
/// Plays it with them. `at_call`: where in the undisturbed process's system calls it is struck, where Play::calls says
/// so. Call it in a process of its own, with one thread: it may change namespaces and adopts what it orphans.
Evidence play_disturbed(const Play& play, const Undisturbed& undisturbed, int64_t at_call);

}  // namespace pliant::test
