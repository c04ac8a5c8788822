// The plugin folders that the build knew.
#pragma once

namespace pliant::plugin {

/// Where `cmake --install` puts plugins with the prefix that was configured.
const char* installed_dir();
/// Where the build put them.
const char* built_dir();

}  // namespace pliant::plugin
