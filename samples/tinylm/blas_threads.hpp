// Keeps OpenBLAS to one thread: workers share the cores among themselves, and sums keep one order.
#pragma once

namespace tinylm {

/// True when the process uses OpenBLAS, which then computes on one thread. Debian's plain BLAS has one thread anyway,
/// and is about ten times slower.
bool use_one_blas_thread();

}  // namespace tinylm
