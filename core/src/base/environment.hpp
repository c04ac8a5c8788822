// The environment, as far as it may be believed.
#pragma once

namespace pliant {

/// True for a program that has more rights than the user who started it: setuid, setgid or capabilities of its file. It
/// must not do what that user's environment and paths say: variables are not read, and only installed plugins are
/// looked for. Thread-safe.
[[nodiscard]] bool elevated() noexcept;

/// As std::getenv; nullptr for every name where elevated(). Everything that the `pliant` program and the library in it
/// take from the environment goes through here. Thread-safe as long as nobody calls setenv.
[[nodiscard]] const char* environment_variable(const char* name) noexcept;

/// Gives up for good, where elevated(), the rights that the user who started the program does not have. elevated()
/// stays true. False when that failed. Called by a program before it does anything else, while it has one thread.
[[nodiscard]] bool drop_elevated_rights() noexcept;

}  // namespace pliant
