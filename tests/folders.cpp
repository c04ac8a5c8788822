// Where the clone and its build are.
#include "folders.hpp"

#include <mutex>
#include <set>
#include <string>

namespace pliant::test {

const char* in_folder(const char* folder, const char* file) {
  static std::mutex mutex;
  static auto& named = *new std::set<std::string>;  // also for what runs while the process ends
  const std::lock_guard lock(mutex);
  return named.insert(std::string(folder) + "/" + file).first->c_str();
}

const char* built(const char* path) {
  return in_folder(PLIANT_BUILD_FOLDER, path);
}

const char* source() {
  return PLIANT_SOURCE_FOLDER;
}

}  // namespace pliant::test
