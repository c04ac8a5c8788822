// Configs for Python.
#include <filesystem>
#include <system_error>
#include <tuple>

#include "bindings.hpp"
#include "failure.hpp"

namespace pliant::python {

namespace {

/// What the package can ask of a config that names no needs: the sections whose plugins have defaults, and the policy
/// where one is named.
ConfigNeeds needs_of(const Config& config) {
  ConfigNeeds needs{"sampler", "balancer", "lr"};
  if (config.has("elasticity")) needs.insert("elasticity");
  return needs;
}

ConfigOverrides overrides_of(std::vector<std::string> sets, const std::vector<std::string>& dirs,
                             bool read_environment) {
  ConfigOverrides made;
  made.sets = std::move(sets);
  for (const std::string& dir : dirs) made.plugin_dirs.emplace_back(dir);
  made.read_environment = read_environment;
  return made;
}

using GivenNeeds = std::optional<std::vector<std::string>>;

template <class Open>
PyConfig opened(const GivenNeeds& given, Open&& open) {
  return without_gil([&] {
    const ConfigNeeds needs = given ? ConfigNeeds(given->begin(), given->end()) : needs_of(open(ConfigNeeds{}));
    return PyConfig{needs, std::make_shared<const Config>(open(needs))};
  });
}

PyConfig open_config(const nb::object& file, const GivenNeeds& needs, std::vector<std::string> sets,
                     const std::vector<std::string>& dirs, bool read_environment) {
  const std::filesystem::path path = path_from(file);
  const ConfigOverrides overrides = overrides_of(std::move(sets), dirs, read_environment);
  return opened(needs, [&](const ConfigNeeds& known) { return Config::open(path, known, overrides); });
}

PyConfig parse_config(const std::string& toml, const GivenNeeds& needs, std::vector<std::string> sets,
                      const std::vector<std::string>& dirs, bool read_environment, const std::string& name) {
  const ConfigOverrides overrides = overrides_of(std::move(sets), dirs, read_environment);
  return opened(needs, [&](const ConfigNeeds& known) { return Config::parse(toml, known, overrides, name); });
}

std::string resolved(const PyConfig& self) {
  return without_gil([&] { return self.config->resolved_toml(); });
}

/// Where the plugins lie that came with this package: in that of a wheel, which is a prefix, or beside the module.
std::string own_plugins() {
  namespace fs = std::filesystem;
  const auto module = nb::cast<std::string>(nb::module_::import_("pliant._core").attr("__file__"));
  std::error_code failure;
  const fs::path folder = fs::weakly_canonical(module, failure).parent_path();
  const fs::path of_prefix = folder / "lib/pliant/plugins-1";
  return (fs::is_directory(of_prefix, failure) ? of_prefix : folder / "plugins-1").string();
}

/// `toml` with the plugins of this package in place of those in `theirs`, which came with the one that wrote it and may
/// be on another machine.
std::string with_own_plugins(std::string toml, const std::string& theirs) {
  const std::string own = own_plugins();
  if (own == theirs) return toml;
  for (const char end : {'/', '"'}) {
    const std::string from = '"' + theirs + end;
    const std::string to = '"' + own + end;
    for (size_t at = toml.find(from); at != std::string::npos; at = toml.find(from, at + to.size()))
      toml.replace(at, from.size(), to);
  }
  return toml;
}

using PickledConfig = std::tuple<std::string, std::vector<std::string>, nb::object, std::string>;

void bind_options(nb::module_& module) {
  nb::class_<RunOptions>(module, "RunOptions")
      .def_ro("workers", &RunOptions::workers)
      .def_ro("seed", &RunOptions::seed)
      .def_ro("epochs", &RunOptions::epochs)
      .def_ro("max_steps", &RunOptions::max_steps)
      .def_ro("deterministic", &RunOptions::deterministic)
      .def_ro("reduce_bucket", &RunOptions::reduce_bucket)
      .def_ro("snapshot_every", &RunOptions::snapshot_every)
      .def_ro("keep_snapshots", &RunOptions::keep_snapshots)
      .def_ro("log_dir", &RunOptions::log_dir)
      .def_ro("name", &RunOptions::name);
  nb::class_<LrOptions>(module, "LrOptions")
      .def_ro("base_lr", &LrOptions::base_lr)
      .def_ro("base_batch", &LrOptions::base_batch)
      .def_ro("unit", &LrOptions::unit)
      .def_ro("schedule", &LrOptions::schedule)
      .def_ro("then", &LrOptions::then)
      .def_ro("optimizer", &LrOptions::optimizer)
      .def_ro("beta1", &LrOptions::beta1)
      .def_ro("beta2", &LrOptions::beta2)
      .def_ro("epsilon", &LrOptions::epsilon)
      .def_ro("weight_decay", &LrOptions::weight_decay)
      .def_ro("ema", &LrOptions::ema)
      .def_ro("groups", &LrOptions::groups);
}

}  // namespace

std::filesystem::path path_from(const nb::object& file) {
  const nb::object bytes = nb::module_::import_("os").attr("fsencode")(file);
  const auto text = nb::borrow<nb::bytes>(bytes);
  const std::string_view path(text.c_str(), text.size());
  if (path.find('\0') != std::string_view::npos) throw nb::value_error("embedded null byte");
  return path;
}

nb::object path_for_python(const std::filesystem::path& path) {
  const std::string& text = path.native();
  nb::object made = nb::steal(PyUnicode_DecodeFSDefaultAndSize(text.data(), static_cast<Py_ssize_t>(text.size())));
  if (!made.is_valid()) throw nb::python_error();
  return made;
}

int64_t positive(int64_t count, const char* name) {
  if (count >= 1) return count;
  throw wrong(std::string(name) + " is " + std::to_string(count) + "; it must be at least 1");
}

void bind_config(nb::module_& module) {
  using namespace nb::literals;
  bind_options(module);
  nb::class_<PyConfig>(module, "Config")
      .def_static("open", &open_config, "file"_a, nb::kw_only(), "needs"_a = nb::none(),
                  "sets"_a = std::vector<std::string>(), "plugin_dirs"_a = std::vector<std::string>(),
                  "read_environment"_a = true)
      .def_static("parse", &parse_config, "toml"_a, nb::kw_only(), "needs"_a = nb::none(),
                  "sets"_a = std::vector<std::string>(), "plugin_dirs"_a = std::vector<std::string>(),
                  "read_environment"_a = true, "name"_a = "pliant.toml")
      .def(
          "with_sets",
          [](const PyConfig& self, const std::vector<std::string>& sets) {
            return without_gil([&] {
              return PyConfig{self.needs, std::make_shared<const Config>(self.config->with(sets))};
            });
          },
          "sets"_a)
      .def_prop_ro("file", [](const PyConfig& self) { return path_for_python(self.config->file()); })
      .def_prop_ro(
          "run", [](const PyConfig& self) -> const RunOptions& { return self.config->run(); },
          nb::rv_policy::reference_internal)
      .def_prop_ro(
          "lr", [](const PyConfig& self) -> const LrOptions& { return self.config->lr(); },
          nb::rv_policy::reference_internal)
      .def(
          "has", [](const PyConfig& self, const std::string& section) { return self.config->has(section); },
          "section"_a)
      .def(
          "use", [](const PyConfig& self, const std::string& section) { return self.config->use(section); },
          "section"_a)
      .def(
          "app_int", [](const PyConfig& self, const std::string& key) { return self.config->app_int(key); }, "key"_a)
      .def(
          "app_float", [](const PyConfig& self, const std::string& key) { return self.config->app_float(key); },
          "key"_a)
      .def(
          "app_bool", [](const PyConfig& self, const std::string& key) { return self.config->app_bool(key); }, "key"_a)
      .def(
          "app_string", [](const PyConfig& self, const std::string& key) { return self.config->app_string(key); },
          "key"_a)
      .def(
          "check_app_keys",
          [](const PyConfig& self, const std::vector<std::string>& known) { self.config->check_app_keys(known); },
          "known"_a)
      .def("resolved_toml", &resolved)
      .def("__repr__",
           [](const PyConfig& self) {
             return nb::str("<pliant.Config of {}>").format(path_for_python(self.config->file()));
           })
      .def("__getstate__",
           [](const PyConfig& self) {
             return PickledConfig{resolved(self),
                                  {self.needs.begin(), self.needs.end()},
                                  path_for_python(self.config->file()),
                                  own_plugins()};
           })
      .def("__setstate__", [](PyConfig& self, const PickledConfig& state) {
        const auto& [toml, needs, file, plugins] = state;
        new (&self)
            PyConfig(parse_config(with_own_plugins(toml, plugins), needs, {}, {}, false, path_from(file).string()));
      });
}

}  // namespace pliant::python
