// OneCaller: what a call is told that comes while another is under way.
#include "sharded/one_caller.hpp"

#include <fmt/format.h>

#include "pliant/error.hpp"

namespace pliant::sharded {

void OneCaller::refuse(const char* name, const char* other) {
  throw Error(Status::kFailedPrecondition,
              fmt::format("ShardedModel::{} was called while ShardedModel::{} is under way in another thread, and has "
                          "done nothing; make one call at a time, in the same order on every rank: from one thread, or "
                          "this one once the other has returned",
                          name, other));
}

}  // namespace pliant::sharded
