// SHA-256, for the long lists that golden rows give by their digest only.
#pragma once

#include <string>
#include <string_view>

namespace pliant::parity {

/// In lower-case hex.
std::string sha256(std::string_view bytes);

}  // namespace pliant::parity
