// A device of OpenCL that takes SPIR-V, or SPIR that was made of it, for tests of kernels: opened at run time, absent
// on many machines.
#pragma once

#define CL_TARGET_OPENCL_VERSION 210  // the first with SPIR-V
#include <CL/cl.h>
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cstddef>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace pliant_test {

inline std::vector<char> bytes_of_file(const char* path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file.good());
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The functions of OpenCL's loader that are called here.
struct OpenClApi {
#define PLIANT_CL_CALLS(call)                                                                                     \
  call(clGetPlatformIDs) call(clGetDeviceIDs) call(clGetDeviceInfo) call(clCreateContext) call(clReleaseContext)  \
      call(clCreateCommandQueueWithProperties) call(clReleaseCommandQueue) call(clCreateProgramWithIL)            \
          call(clBuildProgram) call(clCreateProgramWithBinary) call(clGetProgramBuildInfo) call(clReleaseProgram) \
              call(clCreateKernel) call(clReleaseKernel) call(clSetKernelArg) call(clCreateBuffer)                \
                  call(clReleaseMemObject) call(clEnqueueNDRangeKernel) call(clEnqueueReadBuffer) call(clFinish)
#define PLIANT_CL_MEMBER(name) decltype(&::name) name = nullptr;
  PLIANT_CL_CALLS(PLIANT_CL_MEMBER)
#undef PLIANT_CL_MEMBER
  bool open() {
    void* library = ::dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return false;
#define PLIANT_CL_FIND(name) name = reinterpret_cast<decltype(name)>(::dlsym(library, #name));
    PLIANT_CL_CALLS(PLIANT_CL_FIND)
#undef PLIANT_CL_FIND
    return clGetPlatformIDs != nullptr && clCreateProgramWithIL != nullptr;
  }
};

/// One argument of a kernel: a number, or a buffer that is copied there and back.
struct OpenClArgument {
  template <class T>
  static OpenClArgument number(T value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    return {{bytes, bytes + sizeof(value)}, {}, false};
  }
  static OpenClArgument buffer(std::span<std::byte> bytes) { return {{}, bytes, true}; }

  std::vector<std::byte> value;
  std::span<std::byte> memory;  ///< empty: NULL
  bool is_buffer = false;
};

class OpenClDevice {
 public:
  /// NULL where there is none; `why` then says what there is.
  static std::unique_ptr<OpenClDevice> find(std::string& why) {
    std::unique_ptr<OpenClDevice> made(new OpenClDevice);
    why = "no libOpenCL.so.1";
    if (!made->api_.open()) return nullptr;
    cl_uint count = 0;
    made->api_.clGetPlatformIDs(0, nullptr, &count);
    std::vector<cl_platform_id> platforms(count);
    if (count != 0) made->api_.clGetPlatformIDs(count, platforms.data(), nullptr);
    why = "none of " + std::to_string(count) + " platforms of OpenCL takes SPIR-V or SPIR";
    for (const bool translated : {false, true}) {
      made->takes_spir_v_ = !translated;
      for (cl_platform_id platform : platforms) {
        if (made->take(platform)) return made;
      }
    }
    return nullptr;
  }
  ~OpenClDevice() {
    if (queue_ != nullptr) api_.clReleaseCommandQueue(queue_);
    if (context_ != nullptr) api_.clReleaseContext(context_);
  }
  OpenClDevice(const OpenClDevice&) = delete;
  OpenClDevice& operator=(const OpenClDevice&) = delete;

  [[nodiscard]] std::string name() const {
    return text(CL_DEVICE_NAME) + ", " + text(CL_DRIVER_VERSION) + (takes_spir_v_ ? "" : ", as SPIR");
  }
  [[nodiscard]] bool has_subnormals() const { return (config(CL_DEVICE_SINGLE_FP_CONFIG) & CL_FP_DENORM) != 0; }
  /// And roots, of 32-bit floats, where a program is built so.
  [[nodiscard]] bool rounds_quotients() const {
    return (config(CL_DEVICE_SINGLE_FP_CONFIG) & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT) != 0;
  }
  [[nodiscard]] bool has_doubles() const { return (config(CL_DEVICE_DOUBLE_FP_CONFIG) & CL_FP_DENORM) != 0; }

 private:
  friend class OpenClProgram;
  OpenClDevice() = default;
  bool take(cl_platform_id platform) {
    cl_uint count = 0;
    if (api_.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device_, &count) != CL_SUCCESS || count == 0)
      return false;
    const bool takes = takes_spir_v_ ? text(CL_DEVICE_IL_VERSION).find("SPIR-V") != std::string::npos
                                     : text(CL_DEVICE_EXTENSIONS).find("cl_khr_spir") != std::string::npos;
    if (!takes) return false;
    context_ = api_.clCreateContext(nullptr, 1, &device_, nullptr, nullptr, nullptr);
    queue_ =
        context_ == nullptr ? nullptr : api_.clCreateCommandQueueWithProperties(context_, device_, nullptr, nullptr);
    return queue_ != nullptr;
  }
  [[nodiscard]] std::string text(cl_device_info which) const {
    size_t bytes = 0;
    if (api_.clGetDeviceInfo(device_, which, 0, nullptr, &bytes) != CL_SUCCESS || bytes == 0) return "";
    std::string told(bytes, '\0');
    api_.clGetDeviceInfo(device_, which, bytes, told.data(), nullptr);
    return told.c_str();
  }
  [[nodiscard]] cl_device_fp_config config(cl_device_info which) const {
    cl_device_fp_config all = 0;
    api_.clGetDeviceInfo(device_, which, sizeof(all), &all, nullptr);
    return all;
  }

  OpenClApi api_;
  bool takes_spir_v_ = true;
  cl_device_id device_ = nullptr;
  cl_context context_ = nullptr;
  cl_command_queue queue_ = nullptr;
};

