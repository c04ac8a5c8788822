# pliant_add_plugin(<target> KIND <section> NAME <name> SOURCES <file>...): builds <section>-<name>.pliant.so, a module that
# exports the entry symbol only. KIND is the TOML section of a kind of plugins: one of PLIANT_PLUGIN_KINDS.
include_guard(GLOBAL)

set(PLIANT_PLUGIN_VERSION_SCRIPT "${CMAKE_CURRENT_LIST_DIR}/plugin.map" CACHE INTERNAL "")
include("${CMAKE_CURRENT_LIST_DIR}/PliantKinds.cmake" OPTIONAL) # in the source tree cmake/Kinds.cmake has told them

function(pliant_add_plugin target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "KIND;NAME" "SOURCES")
  if(NOT arg_KIND IN_LIST PLIANT_PLUGIN_KINDS)
    message(FATAL_ERROR "pliant_add_plugin(${target}): KIND '${arg_KIND}' is none of: ${PLIANT_PLUGIN_KINDS}")
  endif()
  if(NOT arg_NAME MATCHES "^[a-z0-9][a-z0-9._-]*$" OR NOT arg_SOURCES)
    message(FATAL_ERROR "pliant_add_plugin(${target}): NAME and SOURCES are needed; NAME is [a-z0-9][a-z0-9._-]*")
  endif()
  add_library(${target} MODULE ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE pliant::sdk)
  target_link_options(${target} PRIVATE
    "LINKER:--version-script=${PLIANT_PLUGIN_VERSION_SCRIPT}" LINKER:--gc-sections)
  if(NOT PLIANT_SANITIZE)
    target_link_options(${target} PRIVATE LINKER:-z,defs)
  endif()
  set_target_properties(${target} PROPERTIES
    PREFIX "" SUFFIX "" OUTPUT_NAME "${arg_KIND}-${arg_NAME}.pliant.so"
    LINK_DEPENDS "${PLIANT_PLUGIN_VERSION_SCRIPT}"
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    PLIANT_PLUGIN_FILE "${arg_KIND}-${arg_NAME}.pliant.so")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fno-gnu-unique>) # so that dlclose unmaps
  endif()
endfunction()
