// pliant trace
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "base/whole_file.hpp"
#include "commands.hpp"
#include "model_file.hpp"
#include "output.hpp"
#include "pliant/error.hpp"
#include "trace/views.hpp"
#include "values.hpp"

namespace pliant::cli {

namespace {

struct TraceArguments {
  std::string file;
  std::string figure_file;
  TraceChoice choice;
};

int show_trace(const Invocation& invocation, const TraceArguments& arguments) {
  const TraceStudy study(arguments.file, sharded_trace_in(arguments.file, ""), arguments.choice);
  if (!arguments.figure_file.empty()) {
    const Result<> written = write_whole(arguments.figure_file, trace_figure(study, arguments.choice), true);
    if (!written) throw written.error().with_message("--plot: " + written.error().message());
  }
  return emit(invocation.json ? trace_json(study) : trace_text(study));
}

}  // namespace

void add_trace(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand(
      "trace", "Show what a sharded job gathered, compared with the minimum, and why its visits waited");
  const auto given = std::make_shared<TraceArguments>();
  command->add_option("FILE", given->file, "The file that `pliant run --trace FILE` wrote")->required();
  command
      ->add_option("--plot", given->figure_file,
                   "Plot the timeline of one step of one rank into this SVG file: program, exchange, waits and bytes")
      ->type_name("FILE.svg")
      ->check(figure_file());
  command->add_option("--rank", given->choice.rank, "Report this rank only. Default: all ranks; the plot shows rank 0")
      ->check(within(int64_t{0}, int64_t{1} << 40))
      ->type_name("R");
  command
      ->add_option("--step", given->choice.step,
                   "Report this step only. Default: all steps; the plot shows the last completely recorded one")
      ->check(within(int64_t{0}, int64_t{1} << 40))
      ->type_name("S");
  add_json(*command, invocation);
  command->footer(
      "`minimum` is the least that any coordinator could have gathered for the same visits within the same budget; "
      "`without budget` the same without a budget. `hidden` is the part of the exchange during which the program "
      "neither waited for a parameter nor ended a pass or a step. Learning steps are the first two of a generation "
      "and those with passes in a new order. The same file opens in https://ui.perfetto.dev.\n\n"
      "Examples:\n"
      "  pliant run samples/sharded_trainer/pliant.toml --trace trace.json\n"
      "  pliant trace trace.json\n"
      "  pliant trace trace.json --step 7 --rank 1 --plot step7.svg\n\n"
      "Every command takes --set, --plugin-dir, --color, -v and -q: see pliant --help");
  command->callback(
      [&invocation, given] { invocation.action = [&invocation, given] { return show_trace(invocation, *given); }; });
}

}  // namespace pliant::cli
