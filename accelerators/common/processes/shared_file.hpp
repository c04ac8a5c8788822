// Memory for several processes: a file without a name, all of it there before anybody maps it.
#pragma once

#include <cstdint>
#include <string>

#include "common/processes/unique_fd.hpp"

namespace pliant::accelerator {

/// All bytes are reserved, so that whoever maps it and writes is never stopped by SIGBUS or killed for want of memory.
/// Nothing is sealed yet. Empty when the system gives no more; `refusal` then says why,
/// and nothing is left behind.
UniqueFd make_shared_file(const char* name, uint64_t bytes, std::string& refusal);

}  // namespace pliant::accelerator
