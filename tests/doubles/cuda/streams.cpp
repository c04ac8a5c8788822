// Streams, events, copies and launches of the software runtime.
#include <algorithm>
#include <cstring>
#include <string_view>

#include "enqueue.hpp"
#include "soft.hpp"

using namespace soft_cuda;

namespace {

Stream* of(cudaStream_t handle) {
  return reinterpret_cast<Stream*>(handle);
}
Event* of(cudaEvent_t handle) {
  return reinterpret_cast<Event*>(handle);
}
bool on_host(const AllocationPtr& one) {
  return !one || one->type != cudaMemoryTypeDevice;
}

/// The file that nvcc made, and the kernels of it that were asked for.
struct Library {
  std::string_view image;
  std::set<std::string> names;
};
/// What a fatbin begins with.
struct FatbinHeader {
  uint32_t magic = 0;
  uint16_t version = 0;
  uint16_t header_bytes = 0;
  uint64_t body_bytes = 0;
};
struct Kernel {
  std::string name;
};

}  // namespace

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* out, unsigned, int) {
  State& all = state();
  uint64_t number = 0;
  {
    const std::lock_guard lock(all.mutex);
    if (const cudaError_t now = usable(); now != cudaSuccess) return told(now);
    if (all.settings.busy) return told(cudaErrorDevicesUnavailable);
    number = all.streams_made++;
  }
  auto made = std::make_unique<Stream>(current_device(), number);
  const std::lock_guard lock(all.mutex);
  all.streams.insert(made.get());
  *out = reinterpret_cast<cudaStream_t>(made.release());
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  State& all = state();
  {
    const std::lock_guard lock(all.mutex);
    if (all.streams.erase(of(handle)) == 0) {
      all.violation("a stream was destroyed that is not there");
      return told(cudaErrorInvalidResourceHandle);
    }
    if (of(handle)->finished != of(handle)->pushed && !all.lost) {
      all.violation("a stream was destroyed while it had work");
    }
  }
  delete of(handle);
  return told(usable());
}
cudaError_t cudaStreamQuery(cudaStream_t handle) {
  const std::lock_guard lock(state().mutex);
  if (const cudaError_t now = usable(); now != cudaSuccess) return told(now);
  return told(of(handle)->finished == of(handle)->pushed ? cudaSuccess : cudaErrorNotReady);
}
cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  std::unique_lock lock(state().mutex);
  if (const cudaError_t now = usable(); now != cudaSuccess) return told(now);
  return told(state().drain(lock, *of(handle)));
}
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
  const std::lock_guard lock(state().mutex);
  if (const cudaError_t now = usable(); now != cudaSuccess) return told(now);
  if (!of(event)->last) return cudaSuccess;
  Command command;
  command.wait = of(event)->last;
  return told(state().push(*of(handle), std::move(command)));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned flags) {
  const std::lock_guard lock(state().mutex);
  if (const cudaError_t now = usable(); now != cudaSuccess) return told(now);
  auto* made = new Event{current_device(), (flags & cudaEventDisableTiming) == 0, nullptr};
  state().events.insert(made);
  *out = reinterpret_cast<cudaEvent_t>(made);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const std::lock_guard lock(state().mutex);
  if (state().events.erase(of(event)) == 0) {
    state().violation("an event was destroyed that is not there");
    return told(cudaErrorInvalidResourceHandle);
  }
  delete of(event);
  return told(usable());
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
  const std::lock_guard lock(state().mutex);
  if (const cudaError_t now = usable(); now != cudaSuccess) return told(now);
  if (of(event)->device != of(handle)->device) {
    state().violation("an event was recorded on a stream of another device");
    return told(cudaErrorInvalidResourceHandle);
  }
  Command command;
  command.records = std::make_shared<Recording>();
  of(event)->last = command.records;
  return told(state().push(*of(handle), std::move(command)));
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::lock_guard lock(state().mutex);
  if (const cudaError_t now = usable(); now != cudaSuccess) return told(now);
  return told(!of(event)->last || of(event)->last->done ? cudaSuccess : cudaErrorNotReady);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  std::unique_lock lock(state().mutex);
  if (const cudaError_t now = usable(); now != cudaSuccess) return told(now);
  const std::shared_ptr<Recording> last = of(event)->last;
  state().changed.wait(lock, [&] { return state().lost || !last || last->done; });
  return told(usable());
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const std::lock_guard lock(state().mutex);
  if (!of(begin)->timed || !of(end)->timed || !of(begin)->last || !of(end)->last) {
    return told(cudaErrorInvalidResourceHandle);
  }
  if (!of(begin)->last->done || !of(end)->last->done) return told(cudaErrorNotReady);
  *milliseconds = static_cast<float>((of(end)->last->seconds - of(begin)->last->seconds) * 1000);
  return told(usable());
}

