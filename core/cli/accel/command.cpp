// pliant accel
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <memory>
#include <set>

#include "accel/actions.hpp"
#include "accel/bench.hpp"
#include "base/suggest.hpp"
#include "base/whole_file.hpp"
#include "commands.hpp"
#include "config/open.hpp"
#include "config/values/value.hpp"
#include "names.hpp"
#include "output.hpp"
#include "pliant/error.hpp"
#include "plugin/plugin.hpp"
#include "plugin/search.hpp"
#include "stop_signals.hpp"
#include "values.hpp"

namespace pliant::cli {

namespace {

struct AccelArguments {
  std::string file;
  std::string name;
  std::string sizes;
  std::string sections;
  std::string figure_file;
  BenchQuestion question;
};

constexpr uint64_t kLargest = uint64_t{16} << 30;

/// "64KiB", "64K" or "65536".
uint64_t size_of(const std::string& word) {
  uint64_t number = 0;
  const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), number);
  const std::string unit(end, static_cast<size_t>(word.data() + word.size() - end));
  uint64_t factor = 0;
  if (unit.empty() || unit == "B") factor = 1;
  if (unit == "K" || unit == "KiB") factor = uint64_t{1} << 10;
  if (unit == "M" || unit == "MiB") factor = uint64_t{1} << 20;
  if (unit == "G" || unit == "GiB") factor = uint64_t{1} << 30;
  if (problem == std::errc() && factor > 0 && number > 0 && number <= kLargest / factor) return number * factor;
  throw Error(
      Status::kInvalidArgument,
      fmt::format("--sizes '{}': give sizes from 1 B to 16 GiB with a unit (B, KiB, MiB or GiB), e.g. 4KiB,1MiB,64MiB",
                  word),
      Origin::kInput);
}

std::vector<uint64_t> sizes_in(const std::string& list) {
  std::set<uint64_t> sizes;
  for (const std::string& word : names_in("--sizes", list, "4KiB,1MiB,64MiB")) sizes.insert(size_of(word));
  return {sizes.begin(), sizes.end()};
}

std::vector<std::string> sections_in(const std::string& list) {
  std::vector<std::string> known(std::begin(kBenchSections), std::end(kBenchSections));
  if (list.empty()) return known;
  const std::vector<std::string> wanted = names_in("--only", list, "copy,collectives");
  for (const std::string& name : wanted) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const auto near = nearest(name, known);
    throw Error(Status::kInvalidArgument,
                fmt::format("--only '{}': no such part; parts: {}{}", name, fmt::join(known, ", "),
                            near.empty() ? "" : fmt::format("; did you mean '{}'?", near.front())),
                Origin::kInput);
  }
  std::vector<std::string> chosen;  // in the order in which they run, each once
  for (const std::string& name : known) {
    if (std::find(wanted.begin(), wanted.end(), name) != wanted.end()) chosen.push_back(name);
  }
  return chosen;
}

/// Told before minutes of measuring, not after.
void require_folder_of(const std::filesystem::path& file) {
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
  std::error_code unknown;
  if (std::filesystem::is_directory(folder, unknown) && ::access(folder.c_str(), W_OK) == 0) return;
  throw Error(Status::kInvalidArgument,
              fmt::format("--plot: cannot write {}: the folder {} does not exist or is not writable", file.string(),
                          folder.string()),
              Origin::kInput);
}

int bench_accelerator(const Invocation& invocation, const AccelArguments& arguments) {
  BenchQuestion question = arguments.question;
  if (!arguments.sizes.empty()) question.sizes = sizes_in(arguments.sizes);
  question.sections = sections_in(arguments.sections);
  if (!arguments.figure_file.empty()) require_folder_of(arguments.figure_file);
  const Config config = accelerator_config(invocation, read_config(invocation, arguments.file), arguments.name);
  BenchStudy study;
  {
    ProgressLine progress(invocation);
    const StopSignals signals;
    study = study_accelerator(config, question, progress);
  }
  if (!arguments.figure_file.empty()) {
    const Result<> written = write_whole(arguments.figure_file, bench_figure(study), true);
    if (!written) throw written.error().with_message("--plot: " + written.error().message());
  }
  return emit(invocation.json ? bench_json(study) : bench_text(study));
}

constexpr const char* kCommon = "\n\nEvery command takes --set, --plugin-dir, --color, -v and -q: see pliant --help";

void add_list(CLI::App& accel, Invocation& invocation) {
  CLI::App& list = *accel.add_subcommand("list", "List the accelerators and their devices");
  const auto given = std::make_shared<AccelArguments>();
  list.add_option("--config", given->file, "Also search the [plugins] dirs of this config file")->type_name("FILE");
  add_json(list, invocation);
  list.footer(std::string("Example:\n  pliant accel list --plugin-dir ./build/plugins") + kCommon);
  list.callback([&invocation, given] {
    invocation.action = [&invocation, given] { return list_accelerators(invocation, given->file); };
  });
}

