// Arrays that are written and read in many places at once, on large pages where the system has them.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace pliant::sampler {

struct FreeArray {
  void operator()(void* array) const { std::free(array); }
};
template <class T>
using HugeArray = std::unique_ptr<T[], FreeArray>;

/// `count` elements that are not initialised. Grouping 1 million sequences by a few thousand lengths takes half the
/// time where a page is 2 MiB: with pages of 4 KiB nearly every write waits for the page table.
template <class T>
HugeArray<T> make_huge_array(size_t count) {
  constexpr size_t kPage = size_t{1} << 21U;
  const size_t bytes = count * sizeof(T);
  if (bytes < kPage) {
    HugeArray<T> array(static_cast<T*>(std::malloc(bytes == 0 ? 1 : bytes)));
    if (!array) throw std::bad_alloc();
    return array;
  }
  HugeArray<T> array(static_cast<T*>(std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage)));
  if (!array) throw std::bad_alloc();
#ifdef __linux__
  // Whole pages only, so that no memory is taken that is not asked for. Where it is refused the array is as good.
  (void)madvise(array.get(), bytes / kPage * kPage, MADV_HUGEPAGE);
#endif
  return array;
}

}  // namespace pliant::sampler
