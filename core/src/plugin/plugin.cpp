// Opening a plugin: trust, load by Boost.DLL, checks; and what the host offers to it.
#include "plugin/plugin.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <atomic>
#include <boost/dll/shared_library.hpp>
#include <memory>
#include <mutex>
#include <system_error>
#include <utility>

#include "base/log.hpp"
#include "base/no_fork.hpp"
#include "pliant/sdk/sized.hpp"
#include "plugin/elf_check.hpp"
#include "plugin/record_check.hpp"
#include "plugin/state.hpp"
#include "plugin/trust.hpp"

namespace pliant::plugin {

namespace fs = std::filesystem;
namespace dll = boost::dll;

namespace {

/// Held while a library is loaded or unloaded. The loader has a lock of its own, which thread sanitizers cannot see: to
/// them, a thread that reads a plugin and closes it would meet one that opens it at the same address.
std::recursive_mutex& loading() {  // recursive, for a library's initialisers may open a plugin
  static constinit std::atomic<std::recursive_mutex*> mutex{nullptr};
  return made_once(mutex, [] { return std::make_unique<std::recursive_mutex>(); });
}

}  // namespace

struct Plugin::Library {
  Library() = default;
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library() {
    try {
      const NoFork whole;
      const std::lock_guard lock(loading());
      handle.unload();
    } catch (const Error&) {  // the loader is asked nothing any more, not by the handle either
      new dll::shared_library(std::move(handle));
    }
  }

  dll::shared_library handle;
};

namespace {

constexpr int kNewestMajorLookedFor = 16;  // to say what a plugin of another major was built for

tl::unexpected<Error> refused(const fs::path& file, const std::string& why) {
  return failed(Status::kFailedPrecondition, fmt::format("plugin {} is refused: {}", file.string(), why),
                Origin::kPlugin);
}

void host_log(void* context, int32_t level, pliant_str message) {
  if (level < PLIANT_LOG_DEBUG || level > PLIANT_LOG_ERROR || message.data == nullptr) return;
  static_cast<const Log*>(context)->write(static_cast<LogLevel>(level),
                                          std::string_view(message.data, static_cast<size_t>(message.size)));
}

/// This host has no services beyond the log yet; a plugin that asks gets NULL and goes on without.
const void* host_extension(void*, const char*) {
  return nullptr;
}

std::string missing_entry(const dll::shared_library& library) {
  for (int major = 0; major <= kNewestMajorLookedFor; ++major) {
    const std::string symbol = fmt::format("pliant_plugin_entry_v{}", major);
    if (major != PLIANT_ABI_MAJOR && library.has(symbol)) {
      return fmt::format("it is built for plugin ABI {}, this host offers {}; rebuild it against this host's SDK",
                         major, PLIANT_ABI_MAJOR);
    }
  }
  return "it lacks the symbol " PLIANT_PLUGIN_ENTRY_SYMBOL
         ": it is not a pliant plugin, or its version script hides the symbol";
}

/// `<section>-<name>.pliant.so` promises a name; another file name promises nothing.
std::string file_name_objection(const fs::path& file, const Kind& kind, std::string_view name) {
  const std::string file_name = file.filename().string();
  const std::string prefix = std::string(kind.section) + "-";
  constexpr std::string_view kSuffix = ".pliant.so";
  if (file_name.rfind(prefix, 0) != 0 || file_name.size() <= prefix.size() + kSuffix.size()) return {};
  if (file_name.compare(file_name.size() - kSuffix.size(), kSuffix.size(), kSuffix) != 0) return {};
  const std::string promised = file_name.substr(prefix.size(), file_name.size() - prefix.size() - kSuffix.size());
  return promised == name ? std::string()
                          : fmt::format("its file name says '{}', but its record says '{}'", promised, name);
}

const pliant_plugin* call_entry(const dll::shared_library& library, std::string& why) {
  try {
    return library.get<const pliant_plugin*()>(PLIANT_PLUGIN_ENTRY_SYMBOL)();
  } catch (const std::exception& thrown) {
    why = fmt::format("its entry threw: {}", thrown.what());
  } catch (...) {
    why = "its entry threw";
  }
  return nullptr;
}

}  // namespace

Result<std::shared_ptr<const Plugin>> Plugin::open(const fs::path& file, const Kind& kind) try {
  const NoFork whole;  // user database, loader and the plugin's own statics have locks
  return opened(file, kind);
} catch (const Error& cut) {
  return refused(file, cut.message());
}

Result<std::shared_ptr<const Plugin>> Plugin::opened(const fs::path& file, const Kind& kind) {
  Result<fs::path> canonical = trusted_file(file);
  if (!canonical) return failed(std::move(canonical));
  if (const std::string why = elf_objection(*canonical); !why.empty()) return refused(file, why);

  auto state = std::make_unique<State>();
  state->file = *canonical;
  state->kind = kind;
  state->library = std::make_unique<Library>();
  dll::shared_library& library = state->library->handle;
  boost::dll::fs::error_code failure;
  ::dlerror();
  {
    const std::lock_guard lock(loading());
    library.load(*canonical, dll::load_mode::rtld_now | dll::load_mode::rtld_local, failure);
  }
  if (failure) {
    const char* words = ::dlerror();  // Boost's own code always reads "Bad file descriptor"
    return refused(file, words == nullptr ? failure.message() : fmt::format("cannot load it: {}", words));
  }
  if (!library.has(PLIANT_PLUGIN_ENTRY_SYMBOL)) return refused(file, missing_entry(library));

  std::string why;
  const pliant_plugin* const record = call_entry(library, why);
  if (why.empty()) why = record_objection(record, kind, state->options);
  if (why.empty()) why = file_name_objection(*canonical, kind, record->name);
  if (!why.empty()) return refused(file, why);
  state->record = sdk::widened(*record);
  state->table = sdk::widened(record->vtable, static_cast<uint32_t>(kind.table_size));

  state->log = std::make_unique<Log>(fmt::format("pliant.plugin.{}", record->name));
  state->host = {sizeof(pliant_host), PLIANT_ABI_MINOR, state->log.get(), &host_log, &host_extension};
  return std::shared_ptr<const Plugin>(new Plugin(std::move(state)));
}

Plugin::State::State() = default;
Plugin::State::~State() = default;

Plugin::Plugin(std::unique_ptr<State> state) : state_(std::move(state)) {}
Plugin::~Plugin() = default;
const pliant_plugin& Plugin::record() const {
  return state_->record;
}
const void* Plugin::table() const {
  return state_->table.data();
}
const fs::path& Plugin::file() const {
  return state_->file;
}
const Kind& Plugin::kind() const {
  return state_->kind;
}
const std::vector<pliant_option>& Plugin::options() const {
  return state_->options;
}
const pliant_host& Plugin::host() const {
  return state_->host;
}

}  // namespace pliant::plugin
