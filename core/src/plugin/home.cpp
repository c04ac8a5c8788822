// The file that this code was loaded from, as the dynamic loader knows it.
#include "plugin/home.hpp"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>

#include <array>
#include <atomic>
#include <memory>
#include <system_error>

#include "base/no_fork.hpp"

namespace pliant::plugin {

namespace fs = std::filesystem;

namespace {

constexpr const char* kProgram = "/proc/self/exe";

fs::path canonical_or_empty(const fs::path& file) {
  std::error_code failure;
  fs::path found = fs::canonical(file, failure);
  return failure ? fs::path() : found;
}

/// The library's name for the loader; relative ones count from the folder that the loader saw then, not from today's.
fs::path file_of(const link_map& map) {
  fs::path name = map.l_name;
  if (name.is_absolute()) return name;
  std::array<char, PATH_MAX> origin{};
  // Of the loader a link_map is the handle.
  if (::dlinfo(const_cast<link_map*>(&map), RTLD_DI_ORIGIN, origin.data()) != 0 || origin[0] != '/') return {};
  return fs::path(origin.data()) / name.filename();
}

fs::path find_home() {
  Dl_info ignored{};
  void* found = nullptr;
  if (::dladdr1(reinterpret_cast<const void*>(&home_file), &ignored, &found, RTLD_DL_LINKMAP) == 0 || found == nullptr)
    return canonical_or_empty(kProgram);
  const auto& map = *static_cast<const link_map*>(found);
  const bool is_program = map.l_name == nullptr || *map.l_name == '\0';
  return canonical_or_empty(is_program ? fs::path(kProgram) : file_of(map));
}

bool is_folder(const fs::path& path) {
  std::error_code failure;
  return fs::is_directory(path, failure);
}

}  // namespace

const fs::path& home_file() {
  static constinit std::atomic<const fs::path*> home{nullptr};
  return made_once(home, [] {
    const NoFork whole;  // it asks the loader
    return std::make_unique<const fs::path>(find_home());
  });
}

fs::path plugins_of_home(const fs::path& home) {
  if (home.empty()) return {};
  const fs::path folder = home.parent_path();
  fs::path found = folder.parent_path() / "lib/pliant/plugins-1";
  if (is_folder(found)) return found;
  if (home == canonical_or_empty(kProgram)) return {};
  for (const fs::path& beside : {folder, folder.parent_path()}) {  // lib64, and lib/x86_64-linux-gnu
    if (found = beside / "pliant/plugins-1"; is_folder(found)) return found;
  }
  if (found = folder / "lib/pliant/plugins-1"; is_folder(found)) return found;  // a package of Python, a prefix itself
  return {};
}

}  // namespace pliant::plugin
