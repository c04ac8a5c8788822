# What `cmake --install` puts where. Components: sdk, core, c, c_dev, cli, manual, docs, plugins, python, samples (all by default) and
# testkit (on request). Packages.cmake makes packages of them.
include(CMakePackageConfigHelpers)

set(package_dir "lib/cmake")

# sdk: headers, CMake package, templates, and the conformance kit, which installs itself where it is declared. Needs nothing else
# of ours and nothing of anybody's.
install(TARGETS pliant_sdk EXPORT pliant-sdk-targets)
install(EXPORT pliant-sdk-targets NAMESPACE pliant:: DESTINATION "${package_dir}/pliant-sdk" COMPONENT sdk)
install(DIRECTORY sdk/include/pliant DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT sdk)
install(FILES sdk/cmake/pliant-sdk-config.cmake sdk/cmake/PliantPlugin.cmake sdk/cmake/plugin.map
    "${CMAKE_CURRENT_BINARY_DIR}/PliantKinds.cmake"
  DESTINATION "${package_dir}/pliant-sdk" COMPONENT sdk)
write_basic_package_version_file("${CMAKE_CURRENT_BINARY_DIR}/pliant-sdk-config-version.cmake"
  COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/pliant-sdk-config-version.cmake"
  DESTINATION "${package_dir}/pliant-sdk" COMPONENT sdk)
install(DIRECTORY sdk/template DESTINATION share/pliant COMPONENT sdk)

# core: the embedding API as a static library.
install(TARGETS pliant_core EXPORT pliant-targets
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT core)
install(EXPORT pliant-targets NAMESPACE pliant:: DESTINATION "${package_dir}/pliant" COMPONENT core)
install(DIRECTORY core/include/pliant DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT core)
configure_package_config_file(cmake/pliant-config.cmake.in "${CMAKE_CURRENT_BINARY_DIR}/pliant-config.cmake"
  INSTALL_DESTINATION "${package_dir}/pliant")
write_basic_package_version_file("${CMAKE_CURRENT_BINARY_DIR}/pliant-config-version.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/pliant-config.cmake" "${CMAKE_CURRENT_BINARY_DIR}/pliant-config-version.cmake"
  DESTINATION "${package_dir}/pliant" COMPONENT core)

# c: libpliant, what a program needs that was linked with it. c_dev: its one header and what links with it; the CMake package is that of
# core, which finds out what is there.
install(TARGETS pliant_c EXPORT pliant-c-targets
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT c NAMELINK_COMPONENT c_dev)
install(EXPORT pliant-c-targets NAMESPACE pliant:: DESTINATION "${package_dir}/pliant" COMPONENT c_dev)
install(FILES core/capi/include/pliant.h DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT c_dev)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/pliant-config.cmake" "${CMAKE_CURRENT_BINARY_DIR}/pliant-config-version.cmake"
  DESTINATION "${package_dir}/pliant" COMPONENT c_dev)
file(RELATIVE_PATH pliant_pc_to_prefix "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix/")
configure_file(cmake/pliant.pc.in "${CMAKE_CURRENT_BINARY_DIR}/pliant.pc" @ONLY)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/pliant.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT c_dev)

# The cli and the plugins install themselves, where they are declared; so that a config that names a sample's program by its
# bare name finds it, those go beside the cli.
get_property(sample_programs GLOBAL PROPERTY PLIANT_SAMPLE_PROGRAMS)
foreach(program IN LISTS sample_programs)
  install(TARGETS ${program} RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT samples)
endforeach()
install(DIRECTORY samples DESTINATION share/pliant COMPONENT samples FILES_MATCHING PATTERN "*.toml" PATTERN "*.py"
  PATTERN "*.json")

# `product` builds everything that is installed and nothing else: no tests. `packaged` is what of it packages hold: no samples.
add_custom_target(packaged)
add_custom_target(product DEPENDS packaged ${sample_programs})
set(sample_programs_of_core ${sample_programs})
list(REMOVE_ITEM sample_programs_of_core embed_c)
get_property(own_plugins GLOBAL PROPERTY PLIANT_OWN_PLUGINS)
foreach(target IN ITEMS pliant_core pliant_c pliant pliant_manual pliant_check pliant_python ${own_plugins})
  if(TARGET ${target})
    add_dependencies(packaged ${target})
  endif()
endforeach()
# `jobs` is what runs them: no libraries for other programs, and none of the samples that need one.
add_custom_target(jobs DEPENDS pliant ${own_plugins} ${sample_programs_of_core})
if(SKBUILD) # pyproject.toml
  add_custom_target(wheel DEPENDS pliant pliant_check pliant_python ${own_plugins})
endif()
install(FILES LICENSE README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md DESTINATION share/doc/pliant COMPONENT docs)
install(DIRECTORY docs DESTINATION share/doc/pliant COMPONENT docs)
