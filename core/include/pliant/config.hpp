// Config: one parsed and checked pliant.toml, with the plugins that it names already found and their options checked.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace pliant {

/// [run]: the job. Times in seconds. Defaults are those of the members.
struct RunOptions {
  int64_t workers = 1;               ///< worker processes on this node, 1..4096
  std::vector<std::string> command;  ///< program and arguments; a program with a `/` in it counts from working_dir.
                                     ///< What follows `--` on the command line replaces it
  int64_t seed = 1;                  ///< of row order and weights, >= 0
  int64_t epochs = 1;                ///< >= 1
  int64_t max_steps = 0;             ///< stop after that many steps; 0 = after the last epoch
  bool deterministic = false;        ///< bitwise the same weights at every world size
  int64_t reduce_bucket = int64_t{4} << 20;  ///< without deterministic: bytes of the gradient that travel while others
                                             ///< are computed (Step::add_piece); 0 = none
  std::string on_loss =
      "replace";  ///< "replace": start a fresh worker; "shrink": go on with fewer; "stop": end the job
  std::string on_nonfinite = "stop";  ///< a NaN or Inf in a gradient or loss: "stop": commit nothing and end the job;
                                      ///< "skip": commit the step without its update; "ignore": do not look
  int64_t digest_every = 1;           ///< steps between two comparisons of the ranks' states; 0 = never
  int64_t max_restarts = 3;           ///< workers (or groups, for a foreign program) started again in one job
  std::string attach = "auto";    ///< "required": the program must use the embedding API; "never": it does not; "auto":
                                  ///< told by what it does
  double start_timeout_s = 120;   ///< a worker that has not attached by then is killed
  double hang_timeout_s = 300;    ///< without progress for so long, the ranks that hold the others up are killed
  double stop_grace_s = 15;       ///< from SIGTERM to SIGKILL when a foreign program is ended
  int64_t snapshot_every = 0;     ///< steps between snapshots; 0 = only at Ctrl-C and at the end
  int64_t keep_snapshots = 2;     ///< older ones are removed
  std::string keep_best;          ///< but for the one with the best value of this metric; empty: none
  std::string best_is = "least";  ///< or "most"
  std::string working_dir;        ///< of the workers; relative to the config file; empty: that of `pliant run`
  std::string log_dir =
      "pliant-runs";  ///< where runs leave ledger, logs and snapshots; relative to the working directory
  std::string name;   ///< of the job; default: the config's file name, or its folder's when that is "pliant.toml"
};

/// [data]: where samples come from. Paths are absolute once read.
struct DataOptions {
  std::string text;                                ///< a UTF-8 text file for the samples that train on text
  std::string lengths;                             ///< tokens of each sequence: a file that read_lengths reads
  std::string loss_tokens;                         ///< tokens of each sequence that have a loss: the same; empty = all
  std::string length_column = "length";            ///< of `lengths`, where that is .jsonl
  std::string loss_tokens_column = "loss_tokens";  ///< of `loss_tokens`, where that is .jsonl
};

/// [lr], the part that is not the rules' own. The rules form a chain: schedule, use, then.
struct LrOptions {
  double base_lr = 1e-3;              ///< the rate that suits base_batch
  double base_batch = 0;              ///< in `unit`; 0 = the mean batch of the first epoch
  std::string unit = "loss_tokens";   ///< rows (or packs, the same), sequences, tokens or loss_tokens
  std::vector<std::string> schedule;  ///< rules that come before `use`
  std::vector<std::string> then;      ///< rules that come after it
  std::string optimizer = "unknown";  ///< its family; rules that need to know it refuse "unknown"
  std::optional<double> beta1;        ///< what suits base_batch; SGD: momentum. Likewise:
  std::optional<double> beta2;
  std::optional<double> epsilon;
  std::optional<double> weight_decay;
  std::optional<double> ema;  ///< decay of the average of the weights
  /// [lr.groups]: base rates of groups of parameters by name, each above 0, in place of base_lr.
  std::map<std::string, double> groups;
};

/// [balancer], the part that is not the plugins' own: what a row costs.
struct BalancerOptions {
  int64_t cost_per_token = 1;   ///< a row costs cost_per_token * sum(l) + cost_per_square * sum(l^2)
  int64_t cost_per_square = 0;  ///< over the lengths l of its sequences; only the ratio of the two matters
  bool fit = false;             ///< take both from measured times, once there are enough
  std::string costs;            ///< a .npy file with the cost of each sequence, in place of the two; absolute once read
  std::string row_costs;        ///< the same with the cost of each row that is given to the sampler
};

/// [accelerator], the part that is not the plugins' own.
struct AcceleratorOptions {
  std::optional<int64_t> device;  ///< of every rank of this machine; unset: the local rank modulo the devices
};

