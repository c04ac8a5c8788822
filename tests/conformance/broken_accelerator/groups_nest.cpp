// BROKEN: a group in a group is taken for one.
#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct GroupsNest : Honest<GroupsNest> {
  void begin_group(Comm& comm) {
    try {
      Device::begin_group(comm);
    } catch (const pliant::sdk::Failure&) {  // there is one
    }
  }
};

}  // namespace

PLIANT_BROKEN(GroupsNest, "groups-nest")
