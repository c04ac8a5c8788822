// counting: one sequence a row; says each epoch that it plans, and turns the rows round where TEST_TURN_ROWS is set.
#include <algorithm>
#include <cstdlib>
#include <string>

#include "pliant/sdk/batch_sampler.hpp"

struct Counting {
  static void options(pliant::sdk::Options<Counting>& table) { static_cast<void>(table); }
  static std::vector<const char*> reasons() { return {}; }
  void start(const pliant::sdk::Host& of) { host = of; }

  pliant::sdk::EpochRows plan_epoch(const pliant::sdk::EpochRequest& request) const {
    host.info("plans epoch " + std::to_string(request.epoch));
    pliant::sdk::EpochRows rows;
    for (size_t id = 0; id < request.lengths.size(); ++id) {
      rows.ids.push_back(static_cast<int64_t>(id));
      rows.end_row();
    }
    if (std::getenv("TEST_TURN_ROWS") != nullptr) std::reverse(rows.ids.begin(), rows.ids.end());
    return rows;
  }

  pliant::sdk::Host host;
};

PLIANT_BATCH_SAMPLER(Counting, "counting", "0.1.0", "says each epoch that it plans")
