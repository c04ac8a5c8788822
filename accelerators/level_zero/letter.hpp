// Letter: several descriptors behind one, so that a handle, which has room for one, can have more.
#pragma once

#include <vector>

#include "common/processes/unique_fd.hpp"

namespace pliant::level_zero {

/// A socket in which a message with the descriptors lies. Whoever has it reads them, and nobody takes the message out.
/// They stay the caller's. Throws PLIANT_RESOURCE_EXHAUSTED.
accelerator::UniqueFd write_letter(const std::vector<int>& descriptors);

/// New descriptors of what the letter holds; empty when it is no letter.
std::vector<accelerator::UniqueFd> read_letter(int letter);

}  // namespace pliant::level_zero
