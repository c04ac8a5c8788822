// Turns an ordinary C++ class into a plugin record: options, lifecycle, state, host services.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>

#include "pliant/abi/plugin.h"
#include "pliant/sdk/failure.hpp"
#include "pliant/sdk/options.hpp"
#include "pliant/sdk/sized.hpp"

#define PLIANT_PLUGIN_EXPORT __attribute__((visibility("default")))

namespace pliant::sdk {

/// What the host offers. Copyable; valid as long as the instance that received it.
class Host {
 public:
  Host() = default;
  explicit Host(const pliant_host* host) {
    if (host != nullptr) host_ = widened(*host);
  }
  void debug(std::string_view line) const { log(PLIANT_LOG_DEBUG, line); }
  void info(std::string_view line) const { log(PLIANT_LOG_INFO, line); }
  void warning(std::string_view line) const { log(PLIANT_LOG_WARNING, line); }
  void error(std::string_view line) const { log(PLIANT_LOG_ERROR, line); }
  /// A host service by id, nullptr when this host has none of that name.
  [[nodiscard]] const void* extension(const char* id) const {
    return host_.extension == nullptr ? nullptr : host_.extension(host_.context, id);
  }

 private:
  void log(int32_t level, std::string_view line) const {
    if (host_.log != nullptr) host_.log(host_.context, level, detail::str(line));
  }
  pliant_host host_{};
};

/// Saves plain values and strings, little-endian as the machine has them.
class Writer {
 public:
  explicit Writer(const pliant_writer* sink) : sink_(taken(sink, &pliant_writer::write, "pliant_writer")) {}
  void bytes(const void* data, size_t size) const {
    const int32_t status = sink_.write(sink_.context, data, size);
    if (status != PLIANT_OK) throw Failure(status, "the host could not take the state");
  }
  template <class V>
  requires std::is_trivially_copyable_v<V>
  void value(const V& v) const { bytes(&v, sizeof(v)); }
  void text(const std::string& s) const {
    value(static_cast<uint64_t>(s.size()));
    bytes(s.data(), s.size());
  }

 private:
  pliant_writer sink_;
};

/// Reads what Writer wrote; throws PLIANT_DATA_LOSS when bytes are missing or left over.
class Reader {
 public:
  explicit Reader(const pliant_reader* source) : source_(taken(source, &pliant_reader::read, "pliant_reader")) {}
  void bytes(void* data, size_t size) const {
    auto* to = static_cast<unsigned char*>(data);
    while (size > 0) {
      uint64_t got = 0;
      const int32_t status = source_.read(source_.context, to, size, &got);
      if (status != PLIANT_OK) throw Failure(status, "the host could not read the state");
      if (got == 0 || got > size) throw Failure(PLIANT_DATA_LOSS, "the state ends too early");
      to += got;
      size -= static_cast<size_t>(got);
    }
  }
  template <class V>
  requires std::is_trivially_copyable_v<V>
  [[nodiscard]] V value() const {
    V v{};
    bytes(&v, sizeof(v));
    return v;
  }
  [[nodiscard]] std::string text() const {
    const auto size = value<uint64_t>();
    if (size > kLongestText)
      throw Failure(PLIANT_DATA_LOSS, "the state is damaged: a text of " + std::to_string(size) + " bytes");
    std::string s(static_cast<size_t>(size), '\0');
    bytes(s.data(), s.size());
    return s;
  }
  void expect_end() const {
    unsigned char byte = 0;
    uint64_t got = 0;
    const int32_t status = source_.read(source_.context, &byte, 1, &got);
    if (status != PLIANT_OK) throw Failure(status, "the host could not read the state");
    if (got != 0) throw Failure(PLIANT_DATA_LOSS, "the state has bytes left over");
  }

