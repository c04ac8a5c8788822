// Accelerators, their memory, streams and events, for C.
#include "device_handles.hpp"
#include "handles.hpp"
#include "session_handle.hpp"
#include "structs.hpp"

struct pliant_buffer_t : pliant::capi::Handle<pliant::capi::Tag::kBuffer> {
  static constexpr const char* kName = "buffer";
  explicit pliant_buffer_t(pliant::Buffer made) : buffer(std::move(made)) {}

  const pliant::Buffer buffer;
};

struct pliant_event_t : pliant::capi::SerialHandle<pliant::capi::Tag::kEvent> {
  static constexpr const char* kName = "event";
  explicit pliant_event_t(pliant::Event made) : event(std::move(made)) {}

  pliant::Event event;
};

namespace {

using StreamTurn = pliant::capi::Turn<pliant_stream_t>;
using EventTurn = pliant::capi::Turn<pliant_event_t>;

[[noreturn]] void refuse_number(const char* what, int32_t number, const char* names) {
  throw pliant::capi::wrong(std::string(what) + " " + std::to_string(number) + " is none of " + names);
}

int32_t checked(int32_t number, int32_t least, int32_t most, const char* what, const char* names) {
  if (number < least || number > most) refuse_number(what, number, names);
  return number;
}

uint32_t flags_of(const pliant::DeviceProperties& of) {
  uint32_t flags = 0;
  const auto add = [&flags](bool has, uint32_t flag) { flags |= has ? flag : 0; };
  add(of.host_visible, PLIANT_DEVICE_HOST_VISIBLE);
  add(of.fixed_order, PLIANT_DEVICE_FIXED_ORDER);
  add(of.shared_memory, PLIANT_DEVICE_SHARED_MEMORY);
  add(of.exchange_memory, PLIANT_DEVICE_EXCHANGE_MEMORY);
  add(of.window_memory, PLIANT_DEVICE_WINDOW_MEMORY);
  return flags;
}

}  // namespace

pliant::DType pliant::capi::dtype_of(int32_t number) {
  return static_cast<DType>(checked(number, PLIANT_DTYPE_F32, PLIANT_DTYPE_BF16, "dtype", "PLIANT_DTYPE_..."));
}

pliant::ReduceOp pliant::capi::reduce_op_of(int32_t number) {
  return static_cast<ReduceOp>(checked(number, PLIANT_REDUCE_SUM, PLIANT_REDUCE_MAX, "op", "PLIANT_REDUCE_..."));
}

int32_t pliant_accelerator_make(const pliant_config_t* config, pliant_accelerator_t** accelerator,
                                pliant_error_t* error) {
  return pliant::capi::hand_out(accelerator, error, [&] {
    return std::make_unique<pliant_accelerator_t>(pliant::Accelerator(pliant::capi::given(config).config));
  });
}

int32_t pliant_session_accelerator(pliant_session_t* session, pliant_accelerator_t** accelerator,
                                   pliant_error_t* error) {
  return pliant::capi::hand_out(accelerator, error, [&] {
    return std::make_unique<pliant_accelerator_t>(pliant::capi::makers(session).session.accelerator());
  });
}

int32_t pliant_accelerator_free(pliant_accelerator_t* accelerator) {
  return pliant::capi::free_any(accelerator);
}

int32_t pliant_accelerator_look(const pliant_accelerator_t* accelerator, pliant_accelerator_facts_t* facts,
                                pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const pliant_accelerator_t& known = pliant::capi::given(accelerator);
    pliant_accelerator_facts_t made{};
    made.devices = known.accelerator.device_count();
    const std::lock_guard lock(known.mutex);
    if (!known.why_none) known.why_none = made.devices == 0 ? known.accelerator.why_no_devices() : std::string();
    made.why_none = known.why_none->c_str();
    pliant::capi::write(facts, made, "facts");
  });
}

int32_t pliant_accelerator_device(const pliant_accelerator_t* accelerator, int32_t device, pliant_device_t* facts,
                                  pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const pliant::Accelerator& known = pliant::capi::given(accelerator).accelerator;
    pliant::capi::check_size(facts, "facts");
    const pliant::DeviceProperties properties = known.properties(device);
    pliant_device_t made{};
    made.flags = flags_of(properties);
    made.memory_bytes = properties.memory_bytes;
    made.free_bytes = known.memory_info(device).free_bytes;
    std::memcpy(made.name, properties.name.data(), pliant::capi::whole_characters(properties.name, sizeof(made.name)));
    pliant::capi::write(facts, made, "facts");
  });
}

int32_t pliant_buffer_make(const pliant_accelerator_t* accelerator, int32_t device, uint64_t bytes, int32_t kind,
                           pliant_buffer_t** buffer, pliant_error_t* error) {
  return pliant::capi::hand_out(buffer, error, [&] {
    const pliant::Accelerator& known = pliant::capi::given(accelerator).accelerator;
    checked(kind, PLIANT_BUFFER_DEVICE, PLIANT_BUFFER_WINDOW, "kind", "PLIANT_BUFFER_...");
    return std::make_unique<pliant_buffer_t>(
        pliant::Buffer(known, device, bytes, static_cast<pliant::MemoryKind>(kind),
                       kind == PLIANT_BUFFER_WINDOW ? pliant::Buffer::kPageAlignment : pliant::Buffer::kAlignment));
  });
}

