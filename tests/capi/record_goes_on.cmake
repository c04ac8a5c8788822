# A loop in C with a record stops after two steps at three ranks, of which one is in no snapshot, and goes on at two.
#   -D LOOP=<program>
#   -D WORK=<folder>, wiped first
cmake_minimum_required(VERSION 3.22)
file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}")

function(expect expected)
  execute_process(COMMAND "${LOOP}" ${ARGN} WORKING_DIRECTORY "${WORK}" OUTPUT_VARIABLE said COMMAND_ERROR_IS_FATAL ANY)
  if(NOT said MATCHES "${expected}")
    message(FATAL_ERROR "`recorded_loop ${ARGN}` said:\n${said}in place of: ${expected}")
  endif()
  set(run "${CMAKE_MATCH_1}" PARENT_SCOPE)
endfunction()

expect("^2 steps of 2 updates in ([^\n]+)\n$" 3 2)
set(directory "${run}")
expect("^4 steps of 4 updates in ([^\n]+)\n$" 2 9 "${directory}")
expect("^4 steps, [0-9]+ of [0-9]+ samples used once, whole\n$" audit "${directory}")
