// BROKEN: a communicator says the wrong thing of its work, always the same.
#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct QueryWrong : Honest<QueryWrong> {
  bool says = true;

  static void options(pliant::sdk::Options<QueryWrong>& table) {
    table.add("says", &QueryWrong::says, "What comm_query answers: that all is done.");
  }
  using Device::query;
  [[nodiscard]] bool query(Comm&) const { return says; }
};

}  // namespace

PLIANT_BROKEN(QueryWrong, "query-wrong")
