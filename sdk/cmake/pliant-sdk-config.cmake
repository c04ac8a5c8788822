# find_package(pliant-sdk): gives pliant::sdk (headers only, no dependencies) and pliant_add_plugin().
include("${CMAKE_CURRENT_LIST_DIR}/pliant-sdk-targets.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/PliantPlugin.cmake")

# Where `cmake --install` of a plugin puts it, relative to the prefix, so that a pliant of the same prefix finds it by name.
set(PLIANT_PLUGIN_INSTALL_DIR "lib/pliant/plugins-1")
# Starting points for an own plugin, one folder per kind.
get_filename_component(PLIANT_SDK_TEMPLATE_DIR "${CMAKE_CURRENT_LIST_DIR}/../../../share/pliant/template" ABSOLUTE)
