# Compiles one C file with what pkg-config says of the installed Pliant, and runs it.
#   -D PKG_CONFIG, C_COMPILER   the programs
#   -D SOURCE=<file>  -D WORK=<folder>, wiped first  -D FLAGS=<more for the compiler>
#   -D PREFIX=<folder>  -D LIBDIR=<folder below it>   the installed Pliant
file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}")
set(ENV{PKG_CONFIG_PATH} "${PREFIX}/${LIBDIR}/pkgconfig")
execute_process(COMMAND ${PKG_CONFIG} --cflags --libs pliant OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE
  COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(flags UNIX_COMMAND "${flags} ${FLAGS}")
execute_process(COMMAND ${C_COMPILER} -std=c11 -pedantic -Wall -Wextra -Werror -o "${WORK}/loop" "${SOURCE}" ${flags}
  COMMAND_ERROR_IS_FATAL ANY)
set(ENV{LD_LIBRARY_PATH} "${PREFIX}/${LIBDIR}")
execute_process(COMMAND "${WORK}/loop" OUTPUT_VARIABLE said COMMAND_ERROR_IS_FATAL ANY)
if(NOT said MATCHES "step 0: ")
  message(FATAL_ERROR "it said: ${said}")
endif()
