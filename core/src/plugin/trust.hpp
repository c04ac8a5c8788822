// Who may put code into this process: the ownership and permission rules for plugin files.
#pragma once

#include <filesystem>

#include "base/result.hpp"

namespace pliant::plugin {

/// The canonical path of `file`, when it is a regular file that nobody but root, the user and the owner of the running
/// program can replace: it and every directory above it belong to one of them and are not writable by group or others,
/// nor by anybody else through a POSIX access control list. Two exceptions: a sticky directory above the immediate
/// parent (/tmp), and a group that is the private group of a trusted owner: of his name, without another member and
/// nobody else's primary group.
///
/// A file of plugins_of_home(home_file()) is trusted as that home is: users and groups that can change the program or
/// library which holds this code may change its plugins, too, unless the program is elevated(). Not so every user.
///
/// The canonical path has no link in it and nobody else can change a component of it, so what is loaded by that path
/// afterwards is what was checked.
Result<std::filesystem::path> trusted_file(const std::filesystem::path& file);

}  // namespace pliant::plugin