/// The kernels of one file.
class OpenClProgram {
 public:
  /// `spir` is what was made of `spir_v`, for devices that take nothing else.
  OpenClProgram(const OpenClDevice& device, const char* spir_v, const char* spir, const char* more_options = "")
      : device_(device), api_(device.api_) {
    cl_int result = CL_SUCCESS;
    const std::vector<char> file = bytes_of_file(device.takes_spir_v_ ? spir_v : spir);
    const size_t bytes = file.size();
    const auto* binary = reinterpret_cast<const unsigned char*>(file.data());
    program_ = device.takes_spir_v_ ? api_.clCreateProgramWithIL(device.context_, binary, bytes, &result)
                                    : api_.clCreateProgramWithBinary(device.context_, 1, &device.device_, &bytes,
                                                                     &binary, nullptr, &result);
    REQUIRE(result == CL_SUCCESS);
    const std::string options = (device.takes_spir_v_ ? "" : "-x spir -spir-std=1.2") + std::string(more_options);
    if (api_.clBuildProgram(program_, 1, &device.device_, options.c_str(), nullptr, nullptr) != CL_SUCCESS) {
      std::string log(10000, '\0');
      api_.clGetProgramBuildInfo(program_, device.device_, CL_PROGRAM_BUILD_LOG, log.size(), log.data(), nullptr);
      throw std::runtime_error("the device refuses the kernels: " + std::string(log.c_str()));
    }
  }
  ~OpenClProgram() { api_.clReleaseProgram(program_); }
  OpenClProgram(const OpenClProgram&) = delete;
  OpenClProgram& operator=(const OpenClProgram&) = delete;

  /// Runs a kernel and waits for it.
  void run(const std::string& name, const std::vector<OpenClArgument>& arguments, size_t group, size_t groups) const {
    cl_int result = CL_SUCCESS;
    cl_kernel kernel = api_.clCreateKernel(program_, name.c_str(), &result);
    CAPTURE(name);
    REQUIRE(result == CL_SUCCESS);
    std::vector<cl_mem> buffers(arguments.size(), nullptr);
    for (size_t i = 0; i < arguments.size(); ++i) set(kernel, static_cast<cl_uint>(i), arguments[i], buffers[i]);
    const size_t items = group * groups;
    REQUIRE(api_.clEnqueueNDRangeKernel(device_.queue_, kernel, 1, nullptr, &items, &group, 0, nullptr, nullptr) ==
            CL_SUCCESS);
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (buffers[i] == nullptr) continue;
      const auto memory = arguments[i].memory;
      REQUIRE(api_.clEnqueueReadBuffer(device_.queue_, buffers[i], CL_TRUE, 0, memory.size(), memory.data(), 0, nullptr,
                                       nullptr) == CL_SUCCESS);
      api_.clReleaseMemObject(buffers[i]);
    }
    REQUIRE(api_.clFinish(device_.queue_) == CL_SUCCESS);
    api_.clReleaseKernel(kernel);
  }

 private:
  void set(cl_kernel kernel, cl_uint index, const OpenClArgument& argument, cl_mem& buffer) const {
    if (!argument.is_buffer) {
      REQUIRE(api_.clSetKernelArg(kernel, index, argument.value.size(), argument.value.data()) == CL_SUCCESS);
      return;
    }
    if (!argument.memory.empty()) {
      cl_int result = CL_SUCCESS;
      buffer = api_.clCreateBuffer(device_.context_, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, argument.memory.size(),
                                   argument.memory.data(), &result);
      REQUIRE(result == CL_SUCCESS);
    }
    REQUIRE(api_.clSetKernelArg(kernel, index, sizeof(cl_mem), buffer == nullptr ? nullptr : &buffer) == CL_SUCCESS);
  }

  const OpenClDevice& device_;
  const OpenClApi& api_;
  cl_program program_ = nullptr;
};

}  // namespace pliant_test
