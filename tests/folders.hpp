// Where the clone and its build are. No other file of the tests is compiled with these names, so that what one clone
// has compiled serves the next.
#pragma once

namespace pliant::test {

/// `path` in the build folder. Lives until the process ends.
const char* built(const char* path);
/// `file` in `folder`. Lives until the process ends.
const char* in_folder(const char* folder, const char* file);
/// The root of the source.
const char* source();

}  // namespace pliant::test
