// A result that becomes a file, whole or not at all.
#pragma once

#include <filesystem>
#include <string_view>

#include "base/result.hpp"

namespace pliant::cli {

/// Writes `text` beside `file`, makes it permanent and gives it its name. An existing file is refused (exit 2) unless
/// `replace`; what is no regular file always is. After an error nothing is left behind and an old file is as it was.
Result<> write_whole(const std::filesystem::path& file, std::string_view text, bool replace);

}  // namespace pliant::cli