// As CUDA's: what is read from plain memory is read before the call returns, what is written there is written before it
// returns, and copies within the CPU's reach are made before it returns.
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t handle) {
  State& all = state();
  std::unique_lock lock(all.mutex);
  if (const cudaError_t now = usable(); now != cudaSuccess) return told(now);
  AllocationPtr target;
  AllocationPtr source;
  const cudaError_t first = all.find_range(to, bytes, target);
  const cudaError_t second = all.find_range(from, bytes, source);
  if (first != cudaSuccess || second != cudaSuccess) return told(cudaErrorInvalidValue);
  void* put = State::inside(target, to);
  const void* take = State::inside(source, from);
  Command command;
  if (target) command.uses.push_back(target);
  if (source) command.uses.push_back(source);
  if (source || !target) {
    command.work = [=] { std::memmove(put, take, bytes); };
  } else {
    std::vector<std::byte> staged(bytes);
    std::memcpy(staged.data(), take, bytes);
    command.work = [put, staged = std::move(staged)] { std::memcpy(put, staged.data(), staged.size()); };
  }
  const cudaError_t pushed = all.push(*of(handle), std::move(command));
  if (pushed != cudaSuccess || (target && !(on_host(target) && on_host(source)))) return told(pushed);
  return told(all.drain(lock, *of(handle)));
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t handle) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  if (const cudaError_t now = usable(); now != cudaSuccess) return told(now);
  AllocationPtr target;
  if (all.find_range(to, bytes, target) != cudaSuccess || !target) {
    all.violation("plain memory was to be filled");
    return told(cudaErrorInvalidValue);
  }
  Command command;
  command.uses = {target};
  command.work = [put = State::inside(target, to), value, bytes] { std::memset(put, value, bytes); };
  return told(all.push(*of(handle), std::move(command)));
}

cudaError_t cudaFreeAsync(void* pointer, cudaStream_t handle) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  if (const cudaError_t now = usable(); now != cudaSuccess) return told(now);
  const auto found = all.allocations.find(reinterpret_cast<uintptr_t>(pointer));
  if (found == all.allocations.end() || found->second->pool == nullptr || found->second->doomed) {
    all.violation("memory was given back that is not a pool's");
    return told(cudaErrorInvalidValue);
  }
  found->second->doomed = true;
  Command command;
  command.frees = found->second;
  return told(all.push(*of(handle), std::move(command)));
}

cudaError_t cudaLibraryLoadData(cudaLibrary_t* out, const void* code, cudaJitOption*, void**, unsigned,
                                cudaLibraryOption*, void**, unsigned) {
  const std::lock_guard lock(state().mutex);
  if (const cudaError_t now = usable(); now != cudaSuccess) return told(now);
  FatbinHeader header;
  std::memcpy(&header, code, sizeof(header));
  if (header.magic != 0xba55ed50U || !state().settings.has_kernels) return told(cudaErrorNoKernelImageForDevice);
  ++state().libraries;
  *out = reinterpret_cast<cudaLibrary_t>(
      new Library{{static_cast<const char*>(code), header.header_bytes + header.body_bytes}, {}});
  return cudaSuccess;
}
cudaError_t cudaLibraryUnload(cudaLibrary_t library) {
  const std::lock_guard lock(state().mutex);
  --state().libraries;
  delete reinterpret_cast<Library*>(library);
  return told(usable());
}
cudaError_t cudaLibraryGetKernel(cudaKernel_t* out, cudaLibrary_t library, const char* name) {
  const std::lock_guard lock(state().mutex);
  Library& held = *reinterpret_cast<Library*>(library);
  // The name with its end, as symbol tables have it.
  const bool is_in_image = held.image.find(std::string_view(name, std::strlen(name) + 1)) != std::string_view::npos;
  if (!is_in_image || !kernel_exists(name)) return told(cudaErrorSymbolNotFound);
  const auto kept = held.names.insert(name).first;
  *out = reinterpret_cast<cudaKernel_t>(const_cast<std::string*>(&*kept));
  return told(usable());
}
cudaError_t cudaLaunchKernel(const void* kernel, dim3 blocks, dim3 threads, void** arguments, size_t,
                             cudaStream_t handle) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  if (const cudaError_t now = usable(); now != cudaSuccess) return told(now);
  if (of(handle)->device != current_device()) {
    all.violation("a kernel was launched on a stream of another device than the current one");
    return told(cudaErrorInvalidResourceHandle);
  }
  if (blocks.x == 0 || threads.x == 0 || threads.x > 1024) {
    all.violation("a kernel was launched with no threads, or too many");
    return told(cudaErrorInvalidConfiguration);
  }
  Command command;
  const cudaError_t made = launch(*static_cast<const std::string*>(kernel), arguments, command);
  if (made != cudaSuccess) return told(made);
  ++all.launches;
  all.launched_on = of(handle)->device;
  if (*static_cast<const std::string*>(kernel) == "pliant_digest_blocks") ++all.digests;
  return told(all.push(*of(handle), std::move(command)));
}

}  // extern "C"

cudaError_t soft_cuda_reach(const void* pointer, uint64_t bytes, soft_cuda_range& out) {
  const std::lock_guard lock(state().mutex);
  AllocationPtr found;
  if (const cudaError_t result = state().find_range(pointer, bytes, found); result != cudaSuccess) return result;
  if (!found && bytes != 0) {
    state().violation("NCCL was given plain memory");
    return cudaErrorInvalidValue;
  }
  out = {State::inside(found, pointer), found};
  return cudaSuccess;
}

cudaError_t soft_cuda_enqueue(cudaStream_t handle, std::vector<soft_cuda_range> uses, std::function<void()> work) {
  const std::lock_guard lock(state().mutex);
  if (const cudaError_t now = usable(); now != cudaSuccess) return now;
  Command command;
  for (const soft_cuda_range& one : uses) {
    if (one.holder) command.uses.push_back(std::static_pointer_cast<Allocation>(one.holder));
  }
  command.work = std::move(work);
  return state().push(*of(handle), std::move(command));
}
