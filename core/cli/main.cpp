// The program `pliant`.
#include "command_line.hpp"

int main(int argc, char** argv) {
  return pliant::cli::run_command_line(argc, argv);
}
