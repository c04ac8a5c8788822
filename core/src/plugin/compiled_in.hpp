// The plugin folders that the build knew.
#pragma once

namespace pliant::plugin {

/// Where `cmake --install` puts plugins with the prefix that was configured.
extern const char* const kInstalledDir;
/// Where the build put them.
extern const char* const kBuiltDir;

}  // namespace pliant::plugin
