// Write a rendezvous as a class with `Generation join(const JoinRequest&)`, `bool watch(int timeout_ms)` and `void
// leave()`, then PLIANT_RENDEZVOUS.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "pliant/abi/rendezvous.h"
#include "pliant/sdk/plugin.hpp"

namespace pliant::sdk {

struct JoinRequest {
  int32_t local_workers = 0;  ///< workers that this node brings
  std::string_view run_id;    ///< valid during the call
};

struct Generation {
  int64_t generation = 0;  ///< 1, 2, ...
  int32_t group_rank = 0;
  int32_t node_count = 1;
  int32_t first_rank = 0;
  int32_t world_size = 0;
  int32_t master_port = 0;
  std::string master_addr;
};

namespace detail {

template <class T>
struct RendezvousAdapter {
  using Instance = Plain<T>;

  static int32_t join(void* self, const pliant_join_request* request, pliant_generation* out,
                      pliant_error* error) noexcept {
    return guarded(error, [&] {
      const pliant_join_request known = taken(request, &pliant_join_request::run_id, "pliant_join_request");
      const Generation made = static_cast<Instance*>(self)->plugin.join({known.local_workers, view(known.run_id)});
      pliant_generation answer{};
      if (made.master_addr.size() >= sizeof(answer.master_addr))
        throw Failure(PLIANT_OUT_OF_RANGE, "master address too long");
      answer.generation = made.generation;
      answer.group_rank = made.group_rank;
      answer.node_count = made.node_count;
      answer.first_rank = made.first_rank;
      answer.world_size = made.world_size;
      answer.master_port = made.master_port;
      std::memcpy(answer.master_addr, made.master_addr.c_str(), made.master_addr.size() + 1);
      fill(out, answer);
    });
  }
  static int32_t watch(void* self, int32_t timeout_ms, int32_t* changed, pliant_error* error) noexcept {
    return guarded(error, [&] { *changed = static_cast<Instance*>(self)->plugin.watch(timeout_ms) ? 1 : 0; });
  }
  static void leave(void* self) noexcept {
    try {
      static_cast<Instance*>(self)->plugin.leave();
    } catch (...) {  // leaving cannot fail: the group forgets this node either way
    }
  }
  static const void* vtable() noexcept {
    static const pliant_rendezvous kTable{sizeof(pliant_rendezvous), 0, &join, &watch, &leave};
    return &kTable;
  }
};

}  // namespace detail
}  // namespace pliant::sdk

#define PLIANT_RENDEZVOUS(Type, name, version, summary) \
  PLIANT_DETAIL_EXPORT(Type, RendezvousAdapter, PLIANT_KIND_RENDEZVOUS, name, version, summary)
