// Where this code came from: the program, or the library that core is linked into; and the plugins that came with it.
#pragma once

#include <filesystem>

namespace pliant::plugin {

/// The canonical path of the program or shared library that holds this code; empty when that cannot be told, or when it
/// was removed since.
const std::filesystem::path& home_file();

/// The plugins that were installed together with `home`: lib/pliant/plugins-1 beside its folder; for a library also
/// pliant/plugins-1 in its folder or beside it, or lib/pliant/plugins-1 in its folder. Empty when there is none of
/// these folders.
std::filesystem::path plugins_of_home(const std::filesystem::path& home);

}  // namespace pliant::plugin
