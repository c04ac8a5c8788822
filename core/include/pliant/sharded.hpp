// ShardedModel: parameters, gradients and optimizer state cut over the ranks of a job. A parameter is whole on a rank
// only while the rank uses it; the coordinator that [coordinator] names decides when.
//
//   pliant::Session session = pliant::Session::attach();
//   pliant::ShardedModel model(session, {"adamw.first_moment", "adamw.second_moment"});
//   const auto weight = model.add(pliant::ParameterSpec{.name = "up.weight", .shape = {512, 128}, .initialise = ...});
//   const auto root = model.add(pliant::ModuleSpec{.name = "model"});
//   const auto up = model.add(pliant::ModuleSpec{.name = "up", .parent = root, .own = {weight}});
//   session.start(dataset, model, rest);                     // rest: a pliant::TrainingState for the small remainder
//   while (pliant::Step* step = session.next()) {
//     const bool computed = step->attempt([&] {
//       for (const pliant::RowRange rows : step->micro_batches()) {
//         model.begin_pass(rows);
//         model.enter(up, pliant::Direction::kForward);      // from here on value(weight) is whole
//         ...                                                // also for a micro-batch without rows: see begin_pass
//         model.leave(up, pliant::Direction::kForward);
//         ...                                                // backward: enter, add to gradient(weight), leave
//         model.end_pass();
//         step->add(rows, loss_sum);
//       }
//     });
//     if (!computed) continue;                               // the group changed
//     if (const auto committed = step->commit()) model.update([&](const pliant::ShardRange& range) { ... });
//   }
//
// The weights that a rank owns are f32, and so are sums of gradients and optimizer state. What is whole may be bf16:
// [coordinator] compute_dtype and reduce_dtype. Every rank makes the same calls in the same order. Calls may come from
// any thread, one at a time: two at once would have another order on every rank, and are refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pliant/accelerator.hpp"
#include "pliant/plan.hpp"

namespace pliant {

class Config;
class Session;

/// Numbers of parameters and modules, from 0, in the order in which they were added.
enum class ParameterId : uint32_t {};
enum class ModuleId : uint32_t {};

struct ParameterSpec {
  std::string name;  ///< unique; letters, digits and any of ".-_/:"
  std::vector<int64_t> shape;
  bool frozen = false;      ///< has no gradient
  bool persistent = false;  ///< the coordinator may keep it whole between its uses
  bool external = false;    ///< used by modules that do not name it: kept until the end of the step, its gradient
                            ///< until the end of the pass
  /// Writes the first values, all of them: called for one parameter after the other, in their order, on every rank, so
  /// that no rank ever holds the model. Called again when a job begins anew. Where ranks write other values those of
  /// rank 0 become everybody's.
  std::function<void(std::span<float> values)> initialise;
};

struct ModuleSpec {
  std::string name;
  std::optional<ModuleId> parent;     ///< none for the first module, the root
  std::vector<ParameterId> own;       ///< another module may have the same one: it is shared
  std::vector<ParameterId> external;  ///< of other modules, used by this one too
  bool leaf = false;                  ///< whole with all below it; modules below are not entered
};

enum class Direction {
  kForward,
  kBackward,
  kRecompute,  ///< forward once more, from inside backward
};

/// A run of elements of one parameter that this rank owns.
struct ShardRange {
  ParameterId parameter{};
  uint64_t first = 0;  ///< element of the parameter
  uint64_t count = 0;
  float* weights = nullptr;         ///< f32 in memory of the rank's device, as all below
  const float* gradient = nullptr;  ///< mean over the loss tokens of the global batch
  std::span<float* const> state;    ///< one for each name that the model was made with
};

/// Bytes of this rank by kind.
struct ShardedMemory {
  uint64_t weights = 0;        ///< its shard, and a copy of it in compute_dtype where that is not f32
  uint64_t state = 0;          ///< of the optimizer
  uint64_t sums = 0;           ///< of gradients that it owns
  uint64_t gathered = 0;       ///< whole parameters, whole gradients and what is on its way, now
  uint64_t gathered_most = 0;  ///< the most of it at once, so far
};

/// Any thread, one call at a time: one that comes while another thread's is under way throws kFailedPrecondition,
/// naming both, and has done nothing. Callbacks, such as that of update, may make calls on their thread. compute_dtype,
/// reduce_dtype, find and squared_gradient_norm may be called beside others, once the session was started.
class ShardedModel {
 public:
  /// `state`: names of what the optimizer keeps for each weight, in f32: letters, digits and any of ".-_/:", none twice
  /// and none "weights", else kInvalidArgument. The config has [coordinator]: throws
  /// kFailedPrecondition (kInput) where it has not, and what the plugin has against its options. A session has one
  /// model: throws kFailedPrecondition (kInput) while another of its lives. A second network, such as a frozen
  /// reference, is a part of the model below a module of its own.
  ShardedModel(Session& session, std::vector<std::string> state);
  ~ShardedModel();
  ShardedModel(ShardedModel&&) noexcept;

