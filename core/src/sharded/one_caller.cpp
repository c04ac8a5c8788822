// OneCaller: what a call is told that comes while another is under way.
#include "sharded/one_caller.hpp"

#include <fmt/format.h>

#include "pliant/error.hpp"

namespace pliant::sharded {

void OneCaller::refuse(const char* name, const char* other) {
  throw Error(
      Status::kFailedPrecondition,
      fmt::format(
          "ShardedModel::{} did nothing because ShardedModel::{} is still running in another thread; make one call at "
          "a time, in the same order on every rank: from one thread, or after the other call has returned",
          name, other));
}

}  // namespace pliant::sharded
