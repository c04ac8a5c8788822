# Copies a project out of the source tree, builds it against an installed Pliant only, and runs something of it.
#   -D SOURCES=<folder>             its content is copied to WORK/source
#   -D FOLDERS=<folder>...          copied to WORK/source as folders
#   -D WORK=<folder>                wiped first; the build goes to WORK/source/build
#   -D FORBIDDEN=<folder>           that no compile command may name
#   -D PREFIX=<folder>              the installed Pliant
#   -D OPTIONS=<-D...>...           for the configure step, besides compilers and prefix
#   -D TARGETS=<target>...          what is built; all of it otherwise
#   -D RUN=<command and arguments>  run in WORK/source; @BUILD@ stands for the build folder
#   -D EXPECT=<regular expression>  that the output of RUN must match
cmake_minimum_required(VERSION 3.22)

file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}/source")
file(COPY "${SOURCES}/" DESTINATION "${WORK}/source")
foreach(folder IN LISTS FOLDERS)
  file(COPY "${folder}" DESTINATION "${WORK}/source")
endforeach()

function(run_or_stop what)
  execute_process(COMMAND ${ARGN} WORKING_DIRECTORY "${WORK}/source" RESULT_VARIABLE status
    OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${what} ended with ${status}\n$ ${command}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

run_or_stop("configuring" ${CMAKE_COMMAND} -S "${WORK}/source" -B "${WORK}/source/build" -G Ninja -DCMAKE_BUILD_TYPE=Release
  "-DCMAKE_PREFIX_PATH=${PREFIX}" "-DCMAKE_C_COMPILER=${C_COMPILER}" "-DCMAKE_CXX_COMPILER=${CXX_COMPILER}"
  "-DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}" "-DCMAKE_C_COMPILER_LAUNCHER=${LAUNCHER}"
  -DCMAKE_EXPORT_COMPILE_COMMANDS=ON ${OPTIONS})
set(targets "")
if(TARGETS)
  set(targets --target ${TARGETS})
endif()
run_or_stop("building" ${CMAKE_COMMAND} --build "${WORK}/source/build" --parallel 2 ${targets})

file(READ "${WORK}/source/build/compile_commands.json" commands)
string(FIND "${commands}" "${FORBIDDEN}/" at)
if(NOT at EQUAL -1)
  message(FATAL_ERROR "the project was built with something of the source tree ${FORBIDDEN}:\n${commands}")
endif()

if(RUN)
  string(REPLACE "@BUILD@" "${WORK}/source/build" RUN "${RUN}")
  run_or_stop("running" ${RUN})
  message("${output}")
  if(NOT output MATCHES "${EXPECT}")
    message(FATAL_ERROR "the output does not match: ${EXPECT}")
  endif()
endif()