  /// Throws what Session::start throws for a coordinator that needs what no host has, such as a tier for shards, so
  /// that it is known before a worker starts: kUnimplemented (kInput) with the position of the option that wants it,
  /// kPlugin where only its answers do, over a small model. Nothing when `config` was opened without "coordinator".
  static void check(const Config& config);

  /// Before Session::start. Throw kInvalidArgument for names, shapes and numbers that are none.
  ParameterId add(ParameterSpec parameter);
  ModuleId add(ModuleSpec module);

  /// Has the first values of all parameters come from a .safetensors file, each from the tensor of its name, which is
  /// f32, bf16 or f16; others in the file are left alone. Of a model in several files `file` is their index,
  /// "model.safetensors.index.json", or the folder with it. After the parameters were added and before Session::start.
  /// Throws kNotFound for a file or a tensor that is not there, kDataLoss for a damaged file or one that lacks what the
  /// index says, kFailedPrecondition for another shape or type, all with Origin::kInput; it has changed nothing then.
  void import_safetensors(const std::filesystem::path& file);

  /// Gives a module other parameters, between two passes, on every rank alike. Throws kInvalidArgument for numbers that
  /// are none, kResourceExhausted where [coordinator] budget does not suffice, and what the coordinator has against it;
  /// it has changed nothing then. What fails after that, as the trace is dropped, gives up the pass that follows.
  void set_parameters(ModuleId module, const std::vector<ParameterId>& own,
                      const std::vector<ParameterId>& external = {});

  /// Begins forward and backward over the next micro-batch of the step in hand, whose rows these are. One without rows
  /// keeps the ranks together while others still compute: the modules are visited all the same, with any input or
  /// none, and gradients are thrown away. Throws kInvalidArgument for other rows.
  void begin_pass(RowRange rows);
  /// The same over several micro-batches of the step, in order: the next ones of Step::micro_batches(), at least one,
  /// as many on every rank. Each module is visited once forward and once backward for all of them, so that what it uses
  /// is gathered twice in all: inside a visit the program goes over the micro-batches. Backward it calls
  /// begin_micro_batch for each. Sums have the bits of a pass for each. Throws kFailedPrecondition, naming the module,
  /// where one is entered more than once in a direction and uses parameters that are neither external nor another
  /// module's, too.
  void begin_pass(std::span<const RowRange> micro_batches);
  /// From now on gradient() is that of micro-batch `number` of the pass, from 0; in a pass over one it may be left out.
  /// A module that enters no others goes through them once in each backward visit, in order, also through those without
  /// rows; its gradients of the one before leave for their owners then, so that one buffer serves all. A gradient that
  /// modules share, of an external parameter, or of a module around others, is kept for each micro-batch until the last
  /// of these modules is left, of an external parameter until end_pass: any order will do there. Throws
  /// kInvalidArgument for a number that is none, kFailedPrecondition for a call out of order; so does leave before the
  /// last was begun.
  void begin_micro_batch(size_t number);
  /// The whole pass over micro-batches without rows, for a program that cannot run its model over nothing: the modules
  /// are visited as they were in the last pass with gradients that this process made, which was over as many
  /// micro-batches, and nothing is computed. Other ranks must make the same visits. Throws kInvalidArgument where one
  /// has rows, kFailedPrecondition where there was no such pass (can_repeat_pass() is false): visit the modules then.
  void repeat_pass(std::span<const RowRange> micro_batches);
  void repeat_pass(RowRange rows);
  [[nodiscard]] bool can_repeat_pass(size_t micro_batches = 1) const;
  /// Begins a pass without gradients: evaluation, generation. All ranks take part.
  void begin_evaluation();
  /// All that the module uses is whole when enter returns, or will be for work that is enqueued on Session::stream()
  /// from then on. Modules nest, but backward the one around may be left before those in it. All ranks enter and leave
  /// the same modules in the same order: one that does not is named, and the job ends. Throw kFailedPrecondition for a
  /// call out of order, kResourceExhausted where [coordinator] budget does not suffice, kPeerLost and kAborted when the
  /// group changes (Step::attempt).
  void enter(ModuleId module, Direction direction);
  void leave(ModuleId module, Direction direction);
  /// Types of what is whole: kF32 or kBF16, as the config says.
  [[nodiscard]] DType compute_dtype() const;
  [[nodiscard]] DType reduce_dtype() const;
  /// The value, of compute_dtype, while it is whole: between enter and leave of a module that uses it. It may lie
  /// elsewhere at the next enter. Throws kFailedPrecondition when it is not whole.
  [[nodiscard]] void* data(ParameterId parameter);
  /// A buffer of reduce_dtype for its whole gradient, zeros at first in each micro-batch; the program adds to it, on
  /// Session::stream() or the CPU, until it leaves, backward, the last of the modules that used it in the pass; of an
  /// external parameter until end_pass. In a pass over several micro-batches until the next one is begun, and ask anew
  /// then. Within a [coordinator] budget its room is there once a module that uses it was entered backward, of an
  /// external parameter once any was: before that throws kFailedPrecondition.
  [[nodiscard]] void* gradient_data(ParameterId parameter);
  /// The same for a program that knows f32 only: throw kFailedPrecondition (kInput) where the config says otherwise.
  [[nodiscard]] float* value(ParameterId parameter);
  [[nodiscard]] float* gradient(ParameterId parameter);
  /// Throws kFailedPrecondition while a module is entered.
  void end_pass();

