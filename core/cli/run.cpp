// pliant run
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string_view>
#include <utility>

#include "base/environment.hpp"
#include "base/inside.hpp"
#include "base/stderr_writer.hpp"
#include "commands.hpp"
#include "config/state.hpp"
#include "exit_codes.hpp"
#include "output.hpp"
#include "pliant/job.hpp"
#include "run_view.hpp"
#include "values.hpp"

namespace pliant::cli {

namespace {

/// What `pliant run` was asked for.
struct RunArguments {
  std::string file;
  std::vector<std::string> injections;
  std::string resume_dir;
  std::string log_dir;
  std::string trace;
  std::string launcher;
  int64_t workers = 0;
  int listener = -1;
  bool resume = false;
  bool resume_or_begin = false;
  bool show_logs = false;
};

// A key of the config that a flag of its own sets.
void set_key(ConfigOverrides& overrides, std::string_view key, const std::string& toml) {
  overrides.sets.push_back(fmt::format("{}={}", key, toml));
}

bool live_terminal() {
  const char* terminal = environment_variable("TERM");
  return ::isatty(STDERR_FILENO) != 0 && terminal != nullptr && std::string_view(terminal) != "dumb" &&
         environment_variable("CI") == nullptr;
}

constexpr const char* kNoFile = "pliant run";  // what messages call the config of a run that has none
constexpr const char* kEmptyConfig = "config_version = 1\n";

/// The config's text and how messages call it. Without a file a program needs none, as under torchrun.
std::pair<std::string, std::string> config_of(const Invocation& invocation, const RunArguments& arguments,
                                              const ConfigOverrides& overrides) {
  if (!arguments.file.empty()) {
    const Config read = Config::open(arguments.file, {}, overrides);
    return {detail::inside(read).opening.text, arguments.file};  // a pipe can be read but once
  }
  if (invocation.program.empty()) {
    throw Error(Status::kInvalidArgument,
                "CONFIG is missing: name the job's pliant.toml, or a program after --, which needs no config: pliant "
                "run --workers 2 -- python3 train.py",
                Origin::kInput);
  }
  return {kEmptyConfig, kNoFile};
}

int run_opened(const Invocation& invocation, RunArguments& arguments) {
  ConfigOverrides overrides = invocation.overrides;
  if (arguments.workers > 0) set_key(overrides, "run.workers", std::to_string(arguments.workers));
  if (!arguments.log_dir.empty()) set_key(overrides, "run.log_dir", arguments.log_dir);
  JobOptions options;
  options.command = invocation.program;
  options.resume = arguments.resume;
  options.show_logs = arguments.show_logs || arguments.file.empty();  // as torchrun
  options.take_signals = true;
  if (!arguments.resume_dir.empty()) options.resume_dir = arguments.resume_dir;
  if (!arguments.trace.empty()) options.trace = arguments.trace;
  options.resume_or_begin = arguments.resume_or_begin;
  for (const std::string& text : arguments.injections) options.injections.push_back(parse_injection(text));
  // A foreign program may do without these sections; one that is there must be right before a worker starts.
  const auto [text, name] = config_of(invocation, arguments, overrides);
  const Config read = Config::parse(text, {}, overrides, name);
  const Config config = Config::parse(text, job_needs(read), overrides, name);
  if (arguments.listener >= 0) {
    struct stat input {};
    const bool has_starter =
        !arguments.launcher.empty() && ::fstat(STDIN_FILENO, &input) == 0 && S_ISFIFO(input.st_mode);
    options.calling =
        CallingWorkers{std::exchange(arguments.listener, -1), arguments.launcher, has_starter ? STDIN_FILENO : -1};
  }
  static const UnblockedStderr kUnblocked;  // to the end of the process: no job waits for whoever reads its progress
  RunView view(live_terminal(), invocation.quiet, colored(invocation));
  const JobSummary summary = run_job(config, options, view);
  view.finish_line();
  const int written = emit(invocation.json ? summary_json(summary) + "\n" : summary_table(summary));
  const JobOutcome outcome = summary.end.outcome;
  const bool is_said = outcome != JobOutcome::kFailed && outcome != JobOutcome::kNoWorldSize;
  if (!is_said) complain(invocation, fmt::format("pliant: error: {}", summary.end.reason));
  const int exit_code = exit_code_of_job(summary.end);
  return exit_code != 0 ? exit_code : written;
}

int run(const Invocation& invocation, RunArguments& arguments) {
  try {
    return run_opened(invocation, arguments);
  } catch (const Error& error) {
    if (arguments.listener >= 0) refuse_calls(std::exchange(arguments.listener, -1), error);
    throw;
  }
}

}  // namespace

void add_run(CLI::App& app, Invocation& invocation) {
  CLI::App* command =
      app.add_subcommand("run", "Run a job: start its workers and keep training when workers die or join");
  auto arguments = std::make_shared<RunArguments>();
  command->add_option(
      "CONFIG", arguments->file,
      "The job's pliant.toml. May be left out where a program comes after --: it is then run as torchrun "
      "runs it, with what it prints shown");
  command->add_option("--workers", arguments->workers, "Number of workers; same as --set run.workers=N")
      ->check(within(int64_t{1}, int64_t{4096}))
      ->type_name("N");
  command
      ->add_option(
          "--inject", arguments->injections,
          "Kill a rank or the agent on purpose: kill:rank=R,step=S[,at=forward|reduce|vote|commit|apply|copy|snapshot] "
          "or kill:agent,step=S; in fast mode also at=bucket, in sharded jobs at=gather|scatter|finish. Write stop: "
          "instead of kill: to stop a "
          "rank with SIGSTOP, or leave:rank=R,step=S to have a rank leave once that step is committed. Repeatable")
      ->check(offers_words({"kill:rank=", "kill:agent,step=", "stop:rank=", "leave:rank="}))
      ->type_name("WHAT")
      ->take_all()
      ->expected(1);
  CLI::Option* resume =
      command->add_option("--resume", arguments->resume_dir, "Resume the latest run of this job, or the run in DIR")
          ->type_name("[DIR]")
          ->expected(0, 1);
  command
      ->add_option("--log-dir", arguments->log_dir,
                   "Directory for ledger, logs and snapshots of runs; same as --set run.log_dir=DIR")
      ->type_name("DIR");
  command
      ->add_option("--trace", arguments->trace,
                   "Write a trace of all ranks to FILE: visits of modules, actions of the coordinator, transfers, "
                   "waits and live bytes. Open it in ui.perfetto.dev or read it with `pliant trace`")
      ->type_name("FILE");
  command->add_flag("--resume-or-begin", arguments->resume_or_begin,
                    "Resume the latest run of this job where there is one, else begin a new one");
  CLI::Option* listener =
      command
          ->add_option(
              "--listen", arguments->listener,
              "No worker is started: the job waits until as many as --workers says, of another launcher, have called "
              "at FD, a listening Unix socket. For launchers, as `pliant.elastic.Session.attach` is under torchrun")
          ->check(within(0, 1 << 20))
          ->type_name("FD");
  command
      ->add_option("--launcher", arguments->launcher,
                   "With --listen: a name of this start of the launcher. Where the latest run has it, that is resumed. "
                   "The job ends where standard input is a pipe that ends before all workers have called")
      ->needs(listener)
      ->type_name("NAME");
  command->add_flag("--show-logs", arguments->show_logs, "Show the output of the workers, each line with its rank");
  add_json(*command, invocation);
  command->footer(
      "The program and its arguments after -- replace [run] command.\n\n"
      "Examples:\n"
      "  pliant run samples/tinylm/pliant.toml\n"
      "  pliant run samples/tinylm/pliant.toml --inject kill:rank=2,step=20\n"
      "  pliant run samples/tinylm/pliant.toml --resume --workers 2\n"
      "  pliant run samples/sharded_trainer/pliant.toml --trace trace.json\n"
      "  pliant run pliant.toml -- python3 train.py --lr 0.1\n"
      "  pliant run --workers 2 -- python3 train.py\n\n"
      "Ctrl-C once commits the step, writes a snapshot and ends with 130; again, a second later, ends at once.\n\n"
      "Variables of the workers:\n"
      "  as torchrun sets them: RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, GROUP_RANK, GROUP_WORLD_SIZE, "
      "ROLE_NAME, ROLE_RANK, ROLE_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, TORCHELASTIC_RUN_ID, "
      "TORCHELASTIC_RESTART_COUNT, TORCHELASTIC_MAX_RESTARTS, TORCHELASTIC_USE_AGENT_STORE, "
      "TORCH_NCCL_ASYNC_ERROR_HANDLING, and OMP_NUM_THREADS=1 where it is not set and there are several\n"
      "  the plan, where the config has [elasticity]; for programs that do not use the embedding API, which are "
      "started again whenever it changes:\n"
      "    PLIANT_GLOBAL_BATCH        rows of a step, over all ranks\n"
      "    PLIANT_MICRO_BATCH         rows that a rank computes at once\n"
      "    PLIANT_ACCUMULATION_STEPS  micro-batches of this rank's share of a step\n"
      "    PLIANT_ROW_FIRST           the first row of this rank's share, from 0 on\n"
      "    PLIANT_ROW_COUNT           rows of this rank's share; it may be 0\n"
      "  PLIANT_RUN_DIR, where the run keeps config, logs and snapshots, and PLIANT_PROGRAM, the words after --\n"
      "  for the embedding API alone: PLIANT_AGENT_FD, PLIANT_PROTOCOL, PLIANT_INCARNATION, PLIANT_ELASTICITY_DIGEST");
  command->callback([&invocation, arguments, resume] {
    arguments->resume = resume->count() > 0;
    invocation.action = [&invocation, arguments] { return run(invocation, *arguments); };
  });
}

}  // namespace pliant::cli
