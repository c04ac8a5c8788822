// Sleeping on and waking of a word that several processes share.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>
#include <ctime>

namespace pliant::accelerator {

/// Returns when the word is no longer `seen`, when somebody rang, after timeout_ns (-1 = without limit), or for no
/// reason.
inline void futex_wait(std::atomic<uint32_t>& word, uint32_t seen, int64_t timeout_ns = -1) {
  timespec limit{};
  limit.tv_sec = timeout_ns / 1000000000;
  limit.tv_nsec = timeout_ns % 1000000000;
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, seen, timeout_ns < 0 ? nullptr : &limit, nullptr,
            0);
}

/// Changes the word and wakes everyone who sleeps on it.
inline void ring(std::atomic<uint32_t>& word) {
  word.fetch_add(1);
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace pliant::accelerator
