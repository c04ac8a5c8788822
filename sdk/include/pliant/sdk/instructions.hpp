// Which instructions of the processor arithmetic on arrays may use. The bits are the same from all of them.
#pragma once

#include <initializer_list>

namespace pliant::sdk {

/// What a choice has no version for runs as the one before it.
enum class Instructions { kEveryMachine, kAvx2, kAvx512 };

/// Whether this machine has them.
inline bool has(Instructions instructions) {
  if (instructions == Instructions::kEveryMachine) return true;
#ifdef __x86_64__
  if (instructions == Instructions::kAvx2) return __builtin_cpu_supports("avx2") != 0;
  return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512vl") != 0;
#else
  return false;
#endif
}

/// The last of them that this machine has.
inline Instructions best_instructions() {
  for (const Instructions wanted : {Instructions::kAvx512, Instructions::kAvx2}) {
    if (has(wanted)) return wanted;
  }
  return Instructions::kEveryMachine;
}

}  // namespace pliant::sdk
