// counting: one sequence a row; says each epoch that it plans. It turns the rows round where TEST_TURN_ROWS is set, and
// those of later epochs in the worker of the restart that TEST_TURN_ROWS_OF_RESTART is, as if its file had been
// replaced.
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
    if (std::getenv("TEST_TURN_ROWS") != nullptr || (request.epoch > 0 && is_replaced()))
      std::reverse(rows.ids.begin(), rows.ids.end());
    return rows;
  }

  static bool is_replaced() {
    const char* const of = std::getenv("TEST_TURN_ROWS_OF_RESTART");
    const char* const restart = std::getenv("TORCHELASTIC_RESTART_COUNT");
    return of != nullptr && restart != nullptr && std::string(of) == restart;
  }

  pliant::sdk::Host host;
};

PLIANT_BATCH_SAMPLER(Counting, "counting", "0.1.0", "says each epoch that it plans")
