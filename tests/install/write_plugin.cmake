# Writes a plugin with `pliant plugin new`.
#   -D PLIANT=<program> -D KIND=<kind> -D NAME=<name> -D INTO=<folder>, which is wiped first
cmake_minimum_required(VERSION 3.22)
file(REMOVE_RECURSE "${INTO}")
cmake_path(GET INTO PARENT_PATH around)
file(MAKE_DIRECTORY "${around}")
execute_process(COMMAND ${PLIANT} plugin new ${KIND} ${NAME} --dir ${INTO} RESULT_VARIABLE status
  OUTPUT_VARIABLE output ERROR_VARIABLE output)
message("${output}")
if(NOT status EQUAL 0)
  message(FATAL_ERROR "pliant ended with ${status}")
endif()