 private:
  static constexpr uint64_t kLongestText = uint64_t{1} << 20;
  pliant_reader source_;
};

namespace detail {

template <class T>
concept HasOptions = requires(Options<T>& table) {
  T::options(table);
};
template <class T>
concept HasStart = requires(T& plugin, const Host& host) {
  plugin.start(host);
};
template <class T>
concept HasState = requires(T& plugin, const T& constant, Writer& out, Reader& in) {
  constant.save(out);
  plugin.load(in);
};
template <class T>
concept HasExtension = requires(T& plugin, const char* id) {
  { plugin.extension(id) } -> std::convertible_to<const void*>;
};

template <class T>
const Options<T>& table() {
  static const auto kTable = [] {
    auto made = std::make_unique<Options<T>>();
    if constexpr (HasOptions<T>) T::options(*made);
    return made;
  }();
  return *kTable;
}

/// What `self` points to on the border: the author's object, and what an adapter keeps beside it.
template <class T>
struct Plain {
  T plugin;
};

template <class T, class Instance>
struct Lifecycle {
  static int32_t create(const pliant_host* host, const pliant_option_values* values, void** self,
                        pliant_error* error) noexcept {
    return guarded(error, [&] {
      *self = nullptr;
      auto made = std::make_unique<Instance>();
      table<T>().apply(*values, made->plugin);
      if constexpr (HasStart<T>) made->plugin.start(Host(host));
      *self = made.release();
    });
  }
  static void destroy(void* self) noexcept { delete static_cast<Instance*>(self); }
  static int32_t save(void* self, const pliant_writer* sink, pliant_error* error) noexcept {
    return guarded(error, [&] {
      if constexpr (HasState<T>) {
        Writer out(sink);
        static_cast<const Instance*>(self)->plugin.save(out);
      }
    });
  }
  /// T::load must fill temporaries first, and throw before it changes anything of its own.
  static int32_t load(void* self, const pliant_reader* source, pliant_error* error) noexcept {
    return guarded(error, [&] {
      if constexpr (HasState<T>) {
        Reader in(source);
        static_cast<Instance*>(self)->plugin.load(in);
      }
    });
  }
  static const void* extension(void* self, const char* id) noexcept {
    if constexpr (HasExtension<T>) {
      try {
        return static_cast<Instance*>(self)->plugin.extension(id);
      } catch (...) {
        return nullptr;
      }
    }
    return nullptr;
  }
};

/// The record of plugin class T; nullptr when its option table cannot be built.
template <class T, class Instance>
const pliant_plugin* record(const char* kind, const void* vtable, const char* name, const char* version,
                            const char* summary) noexcept {
  try {
    static const pliant_plugin kRecord = [&] {
      pliant_plugin made{};
      made.struct_size = sizeof(pliant_plugin);
      made.abi_minor = PLIANT_ABI_MINOR;
      made.min_host_minor = 0;
      made.option_count = static_cast<uint32_t>(table<T>().rows().size());
      made.option_stride = sizeof(pliant_option);
      made.options = table<T>().rows().data();
      made.kind = kind;
      made.name = name;
      made.version = version;
      made.summary = summary;
      made.create = &Lifecycle<T, Instance>::create;
      made.destroy = &Lifecycle<T, Instance>::destroy;
      if constexpr (HasState<T>) {
        made.save = &Lifecycle<T, Instance>::save;
        made.load = &Lifecycle<T, Instance>::load;
      }
      made.vtable = vtable;
      made.extension = &Lifecycle<T, Instance>::extension;
      return made;
    }();
    return &kRecord;
  } catch (...) {
    return nullptr;
  }
}

}  // namespace detail
}  // namespace pliant::sdk

/// Exports class `Type` as the plugin of this library. Used by the macros of the kinds.
#define PLIANT_DETAIL_EXPORT(Type, adapter, kind, name, version, summary)                                           \
  extern "C" PLIANT_PLUGIN_EXPORT const pliant_plugin* pliant_plugin_entry_v1(void) {                               \
    using Adapter = ::pliant::sdk::detail::adapter<Type>;                                                           \
    return ::pliant::sdk::detail::record<Type, Adapter::Instance>(kind, Adapter::vtable(), name, version, summary); \
  }
