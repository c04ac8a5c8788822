// A result that becomes a file, whole or not at all.
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

#include "base/result.hpp"

namespace pliant {

/// Writes `text` beside `file`, makes it permanent and gives it its name. An existing file is refused (kInput) unless
/// `replace`; what is no regular file always is. After an error nothing is left behind and an old file is as it was.
Result<> write_whole(const std::filesystem::path& file, std::string_view text, bool replace);

/// A file in two acts.
struct WholeFile {
  /// Writes everything to the descriptor; 0 or an errno value.
  std::function<int(int fd)> fill;
  /// Unless empty, called when that is on disk, before it gets its name; an error keeps it from getting one.
  std::function<Result<>()> before_name;
  /// Where it is written before it has its name, in the same folder; overwritten if it is there, so the caller keeps
  /// others out. Empty: a name that no other process takes, which stays behind when this one is killed.
  std::filesystem::path draft;
};

/// The same for what is too long for the memory.
Result<> write_whole(const std::filesystem::path& file, const WholeFile& contents, bool replace);

}  // namespace pliant
