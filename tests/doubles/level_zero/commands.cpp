// Command lists of the software driver.
#include <cstring>
#include <utility>

#include "objects.hpp"

namespace soft_ze {

bool take_events(Command& command, ze_event_handle_t signal, uint32_t count, ze_event_handle_t* waits) {
  if (signal != nullptr) command.signal = &of(signal);
  if (count != 0 && waits == nullptr) return false;
  for (uint32_t i = 0; i < count; ++i) {
    if (waits[i] == nullptr) return false;
    command.waits.push_back(&of(waits[i]));
  }
  return true;
}

std::optional<std::byte*> place(Context& context, Command& command, const void* pointer, size_t bytes) {
  const std::lock_guard lock(context.mutex);
  const auto found = context.find(pointer, bytes);
  if (found != nullptr) {
    command.uses.push_back(found);
    return found->inside + (static_cast<const std::byte*>(pointer) - found->address);
  }
  if (auto pinned = find_pinned(pointer, bytes)) {
    command.uses.push_back(std::move(pinned));
    return const_cast<std::byte*>(static_cast<const std::byte*>(pointer));
  }
  if (context.shared_system && context.find(pointer, 0) == nullptr) {
    return const_cast<std::byte*>(static_cast<const std::byte*>(pointer));
  }
  violation("a command touches memory that is not allocated, or leaves an allocation");
  return std::nullopt;
}

ze_result_t ZE_APICALL list_create_immediate(ze_context_handle_t handle, ze_device_handle_t device,
                                             const ze_command_queue_desc_t* wanted, ze_command_list_handle_t* out) {
  if (wanted == nullptr || out == nullptr) return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
  const bool known = wanted->ordinal < 2 && wanted->index < (wanted->ordinal == 0 ? 1U : 2U);
  if (!known || (wanted->index != 0 && (wanted->flags & ZE_COMMAND_QUEUE_FLAG_EXPLICIT_ONLY) == 0)) {
    violation("a command list names a queue that is not there");
    return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  }
  Context& context = of(handle);
  const std::lock_guard lock(context.mutex);
  if (context.lost) return ZE_RESULT_ERROR_DEVICE_LOST;
  if (context.busy) return ZE_RESULT_ERROR_NOT_AVAILABLE;
  auto& engine = context.engines[{&of(device), wanted->ordinal, wanted->index}];
  if (!engine) engine = std::make_unique<Engine>(context, context.engines.size());
  *out = reinterpret_cast<ze_command_list_handle_t>(new List(context, *engine, of(device), wanted->ordinal == 0));
  return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL list_destroy(ze_command_list_handle_t handle) {
  delete &of(handle);
  return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL append_barrier(ze_command_list_handle_t handle, ze_event_handle_t signal, uint32_t count,
                                      ze_event_handle_t* waits) {
  Command command;
  command.is_barrier = true;
  if (!take_events(command, signal, count, waits)) return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
  return of(handle).append(std::move(command));
}

ze_result_t ZE_APICALL append_memory_copy(ze_command_list_handle_t handle, void* to, const void* from, size_t bytes,
                                          ze_event_handle_t signal, uint32_t count, ze_event_handle_t* waits) {
  if (to == nullptr || from == nullptr) return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
  Command command;
  if (!take_events(command, signal, count, waits)) return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
  const auto target = place(of(handle).context(), command, to, bytes);
  const auto source = place(of(handle).context(), command, from, bytes);
  if (!target || !source) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  command.work = [=, target = *target, source = *source] { std::memcpy(target, source, bytes); };
  return of(handle).append(std::move(command));
}

ze_result_t ZE_APICALL append_memory_fill(ze_command_list_handle_t handle, void* to, const void* pattern,
                                          size_t pattern_bytes, size_t bytes, ze_event_handle_t signal, uint32_t count,
                                          ze_event_handle_t* waits) {
  if (to == nullptr || pattern == nullptr) return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
  if (pattern_bytes != 1) return ZE_RESULT_ERROR_INVALID_SIZE;  // this double knows no other
  Command command;
  if (!take_events(command, signal, count, waits)) return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
  const auto target = place(of(handle).context(), command, to, bytes);
  if (!target) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  command.work = [=, target = *target, byte = *static_cast<const unsigned char*>(pattern)] {
    std::memset(target, byte, bytes);
  };
  return of(handle).append(std::move(command));
}

}  // namespace soft_ze
