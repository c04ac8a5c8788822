// The plugin folders that the build knew. Alone: every other file compiles to the same in each clone.
#include "plugin/compiled_in.hpp"

namespace pliant::plugin {

const char* installed_dir() {
  return PLIANT_INSTALLED_PLUGIN_DIR;
}
const char* built_dir() {
  return PLIANT_BUILT_PLUGIN_DIR;
}

}  // namespace pliant::plugin
