// Opens the loader and finds its functions.
#include "api.hpp"

#include <dlfcn.h>

#include <type_traits>

namespace pliant::level_zero {

std::string Api::open(const std::string& loader) {
  void* library = ::dlopen(loader.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char* why = ::dlerror();
    return "cannot open the loader of Level Zero (" + std::string(why == nullptr ? loader : why) +
           "); install it (Debian, Ubuntu: libze1) or name its file in the option loader";
  }
  std::string missing;
  const auto find = [&](const char* name) {
    void* found = ::dlsym(library, name);
    if (found == nullptr) missing += (missing.empty() ? "" : ", ") + std::string(name);
    return found;
  };
#define PLIANT_ZE_FIND(name) name = reinterpret_cast<decltype(name)>(find(#name))
  PLIANT_ZE_CALLS(PLIANT_ZE_FIND);
#undef PLIANT_ZE_FIND
  const auto find_newer = [library](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
  };
  find_newer("zeMemPutIpcHandle", zeMemPutIpcHandle);
  find_newer("zeDriverGetExtensionFunctionAddress", zeDriverGetExtensionFunctionAddress);
  find_newer("zelLoaderTranslateHandle", zelLoaderTranslateHandle);
  if (missing.empty()) return "";
  return loader + " is not a loader of Level Zero: it lacks " + missing;
}

}  // namespace pliant::level_zero