void add_bench(CLI::App& accel, Invocation& invocation) {
  CLI::App& bench = *accel.add_subcommand("bench", "Measure copies, latencies, reductions and collectives of a device");
  const auto given = std::make_shared<AccelArguments>();
  BenchQuestion& question = given->question;
  bench.add_option("NAME", given->name, "Name of the accelerator; pliant accel list shows them")
      ->check(offers_plugins("accelerator"))
      ->required();
  bench
      .add_option("--device", question.device,
                  "Device number of rank 0; the other ranks take the next devices. Default: 0")
      ->check(within(0, 1 << 20))
      ->type_name("N");
  bench
      .add_option("--ranks", question.ranks,
                  "Number of ranks, each its own process, for the collectives. Default: 4 on CPUs, else one per "
                  "device, at most 4")
      ->check(within(1, 1024))
      ->type_name("N");
  bench.add_option("--sizes", given->sizes, "Sizes to measure. Default: 4KiB,64KiB,1MiB,16MiB,64MiB")
      ->type_name("SIZE,...");
  bench
      .add_option("--only", given->sections,
                  "Measure only these parts: copy, latency, alloc, reduce, collectives, overlap")
      ->check(offers_words({"copy", "latency", "alloc", "reduce", "collectives", "overlap"}))
      ->type_name("PART,...");
  CLI::Option* repeated =
      bench.add_option("--repeat", question.repetitions, "Number of repetitions of each measurement")
          ->check(within(1, 1000000))
          ->type_name("N");
  bench
      .add_option("--min-time", question.min_time_s,
                  "Repeat each measurement for this many seconds, 5 to 2000 times. Default: 0.1")
      ->check(within(1e-6, 3600.0))
      ->type_name("SECONDS")
      ->excludes(repeated);
  bench.add_option("--plot", given->figure_file, "Plot bandwidth against size into this SVG file")
      ->type_name("FILE.svg")
      ->check(figure_file());
  bench.add_option("--config", given->file, "Take options and [plugins] dirs from this config file")->type_name("FILE");
  add_json(bench, invocation);
  bench.footer(std::string("Examples:\n"
                           "  pliant accel bench host\n"
                           "  pliant accel bench host --only collectives --ranks 2 --sizes 4KiB,64MiB\n"
                           "  pliant accel bench host --set accelerator.host.chunk_bytes=65536 --plot bandwidth.svg") +
               kCommon);
  bench.callback([&invocation, given] {
    invocation.action = [&invocation, given] { return bench_accelerator(invocation, *given); };
  });
}

}  // namespace

ConfigText read_config(const Invocation& invocation, const std::filesystem::path& file) {
  if (file.empty()) return {};
  return {file, or_throw(config::open_state(file, {}, invocation.overrides))->opening.text};
}

std::optional<ChosenAccelerator> chosen_accelerator(const Invocation& invocation, const ConfigText& given) {
  const config::StatePtr state = or_throw(config::open_text(given.text, given.file, {}, invocation.overrides));
  const auto text_of = [&](const char* key) -> std::string {
    const config::Value* section = state->root.find("accelerator");
    const config::Value* value = section == nullptr ? nullptr : section->find(key);
    return value != nullptr && value->type == config::Value::Type::kString ? value->text : "";
  };
  const std::string path = text_of("path");
  if (path.empty()) return std::nullopt;
  return ChosenAccelerator{text_of("use"),
                           (std::filesystem::absolute(given.file).parent_path() / path).lexically_normal()};
}

Config accelerator_config(const Invocation& invocation, const ConfigText& given, const std::string& name) {
  const ConfigNeeds needs{"accelerator"};
  ConfigOverrides overrides = invocation.overrides;
  overrides.flags.push_back({"accelerator " + name, "accelerator.use=" + config::toml_quoted(name)});
  if (given.file.empty()) return Config::parse("config_version = 1\n[accelerator]\n", needs, overrides);
  const auto chosen = chosen_accelerator(invocation, given);
  if (chosen && chosen->name != name) {  // the file's path is that of another one
    const auto search = or_throw(config::open_text(given.text, given.file, {}, invocation.overrides))->search;
    const auto found = or_throw(plugin::find(search, *plugin::kind_of("accelerator"), name));
    overrides.flags.push_back({"accelerator " + name, "accelerator.path=" + config::toml_quoted(found.string())});
  }
  return Config::parse(given.text, needs, overrides, given.file.string());
}

void add_accel(CLI::App& app, Invocation& invocation) {
  CLI::App& command = *app.add_subcommand("accel", "List accelerators, or measure the speed of one");
  command.require_subcommand(1);
  command.footer(std::string("Example:\n  pliant accel bench host") + kCommon);
  add_list(command, invocation);
  add_bench(command, invocation);
}

}  // namespace pliant::cli
