// Configs for C.
#include <string_view>

#include "handles.hpp"
#include "structs.hpp"

namespace {

using pliant::capi::given;
using pliant::capi::require;

pliant::ConfigNeeds needs_of(const char* words) {
  pliant::ConfigNeeds needs;
  std::string_view left = words == nullptr ? "" : words;
  while (!left.empty()) {
    const size_t end = std::min(left.find(' '), left.size());
    if (end > 0) needs.emplace(left.substr(0, end));
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  return needs;
}

std::vector<std::string> texts_of(const char* const* texts, uint64_t count, const char* name) {
  std::vector<std::string> made;
  for (const char* const text : pliant::capi::given_array(texts, count, name)) {
    require(text, name);
    made.emplace_back(text);
  }
  return made;
}

/// Options, understood.
struct Wanted {
  explicit Wanted(const pliant_config_options_t* given_options) {
    const auto options = pliant::capi::read_or_default(given_options, "options");
    pliant::capi::check_flags(options.flags, PLIANT_CONFIG_NO_ENVIRONMENT, "options");
    needs = needs_of(options.needs);
    overrides.sets = texts_of(options.sets, options.set_count, "options.sets");
    for (std::string& dir : texts_of(options.plugin_dirs, options.plugin_dir_count, "options.plugin_dirs"))
      overrides.plugin_dirs.emplace_back(std::move(dir));
    overrides.read_environment = (options.flags & PLIANT_CONFIG_NO_ENVIRONMENT) == 0;
    if (options.name != nullptr) name = options.name;
  }

  pliant::ConfigNeeds needs;
  pliant::ConfigOverrides overrides;
  std::string name = "pliant.toml";
};

/// What `find` says of [app] `key`, or `otherwise`.
template <class Value, class Find>
int32_t app_value(const pliant_config_t* config, const char* key, Value otherwise, Value* value, pliant_error_t* error,
                  Find&& find) {
  return pliant::capi::answer(error, [&] {
    const pliant::Config& known = given(config).config;
    require(key, "key");
    require(value, "value");
    *value = static_cast<Value>(find(known).value_or(otherwise));
  });
}

}  // namespace

int32_t pliant_config_open(const char* file, const pliant_config_options_t* options, pliant_config_t** config,
                           pliant_error_t* error) {
  return pliant::capi::hand_out(config, error, [&] {
    require(file, "file");
    const Wanted wanted(options);
    return std::make_unique<pliant_config_t>(pliant::Config::open(file, wanted.needs, wanted.overrides));
  });
}

int32_t pliant_config_parse(const char* toml, uint64_t bytes, const pliant_config_options_t* options,
                            pliant_config_t** config, pliant_error_t* error) {
  return pliant::capi::hand_out(config, error, [&] {
    const auto text = pliant::capi::given_array(toml, bytes, "toml");
    const Wanted wanted(options);
    return std::make_unique<pliant_config_t>(
        pliant::Config::parse({text.data(), text.size()}, wanted.needs, wanted.overrides, wanted.name));
  });
}

int32_t pliant_config_free(pliant_config_t* config) {
  return pliant::capi::free_any(config);
}

int32_t pliant_config_run(const pliant_config_t* config, pliant_run_options_t* run, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const pliant::RunOptions& known = given(config).config.run();
    pliant_run_options_t made{};
    made.deterministic = known.deterministic ? 1 : 0;
    made.seed = known.seed;
    made.workers = known.workers;
    made.epochs = known.epochs;
    made.max_steps = known.max_steps;
    made.snapshot_every = known.snapshot_every;
    pliant::capi::write(run, made, "run");
  });
}

int32_t pliant_config_app_int(const pliant_config_t* config, const char* key, int64_t otherwise, int64_t* value,
                              pliant_error_t* error) {
  return app_value(config, key, otherwise, value, error,
                   [&](const pliant::Config& known) { return known.app_int(key); });
}

int32_t pliant_config_app_float(const pliant_config_t* config, const char* key, double otherwise, double* value,
                                pliant_error_t* error) {
  return app_value(config, key, otherwise, value, error,
                   [&](const pliant::Config& known) { return known.app_float(key); });
}

int32_t pliant_config_app_bool(const pliant_config_t* config, const char* key, int32_t otherwise, int32_t* value,
                               pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const pliant::Config& known = given(config).config;
    require(key, "key");
    require(value, "value");
    *value = known.app_bool(key).value_or(otherwise != 0) ? 1 : 0;
  });
}

int32_t pliant_config_app_text(const pliant_config_t* config, const char* key, const char* otherwise,
                               const char** value, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const pliant_config_t& known = given(config);
    require(key, "key");
    require(value, "value");
    std::optional<std::string> text = known.config.app_string(key);
    if (!text) {
      *value = otherwise;
      return;
    }
    const std::lock_guard lock(known.mutex);
    *value = known.texts.emplace(key, std::move(*text)).first->second.c_str();
  });
}

int32_t pliant_config_check_app(const pliant_config_t* config, const char* const* keys, uint64_t count,
                                pliant_error_t* error) {
  return pliant::capi::answer(error, [&] { given(config).config.check_app_keys(texts_of(keys, count, "keys")); });
}

int32_t pliant_config_resolved(const pliant_config_t* config, const char** toml, uint64_t* bytes,
                               pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const pliant_config_t& known = given(config);
    require(toml, "toml");
    const std::lock_guard lock(known.mutex);
    if (!known.resolved) known.resolved = known.config.resolved_toml();
    *toml = known.resolved->c_str();
    if (bytes != nullptr) *bytes = known.resolved->size();
  });
}