/// [coordinator], the part that is not the plugins' own. Without the section jobs train replicated.
struct CoordinatorOptions {
  std::optional<int64_t> budget;      ///< bytes that may be whole on a device at once; 0 or unset: no limit
  std::string compute_dtype = "f32";  ///< of whole parameters: "f32" or "bf16"
  std::string reduce_dtype = "f32";   ///< of whole gradients, and on their way to their owners: "f32" or "bf16"
  bool poison = false;                ///< NaN takes the place of whole parameters that are released
};

/// An option that has a flag of its own on a command line.
struct FlagOverride {
  std::string flag;  ///< as typed, for messages: "--workers 4"
  std::string set;   ///< what it means: "run.workers=4"
};

/// What may change a config beside its file. Precedence: flag > `sets` > environment > file > default.
struct ConfigOverrides {
  std::vector<FlagOverride> flags;
  std::vector<std::string> sets;  ///< "run.workers=2": dotted key, TOML value (a bare word counts as string)
  std::vector<std::filesystem::path> plugin_dirs;  ///< --plugin-dir, searched after `path` and before [plugins] dirs
  bool read_environment = true;                    ///< PLIANT__A__B and PLIANT_PLUGIN_PATH
};

/// The plugins that a caller needs, by the section that chooses them: "elasticity", "lr", ... Other sections are
/// checked, but their plugins are not opened.
using ConfigNeeds = std::set<std::string, std::less<>>;

namespace detail {
struct ConfigState;
struct Inside;
}  // namespace detail

/// Immutable, cheap to copy, safe to share between threads.
class Config {
 public:
  /// Reads and checks `file`. Throws Error (kInvalidArgument, kInput) with every finding, sorted by position, or for
  /// a need that is the section of no kind of plugins; kNotFound (kInput) for a missing file; kPlugin when a named
  /// plugin is missing or refused.
  static Config open(const std::filesystem::path& file, const ConfigNeeds& needs = {},
                     const ConfigOverrides& overrides = {});

  /// As open, for a config that is no file. Paths in it count from the working directory; messages call it `name`.
  static Config parse(std::string_view toml, const ConfigNeeds& needs = {}, const ConfigOverrides& overrides = {},
                      std::string_view name = "pliant.toml");
  /// The same text with the same overrides and needs, and `sets` after them, as if given by --set.
  [[nodiscard]] Config with(const std::vector<std::string>& sets) const;

  [[nodiscard]] const std::filesystem::path& file() const;
  [[nodiscard]] const RunOptions& run() const;
  [[nodiscard]] const DataOptions& data() const;
  [[nodiscard]] const LrOptions& lr() const;
  [[nodiscard]] const BalancerOptions& balancer() const;
  [[nodiscard]] const AcceleratorOptions& accelerator() const;
  [[nodiscard]] const CoordinatorOptions& coordinator() const;
  /// True when the file (or an override) has the section.
  [[nodiscard]] bool has(std::string_view section) const;
  /// What `use` says in the section of a kind of plugins.
  [[nodiscard]] const std::string& use(std::string_view section) const;

  /// [app] values by dotted key; nullopt when absent; throws with position when the type differs.
  [[nodiscard]] std::optional<int64_t> app_int(std::string_view key) const;
  [[nodiscard]] std::optional<double> app_float(std::string_view key) const;
  [[nodiscard]] std::optional<bool> app_bool(std::string_view key) const;
  [[nodiscard]] std::optional<std::string> app_string(std::string_view key) const;
  /// For programs: throws (kInvalidArgument, kInput) with the position of every key of [app] that is not in `known`.
  void check_app_keys(const std::vector<std::string>& known) const;
  /// For programs: throws (kInvalidArgument, kInput) "app.key problem" with the position of [app] `key`.
  [[noreturn]] void refuse_app(std::string_view key, std::string_view problem) const;

  /// The effective config as one TOML document that opens anywhere to the same config: paths absolute, overrides folded
  /// in.
  [[nodiscard]] std::string resolved_toml() const;

 private:
  friend struct detail::Inside;
  explicit Config(std::shared_ptr<const detail::ConfigState> state) : state_(std::move(state)) {}
  std::shared_ptr<const detail::ConfigState> state_;
};

/// What with_plugin sets, each as for Config::with: `use`, the file where the config has one, and the options that are
/// carried over. Empty where `section` has that plugin already.
std::vector<std::string> sets_for_plugin(const Config& config, const std::string& section, const std::string& name);

/// `config` with `use = name` in `section` ("elasticity", "sampler", ...), which was opened: options that both plugins
/// have and somebody set are carried over, unless the config has them for `name`. A name with a `/` is that of a plugin
/// file, from the working directory. Throws as Config::open.
Config with_plugin(const Config& config, const std::string& section, const std::string& name);

}  // namespace pliant
