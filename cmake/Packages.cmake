# Debian packages of what Install.cmake installs: pliant, libpliant0, libpliant-dev and, where the Python package is built, python3-pliant.
# `cpack -G DEB` builds them; scripts/package does, of a build for /usr. The folder packages/ has what Debian wants beside the files.
set(PLIANT_PACKAGE_CONTACT "The authors of Pliant <pliant@pliant.example>" CACHE STRING
  "Maintainer of the packages: who builds them for others")
set(library libpliant${PROJECT_VERSION_MAJOR})

# The component of an installation | its package.
set(CPACK_COMPONENTS_ALL "")
foreach(row IN ITEMS "cli|pliant" "plugins|pliant" "manual|pliant" "docs|pliant" "c|${library}" "c_dev|libpliant-dev" "core|libpliant-dev"
    "sdk|libpliant-dev" "python|python3-pliant")
  string(REGEX MATCH "^(.+)[|](.+)$" row "${row}")
  if(CMAKE_MATCH_1 STREQUAL "python" AND NOT TARGET pliant_python)
    continue()
  endif()
  list(APPEND CPACK_COMPONENTS_ALL ${CMAKE_MATCH_1})
  string(TOUPPER ${CMAKE_MATCH_1} component)
  set(CPACK_COMPONENT_${component}_GROUP ${CMAKE_MATCH_2})
endforeach()

# pliant_package(<name> SECTION <section> [DEPENDS <package>] [SUGGESTS <package>] [CONTROL <file>...] DESCRIPTION <text>): a first line,
# and more. DEPENDS is beside the shared libraries, which packages/finish.cmake finds.
set(CPACK_DEBIAN_PACKAGE_RELEASE 0pliant1) # older than one of a distribution
set(version ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})
function(pliant_package name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "SECTION;DEPENDS;SUGGESTS;DESCRIPTION" "CONTROL")
  string(TOUPPER ${name} group)
  foreach(pair IN ITEMS "NAME|${name}" "SECTION|${arg_SECTION}" "DEPENDS|${arg_DEPENDS}" "SUGGESTS|${arg_SUGGESTS}")
    string(REGEX MATCH "^(.+)[|](.*)$" pair "${pair}")
    set(CPACK_DEBIAN_${group}_PACKAGE_${CMAKE_MATCH_1} "${CMAKE_MATCH_2}" PARENT_SCOPE)
  endforeach()
  set(CPACK_DEBIAN_${group}_PACKAGE_CONTROL_EXTRA "${arg_CONTROL}" PARENT_SCOPE)
  set(CPACK_DEBIAN_${group}_DESCRIPTION "${arg_DESCRIPTION}" PARENT_SCOPE)
  set(CPACK_DEBIAN_${group}_FILE_NAME DEB-DEFAULT PARENT_SCOPE)
  set(CPACK_PLIANT_PACKAGES ${CPACK_PLIANT_PACKAGES} ${name} PARENT_SCOPE)
endfunction()

set(CPACK_PLIANT_PACKAGES "")
pliant_package(pliant SECTION science SUGGESTS libpliant-dev DESCRIPTION "elastic training of one model on a changing number of workers
Pliant plans batch sizes that survive a change of the number of workers, packs
sequences into token budgets, scales the learning rate with them, and keeps a
training job going while workers die and join: no sample is lost and none is
used twice.
.
This package holds the command, the plugins and the documentation.")
pliant_package(${library} SECTION libs DEPENDS "pliant (= ${version})"
  CONTROL ${PROJECT_SOURCE_DIR}/cmake/packages/library/triggers ${PROJECT_BINARY_DIR}/packages/library/shlibs
  DESCRIPTION "elastic training of one model - C library
Pliant plans batch sizes that survive a change of the number of workers, packs
sequences into token budgets and scales the learning rate with them.
.
This package holds the shared library that programs in C are linked with. Its
plugins are in the package pliant.")
file(CONFIGURE OUTPUT packages/library/shlibs @ONLY
  CONTENT "libpliant @PROJECT_VERSION_MAJOR@ @library@ (>= @PROJECT_VERSION@)\n")
pliant_package(libpliant-dev SECTION libdevel SUGGESTS cmake
  DEPENDS "${library} (= ${version}), libfmt-dev, libspdlog-dev, libtomlplusplus-dev"
  DESCRIPTION "elastic training of one model - headers and kit for plugins
Pliant plans batch sizes that survive a change of the number of workers, packs
sequences into token budgets and scales the learning rate with them.
.
This package holds the headers for C and C++, the static library, the files of
CMake and pkg-config, and for authors of plugins the SDK, its templates and its
conformance kit.")
if(TARGET pliant_python)
  string(REGEX MATCH "^3[.]([0-9]+)" minor "${PLIANT_PYTHON_VERSION}")
  math(EXPR next "${CMAKE_MATCH_1} + 1")
  pliant_package(python3-pliant SECTION python SUGGESTS "python3-numpy, python3-torch"
    DEPENDS "pliant (= ${version}), python3 (>= ${minor}), python3 (<< 3.${next})"
    CONTROL ${PROJECT_SOURCE_DIR}/cmake/packages/python/postinst ${PROJECT_SOURCE_DIR}/cmake/packages/python/prerm
    DESCRIPTION "elastic training of one model - Python package
Pliant plans batch sizes that survive a change of the number of workers, packs
sequences into token budgets and scales the learning rate with them.
.
This package holds the module for Python, with samplers, collate functions
and a scheduler for PyTorch. Its plugins are in the package pliant.")
endif()

set(CPACK_PACKAGE_NAME pliant)
set(CPACK_PACKAGE_CONTACT "${PLIANT_PACKAGE_CONTACT}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "") # each package has its own
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_STRIP_FILES ON)
set(CPACK_GENERATOR DEB)
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_PRE_BUILD_SCRIPTS "${PROJECT_SOURCE_DIR}/cmake/packages/finish.cmake")
set(CPACK_PLIANT_SOURCE_DIR "${PROJECT_SOURCE_DIR}")
include(CPack)
