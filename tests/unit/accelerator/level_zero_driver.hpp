// The software driver of Level Zero in this process: how tests switch it on, and what it has counted.
#pragma once

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "doubles/level_zero/report.h"

namespace pliant_test {

/// Sets an environment variable for as long as it lives.
class Setting {
 public:
  Setting(std::string name, const std::string& value) : name_(std::move(name)) {
    ::setenv(name_.c_str(), value.c_str(), 1);
  }
  ~Setting() { ::unsetenv(name_.c_str()); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  std::string name_;
};

#ifdef PLIANT_SOFT_LEVEL_ZERO
/// Makes the loader open the software driver and no other. It reads this once, when a process first asks it.
inline void use_software_driver() {
  ::setenv("ZE_ENABLE_ALT_DRIVERS", PLIANT_SOFT_LEVEL_ZERO, 1);
}

/// All 0 when the driver was never opened.
inline pliant_soft_ze_counts software_driver_counts() {
  pliant_soft_ze_counts counts{};
  void* driver = ::dlopen(PLIANT_SOFT_LEVEL_ZERO, RTLD_NOW | RTLD_NOLOAD);
  if (driver == nullptr) return counts;
  const auto report = reinterpret_cast<pliant_soft_ze_report_function>(::dlsym(driver, "pliant_soft_ze_report"));
  if (report != nullptr) report(&counts);
  ::dlclose(driver);
  return counts;
}

/// The rules were kept, and nothing lives: for the end of a test, when all devices are closed.
inline void check_software_driver_is_clean() {
  const pliant_soft_ze_counts counts = software_driver_counts();
  CHECK(std::string(counts.first_violation) == "");
  CHECK(counts.contexts == 0);
  CHECK(counts.allocations == 0);
  CHECK(counts.imports == 0);
  CHECK(counts.pinned == 0);
  CHECK(counts.lists == 0);
  CHECK(counts.modules == 0);
  CHECK(counts.kernels == 0);
  CHECK(counts.build_logs == 0);
  CHECK(counts.event_pools == 0);
  CHECK(counts.events == 0);
}
#else
inline void use_software_driver() {}
inline void check_software_driver_is_clean() {}
#endif

}  // namespace pliant_test
