# PLIANT_PLUGIN_KINDS: the sections of the table of kinds, in its order. An SDK that is installed has them in PliantKinds.cmake.
set(table_of_kinds ${PROJECT_SOURCE_DIR}/sdk/include/pliant/sdk/kinds.hpp)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${table_of_kinds})
file(STRINGS ${table_of_kinds} kinds REGEX "^ *{\"[a-z_]+\", PLIANT_KIND_")
list(TRANSFORM kinds REPLACE "^ *{\"([a-z_]+)\".*" "\\1")
if(NOT kinds)
  message(FATAL_ERROR "${table_of_kinds} has no row that begins with {\"section\", PLIANT_KIND_")
endif()
set(PLIANT_PLUGIN_KINDS ${kinds} CACHE INTERNAL "")
file(CONFIGURE OUTPUT PliantKinds.cmake @ONLY
  CONTENT "# The words after KIND of pliant_add_plugin().\nset(PLIANT_PLUGIN_KINDS @PLIANT_PLUGIN_KINDS@ CACHE INTERNAL \"\")\n")
