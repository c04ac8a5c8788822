// The software CUDA runtime in this process: where it is, and what it has counted.
#pragma once

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <string>

#include "doubles/cuda/report.h"

namespace pliant_test {

#ifdef PLIANT_SOFT_CUDA
inline const char* const kSoftCuda = PLIANT_SOFT_CUDA;

/// Opens the software runtime, so that whoever asks for one by its name gets this one.
inline void use_software_cuda() {
  static void* const kOpened = ::dlopen(kSoftCuda, RTLD_NOW);
  REQUIRE(kOpened != nullptr);
}

/// All 0 when the runtime was never opened.
inline pliant_soft_cuda_counts software_cuda_counts() {
  pliant_soft_cuda_counts counts{};
  void* runtime = ::dlopen(kSoftCuda, RTLD_NOW | RTLD_NOLOAD);
  if (runtime == nullptr) return counts;
  const auto report = reinterpret_cast<pliant_soft_cuda_report_function>(::dlsym(runtime, "pliant_soft_cuda_report"));
  if (report != nullptr) report(&counts);
  ::dlclose(runtime);
  return counts;
}

/// The rules were kept, and nothing lives: for the end of a test, when all devices are closed.
inline void check_software_cuda_is_clean() {
  const pliant_soft_cuda_counts counts = software_cuda_counts();
  CHECK(std::string(counts.first_violation) == "");
  CHECK(counts.allocations == 0);
  CHECK(counts.streams == 0);
  CHECK(counts.events == 0);
  CHECK(counts.pools == 0);
  CHECK(counts.libraries == 0);
}
#else
inline void use_software_cuda() {}
inline void check_software_cuda_is_clean() {}
#endif

}  // namespace pliant_test
