// The kernels as nvcc made them: a fatbin, or nothing in a plugin that was built without nvcc.
#pragma once

namespace pliant::cuda {

/// NULL without nvcc.
const void* kernel_image();

}  // namespace pliant::cuda
