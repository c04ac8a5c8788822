// Configs for C.
#include <limits>
#include <memory>
#include <string_view>
#include <utility>

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

/// NaN where it is not set.
double value_or_none(const std::optional<double>& value) {
  return value.value_or(std::numeric_limits<double>::quiet_NaN());
}

}  // namespace

namespace pliant::capi {

LentTexts::~LentTexts() {
  for (const Lent* at = first_; at != nullptr;) delete std::exchange(at, at->next);
}

const std::string* LentTexts::found(const Lent* first, std::string_view name) {
  const Lent* at = first;
  while (at != nullptr && at->name != name) at = at->next;
  return at == nullptr ? nullptr : &at->text;
}

const std::string* LentTexts::find(std::string_view name) const {
  return found(first_.load(std::memory_order_acquire), name);
}

const std::string& LentTexts::lend(std::string_view name, std::string text) {
  const Lent* first = first_.load(std::memory_order_acquire);
  auto made = std::make_unique<Lent>(Lent{std::string(name), std::move(text), nullptr});
  do {
    if (const std::string* const known = found(first, name); known != nullptr) return *known;
    made->next = first;
  } while (!first_.compare_exchange_weak(first, made.get(), std::memory_order_acq_rel));
  return made.release()->text;
}

}  // namespace pliant::capi

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
    *value = known.texts.lend(key, std::move(*text)).c_str();
  });
}

int32_t pliant_config_check_app(const pliant_config_t* config, const char* const* keys, uint64_t count,
                                pliant_error_t* error) {
  return pliant::capi::answer(error, [&] { given(config).config.check_app_keys(texts_of(keys, count, "keys")); });
}

int32_t pliant_config_refuse_app(const pliant_config_t* config, const char* key, const char* problem,
                                 pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const pliant::Config& known = given(config).config;
    require(key, "key");
    require(problem, "problem");
    known.refuse_app(key, problem);
  });
}

int32_t pliant_config_has(const pliant_config_t* config, const char* section, int32_t* has, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const pliant::Config& known = given(config).config;
    require(section, "section");
    require(has, "has");
    *has = known.has(section) ? 1 : 0;
  });
}

int32_t pliant_config_use(const pliant_config_t* config, const char* section, const char** name,
                          pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const pliant::Config& known = given(config).config;
    require(section, "section");
    require(name, "name");
    *name = known.use(section).c_str();
  });
}

int32_t pliant_config_with(const pliant_config_t* config, const char* const* sets, uint64_t count,
                           pliant_config_t** changed, pliant_error_t* error) {
  return pliant::capi::hand_out(changed, error, [&] {
    const pliant::Config& known = given(config).config;
    return std::make_unique<pliant_config_t>(known.with(texts_of(sets, count, "sets")));
  });
}

int32_t pliant_config_data(const pliant_config_t* config, pliant_data_options_t* data, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const pliant::DataOptions& known = given(config).config.data();
    pliant_data_options_t made{};
    made.text = known.text.c_str();
    made.lengths = known.lengths.c_str();
    made.loss_tokens = known.loss_tokens.c_str();
    made.length_column = known.length_column.c_str();
    made.loss_tokens_column = known.loss_tokens_column.c_str();
    pliant::capi::write(data, made, "data");
  });
}

int32_t pliant_config_lr(const pliant_config_t* config, pliant_lr_options_t* lr, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const pliant_config_t& handle = given(config);
    const pliant::LrOptions& known = handle.config.lr();
    pliant_lr_options_t made{};
    made.base_lr = known.base_lr;
    made.base_batch = known.base_batch;
    made.unit = known.unit.c_str();
    made.optimizer = known.optimizer.c_str();
    made.schedule_count = handle.schedule.size();
    made.schedule = handle.schedule.data();
    made.then_count = handle.then.size();
    made.then = handle.then.data();
    made.beta1 = value_or_none(known.beta1);
    made.beta2 = value_or_none(known.beta2);
    made.epsilon = value_or_none(known.epsilon);
    made.weight_decay = value_or_none(known.weight_decay);
    made.ema = value_or_none(known.ema);
    pliant::capi::write(lr, made, "lr");
  });
}

int32_t pliant_config_resolved(const pliant_config_t* config, const char** toml, uint64_t* bytes,
                               pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const pliant_config_t& known = given(config);
    require(toml, "toml");
    const std::string* text = known.resolved.find("");
    if (text == nullptr) text = &known.resolved.lend("", known.config.resolved_toml());
    *toml = text->c_str();
    if (bytes != nullptr) *bytes = text->size();
  });
}