  /// By hand, outside of passes, in the same order on every rank. prefetch begins to gather; after fetch it is whole,
  /// until release, or until update, which changes it, or the group changes: release does nothing then. Passes in
  /// between use it as it is. Within a budget it takes room that a pass may need, which is refused then.
  void prefetch(ParameterId parameter);
  void fetch(ParameterId parameter);
  void release(ParameterId parameter);

  /// After a commit, before Session::next: the squared norm of the mean gradient over the parameters that have one, the
  /// same bits on every rank and at every world size, and those of squared_norm over the flat gradient. Throws
  /// kFailedPrecondition at any other time, and after a skipped step.
  [[nodiscard]] double squared_gradient_norm() const;
  /// Once after each commit that returned a value: calls `each` for every run of elements that this rank owns and that
  /// is not frozen, in order. Throws kFailedPrecondition at any other time: what is not committed is not applied. Where
  /// the state of the next step is compared ([run] digest_every), it waits for what `each` enqueued and takes digests;
  /// the update after it throws kDataLoss, naming array and chunk, for what has changed since.
  void update(const std::function<void(const ShardRange& range)>& each);

  /// Calls `each` for every run of elements that this rank owns, also of frozen parameters, in order, to read weights
  /// and states: `gradient` is nullptr. Outside of passes and of update, on this rank alone.
  void visit_owned(const std::function<void(const ShardRange& range)>& each);

  /// The parameter of that name.
  [[nodiscard]] std::optional<ParameterId> find(std::string_view name) const;
  /// Copies the whole value, in the f32 of its owners, to `values`. Outside of passes; all ranks take part.
  void read(ParameterId parameter, std::span<float> values);
  /// Gives it the value that all ranks have in `values`, and leaves the optimizer's state as it is. Outside of passes
  /// and not between a commit and its update; every rank, also for a frozen one. The value is in the next snapshot; a
  /// job that goes back to a snapshot before it has not written it. It goes back, too, where a Step::attempt that
  /// reads or writes after the commit is given up: some ranks may have written then. Throws kInvalidArgument for
  /// another number of elements, kFailedPrecondition for a call out of order, also while it is fetched by hand,
  /// kDataLoss as update does.
  void write(ParameterId parameter, std::span<const float> values);
  /// Writes all parameters, f32, as a .safetensors file, on rank 0, one parameter in memory at a time. All ranks take
  /// part, inside Step::attempt where the group may change. A file that is there is replaced once the new one is whole.
  void export_safetensors(const std::filesystem::path& file);

  [[nodiscard]] ShardedMemory memory() const;

  struct State;

 private:
  friend class Session;
  std::unique_ptr<State> state_;
};

}  // namespace pliant
