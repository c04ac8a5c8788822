// What can be told about a plugin file before the loader maps it.
#pragma once

#include <filesystem>
#include <string>

namespace pliant::plugin {

/// Why `file` cannot be a whole shared library for this machine, or an empty text. The loader itself does not notice a
/// file that was cut off in the middle of a segment: it maps it, and the process dies of SIGBUS at the first touch.
std::string elf_objection(const std::filesystem::path& file);

}  // namespace pliant::plugin
