// The pliant command as a function: in a wheel it lies in the library that command and Python module share.
#pragma once

namespace pliant::cli {

/// What `main` does with its arguments; gives the exit code. To be called once, at the beginning of a process, for it
/// sets signals and closes gaps among the standard streams.
[[gnu::visibility("default")]] int run_command_line(int argc, char** argv);

}  // namespace pliant::cli
