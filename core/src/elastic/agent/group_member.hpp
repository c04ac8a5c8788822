// GroupMember: what a group knows of one of its workers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "elastic/agent/group_actions.hpp"
#include "elastic/agent/group_options.hpp"
#include "elastic/message.hpp"

namespace pliant::elastic {

/// What a rank's plugin decided otherwise than the agent's.
struct OddDecision {
  const char* plugin = "";  ///< "sampler"
  const char* what = "";    ///< "other rows"
};

struct GroupMember {
  /// How far a rank has come in its generation. Whoever is furthest behind holds the others up.
  enum class Stage {
    kIdle,      ///< no rank
    kTold,      ///< Form was sent
    kJoining,   ///< waits for the others to join
    kCopying,   ///< joined; copies the state, or waits for it
    kFormed,    ///< computes
    kReducing,  ///< waits for the others' gradients
    kVoted,
  };

  bool hello = false;
  Ready brings;         ///< once it is ready
  int64_t device = -1;  ///< that it computes on; -1: the CPU, or not known
  std::string device_name{};
  int64_t gave_up_at = -1;  ///< the step after which it gave up what it wrote
  bool ready = false;
  bool finished = false;
  bool told_to_stop = false;
  int64_t rank = -1;
  int64_t holds = 0;      ///< committed steps in its state; -1: a part of a copy
  bool may_hold = false;  ///< was to copy a state, and has not said whether it has
  bool is_void = false;   ///< its state turned out wrong; until it has copied another
  /// What others can begin from: while it copies a state over its own nobody knows.
  [[nodiscard]] int64_t surely_holds() const { return may_hold || is_void ? -1 : holds; }
  /// Whose state it holds: its own, or that of the worker that it copied until the copy is compared. A copy says
  /// nothing more than what it is of.
  WorkerId origin = -1;
  std::optional<uint64_t> last_state;  ///< digest of its state after the last step
  Stage stage = Stage::kIdle;
  std::optional<OddDecision> odd;  ///< of the step in hand, from Stage::kReducing on
  std::optional<Vote> vote;
  double since = 0;                    ///< when it was started
  double answered_at = 0;              ///< when it last showed that it answers while idle
  std::optional<double> asked_at;      ///< of a Tell that it has not answered
  std::optional<double> stopped_at;    ///< since when its process was seen stopped
  bool left_out = false;               ///< was a rank and was left out for being stopped
  bool woken = false;                  ///< was continued once instead of killed
  int64_t strikes = 0;                 ///< generations that broke, it seems, for it
  double barred_until = 0;             ///< no rank before, if it goes without it
  std::optional<std::string> cut_off;  ///< lost its peers in this generation, in its words
  bool cannot_save = false;
  std::optional<JobEnd> retires;  ///< is replaced once its state is saved; else the end of a job whose state is whole
  bool leaves = false;            ///< was announced to leave: gets no rank, and is told to stop when it is not needed
  bool stays = false;             ///< was named for not ending
  struct Busy {
    std::string what;
    double at_most_s = 0;
    double since = 0;
  };
  std::optional<Busy> busy;        ///< with what is no step, as it has said
  double busy_until = 0;           ///< when it last said that it is no more
  std::optional<Refused> refused;  ///< what it has said of an error that may end it, since its last vote
  std::string fenced;              ///< why it was killed
};

}  // namespace pliant::elastic
