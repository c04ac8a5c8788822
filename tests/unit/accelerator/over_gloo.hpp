// The accelerator host with its ranks connected by Gloo.
#pragma once

#include <string>

#include "collective_cases.hpp"

namespace pliant_test {

/// `interface`: a name or an address.
inline OptionSettings over_gloo(int64_t chunk_bytes = 4096, int64_t peer_timeout_seconds = 30,
                                const std::string& interface = "lo") {
  return {{{"chunk_bytes", chunk_bytes}, {"peer_timeout_seconds", peer_timeout_seconds}},
          {},
          {},
          {{"transport", "gloo"}, {"interface", interface}}};
}

/// What follows the number of a rank whose connection has ended.
inline const std::string kDisconnected = " is lost: its connection was closed; its process or machine ended, or cut it";

/// ... and of one that has been silent for peer_timeout_seconds.
inline std::string silent_for(int64_t seconds) {
  return " is lost: nothing was heard of it for " + std::to_string(seconds) +
         " seconds (peer_timeout_seconds); it hangs, or the network between is cut";
}

}  // namespace pliant_test
