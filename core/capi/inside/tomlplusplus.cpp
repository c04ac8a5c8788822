// toml++, compiled into libpliant as its own toml.cpp compiles it: distributions have it as a shared library only.
#include <toml++/toml.h>
