# Options of the whole build: standard, warnings, sanitizers, where binaries land.
include(GNUInstallDirs)

option(PLIANT_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(PLIANT_WERROR "Treat warnings as errors" OFF)
option(PLIANT_UNITY "Compile the files of a target together, some at a time: half the time of a whole build, more after one edit" ON)
set(PLIANT_SANITIZE "" CACHE STRING "Sanitizers for everything, e.g. address,undefined or thread")
set(PLIANT_SANITIZE_LESS "" CACHE STRING "Checks of theirs that are left out, e.g. null,alignment,vptr")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_UNITY_BUILD_BATCH_SIZE 12) # for Unity.cmake; CMake's own unity builds stay off

# Names of files in messages begin at the root of the source: the same bytes from every clone.
add_compile_options("-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=")

# The build tree has the layout of the install tree, so that the binary finds its plugins the same way in both.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
set(PLIANT_PLUGIN_BUILD_DIR "${CMAKE_BINARY_DIR}/lib/pliant/plugins-1")
set(PLIANT_TESTKIT_PLUGIN_BUILD_DIR "${CMAKE_BINARY_DIR}/lib/pliant/testkit-plugins-1")
set(PLIANT_PLUGIN_INSTALL_DIR "lib/pliant/plugins-1") # not LIBDIR: the binary looks in <prefix>/lib

find_program(PLIANT_CCACHE ccache)
if(PLIANT_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${PLIANT_CCACHE}")
  set(CMAKE_C_COMPILER_LAUNCHER "${PLIANT_CCACHE}")
endif()

option(PLIANT_FOR_OTHER_MACHINES "What packages hold: as small as it gets, and no folder of this build is looked into for plugins" OFF)
if(PLIANT_FOR_OTHER_MACHINES) # so that the linker leaves out functions, not only files
  add_compile_options(-ffunction-sections -fdata-sections)
endif()

# Warnings for our own targets only: never PUBLIC, never on exported ones.
add_library(pliant_warnings INTERFACE)
target_compile_options(pliant_warnings INTERFACE -Wall -Wextra -Wpedantic -Wconversion -Wshadow
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>) # g++ 12 warns about its own std::string concatenation
if(PLIANT_UNITY)
  # Files that are compiled together look like headers to g++, which may not hold what is private to a file.
  target_compile_options(pliant_warnings INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
endif()
if(PLIANT_WERROR)
  target_compile_options(pliant_warnings INTERFACE -Werror)
endif()

if(PLIANT_SANITIZE)
  add_compile_options(-fsanitize=${PLIANT_SANITIZE} -fno-omit-frame-pointer $<$<NOT:$<CONFIG:Debug>>:-g>)
  add_link_options(-fsanitize=${PLIANT_SANITIZE})
  if(PLIANT_SANITIZE MATCHES "thread")
    # TSan does not understand Asio's fences; the event loop has one thread and needs none.
    add_compile_definitions(BOOST_ASIO_DISABLE_FENCED_BLOCK)
  endif()
  if(PLIANT_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
    if(PLIANT_SANITIZE_LESS)
      add_compile_options(-fno-sanitize=${PLIANT_SANITIZE_LESS})
    endif()
  endif()
endif()

# The compiler looks for memory that it can use again when it has taken so much, not from 128 MiB on: a twentieth of its time.
add_compile_options("$<$<COMPILE_LANG_AND_ID:CXX,GNU>:SHELL:--param ggc-min-heapsize=524288>")

# What waits for people, disks and processes is optimised less, and so compiled sooner. With -Og g++ 12 warns about its own std::regex.
set(PLIANT_PATIENT_OPTIONS $<$<CONFIG:Release>:-Og> $<$<AND:$<CONFIG:Release>,$<CXX_COMPILER_ID:GNU>>:-Wno-maybe-uninitialized>)
# In packages it is made small, but for plugins: with -Os g++ takes no precompiled headers that were made without.
set(PLIANT_PATIENT_OR_SMALL_OPTIONS ${PLIANT_PATIENT_OPTIONS})
if(PLIANT_FOR_OTHER_MACHINES)
  list(APPEND PLIANT_PATIENT_OR_SMALL_OPTIONS $<$<CONFIG:Release>:-Os>)
endif()

# ccache wants the first. From precompiled headers g++ 12 warns about its own std::string.
set(PLIANT_PRECOMPILED_OPTIONS -fpch-preprocess -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread)

# pliant_precompile(<target> [<header>...]): the standard headers that nearly every file has, and these, compiled once for the target.
# With g++ only: clang-tidy and the preset clang see what each file includes by itself. pliant_precompiled_as(<target> <other>): what was
# compiled for the other serves this one, which has its flags and its definitions, and maybe more of these.
function(pliant_precompile target)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_precompile_headers(${target} PRIVATE <algorithm> <array> <atomic> <chrono> <cmath> <cstdint> <cstring> <filesystem>
      <functional> <map> <memory> <mutex> <numeric> <optional> <span> <sstream> <stdexcept> <string> <string_view> <thread> <utility>
      <variant> <vector> ${ARGN})
    target_compile_options(${target} PRIVATE ${PLIANT_PRECOMPILED_OPTIONS})
  endif()
endfunction()
function(pliant_precompiled_as target other)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_precompile_headers(${target} REUSE_FROM ${other})
    target_compile_options(${target} PRIVATE ${PLIANT_PRECOMPILED_OPTIONS})
  endif()
endfunction()

# Declares one of our own plugins: pliant_add_plugin() plus warnings, its place in the build tree and its install rule.
function(pliant_own_plugin target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "TESTKIT" "" "")
  pliant_add_plugin(${target} ${arg_UNPARSED_ARGUMENTS})
  target_link_libraries(${target} PRIVATE pliant_warnings)
  pliant_precompiled_as(${target} pliant_plugin_headers)
  if(arg_TESTKIT OR "${ARGN}" MATCHES "KIND;(elasticity|lr|rendezvous)")
    target_compile_options(${target} PRIVATE ${PLIANT_PATIENT_OPTIONS}) # called once a step or less, or by tests alone
  endif()
  set_property(GLOBAL APPEND PROPERTY PLIANT_OWN_PLUGINS ${target})
  if(arg_TESTKIT)
    set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${PLIANT_TESTKIT_PLUGIN_BUILD_DIR}")
    install(TARGETS ${target} LIBRARY DESTINATION "lib/pliant/testkit-plugins-1" COMPONENT testkit EXCLUDE_FROM_ALL)
  else()
    set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${PLIANT_PLUGIN_BUILD_DIR}")
    install(TARGETS ${target} LIBRARY DESTINATION "${PLIANT_PLUGIN_INSTALL_DIR}" COMPONENT plugins)
  endif()
endfunction()