int32_t pliant_buffer_free(pliant_buffer_t* buffer) {
  return pliant::capi::free_any(buffer);
}

int32_t pliant_buffer_look(const pliant_buffer_t* buffer, void** memory, uint64_t* bytes, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const pliant::Buffer& known = pliant::capi::given(buffer).buffer;
    pliant::capi::require(memory, "memory");
    *memory = known.pointer();
    if (bytes != nullptr) *bytes = known.bytes();
  });
}

int32_t pliant_stream_make(const pliant_accelerator_t* accelerator, int32_t device, int32_t role, int32_t priority,
                           pliant_stream_t** stream, pliant_error_t* error) {
  return pliant::capi::hand_out(stream, error, [&] {
    const pliant::Accelerator& known = pliant::capi::given(accelerator).accelerator;
    checked(role, PLIANT_ROLE_COMPUTE, PLIANT_ROLE_TO_HOST, "role", "PLIANT_ROLE_...");
    checked(priority, -1, 1, "priority", "-1, 0 and 1");
    return std::make_unique<pliant_stream_t>(std::make_shared<pliant::Stream>(
        known, device, static_cast<pliant::StreamRole>(role), static_cast<pliant::Priority>(priority)));
  });
}

int32_t pliant_session_stream(pliant_session_t* session, pliant_stream_t** stream, int32_t* device,
                              pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    pliant_session_t& known = pliant::capi::makers(session);
    pliant::capi::require(stream, "stream");
    *stream = nullptr;
    if (!known.stream) known.stream = std::make_unique<pliant_stream_t>(known.session.stream());
    *stream = known.stream.get();
    if (device != nullptr) *device = known.session.device();
  });
}

int32_t pliant_stream_free(pliant_stream_t* stream) {
  const bool is_lent = stream != nullptr && pliant::capi::answer(nullptr, [&] {
                                              if (pliant::capi::given(stream).own) return;
                                              throw pliant::Error(pliant::Status::kFailedPrecondition,
                                                                  "this stream is the session's, which frees it");
                                            }) == PLIANT_FAILED_PRECONDITION;
  return is_lent ? PLIANT_FAILED_PRECONDITION : pliant::capi::free_serial(stream);
}

int32_t pliant_stream_synchronize(pliant_stream_t* stream, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] { StreamTurn(stream)->stream.synchronize(); });
}

int32_t pliant_stream_is_idle(pliant_stream_t* stream, int32_t* is_idle, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const StreamTurn known(stream);
    pliant::capi::require(is_idle, "is_idle");
    *is_idle = known->stream.is_idle() ? 1 : 0;
  });
}

int32_t pliant_stream_copy(pliant_stream_t* stream, void* to, const void* from, uint64_t bytes, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const StreamTurn known(stream);
    if (bytes == 0) return;
    pliant::capi::require(to, "to");
    pliant::capi::require(from, "from");
    known->stream.copy(to, from, bytes);
  });
}

int32_t pliant_stream_fill(pliant_stream_t* stream, void* to, uint8_t byte, uint64_t bytes, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const StreamTurn known(stream);
    if (bytes == 0) return;
    pliant::capi::require(to, "to");
    known->stream.fill(to, byte, bytes);
  });
}

int32_t pliant_stream_reduce(pliant_stream_t* stream, void* to, const void* const* from, uint64_t sources,
                             uint64_t count, int32_t dtype, int32_t op, double scale, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const StreamTurn known(stream);
    const auto all = pliant::capi::given_array(from, sources, "from");
    known->stream.reduce(to, all, count, pliant::capi::dtype_of(dtype), pliant::capi::reduce_op_of(op), scale);
  });
}

int32_t pliant_stream_cast(pliant_stream_t* stream, void* to, int32_t to_dtype, const void* from, int32_t from_dtype,
                           uint64_t count, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const StreamTurn known(stream);
    known->stream.cast(to, pliant::capi::dtype_of(to_dtype), from, pliant::capi::dtype_of(from_dtype), count);
  });
}

int32_t pliant_event_make(const pliant_accelerator_t* accelerator, int32_t device, pliant_event_t** event,
                          pliant_error_t* error) {
  return pliant::capi::hand_out(event, error, [&] {
    return std::make_unique<pliant_event_t>(pliant::Event(pliant::capi::given(accelerator).accelerator, device));
  });
}

int32_t pliant_event_free(pliant_event_t* event) {
  return pliant::capi::free_serial(event);
}

int32_t pliant_event_record(pliant_event_t* event, pliant_stream_t* stream, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const EventTurn known(event);
    const StreamTurn on(stream);
    known->event.record(on->stream);
  });
}

int32_t pliant_stream_wait(pliant_stream_t* stream, pliant_event_t* event, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const StreamTurn known(stream);
    const EventTurn of(event);
    known->stream.wait(of->event);
  });
}

int32_t pliant_event_synchronize(pliant_event_t* event, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] { EventTurn(event)->event.synchronize(); });
}
