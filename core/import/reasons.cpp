// Why a key of a DeepSpeed config has no place in a pliant.toml.
#include <algorithm>
#include <array>
#include <utility>

#include "import/draft.hpp"

namespace pliant::config::deepspeed {

namespace {

using Reason = std::pair<std::string_view, std::string_view>;

constexpr std::string_view kPlan = "the plan decides it, for every world size: `pliant plan`";
constexpr std::string_view kPrecision = "precision belongs to the training program";
constexpr std::string_view kGradients = "gradients are the training program's";
constexpr std::string_view kModel = "the model belongs to the training program";
constexpr std::string_view kCommunication = "communication is the accelerator plugin's: [accelerator]";
constexpr std::string_view kLoader = "the training program loads its own data";
constexpr std::string_view kMonitor = "monitoring belongs to the training program; `pliant run --json` reports the job";
constexpr std::string_view kProfile = "Pliant has no such profile; the ledger of a run records its steps";
constexpr std::string_view kCheckpoint = "Pliant takes its own snapshots: run.snapshot_every";
constexpr std::string_view kCurriculum = "Pliant has no curriculum; a sampler orders the sequences";
constexpr std::string_view kZero = "the coordinator has no such option";
constexpr std::string_view kTiers =
    "Pliant has no tier below the device: parameters and optimizer state stay on the device";
constexpr std::string_view kShards = "Pliant decides how shards are cut, sent and updated";
constexpr std::string_view kZeroOptimizer = "any optimizer of the program works on shards";

/// By dotted path; what lies below a path shares its reason.
constexpr auto kReasons = std::to_array<Reason>({
    {"train_batch_size", kPlan},
    {"train_micro_batch_size_per_gpu", kPlan},
    {"gradient_accumulation_steps", kPlan},
    {"elasticity.ignore_non_elastic_batch_info",
     "not needed: batch sizes next to the block are listed here, not refused"},
    {"optimizer", "the optimizer itself is the training program's; [lr] has its family and rate"},
    {"scheduler", "DeepSpeed and Pliant know no such key here"},
    {"fp16", kPrecision},
    {"bf16", kPrecision},
    {"bfloat16", kPrecision},
    {"fp8", kPrecision},
    {"amp", kPrecision},
    {"torch_autocast", kPrecision},
    {"data_types", kPrecision},
    {"grad_accum_dtype", kPrecision},
    {"fp32_allreduce", kPrecision},
    {"communication_data_type", kPrecision},
    {"seq_parallel_communication_data_type", kPrecision},
    {"gradient_clipping", "gradients are the training program's: it clips them between the commit and its update"},
    {"prescale_gradients", "Pliant adds summed losses and divides once: nothing is scaled before"},
    {"gradient_predivide_factor", "Pliant adds summed losses and divides once: nothing is scaled before"},
    {"sparse_gradients", kGradients},
    {"disable_allgather", kCommunication},
    {"allgather_bucket_size", kCommunication},
    {"reduce_bucket_size", kCommunication},
    {"comms_logger", kMonitor},
    {"zero_optimization", kZero},
    {"zero_optimization.offload_param", kTiers},
    {"zero_optimization.offload_optimizer", kTiers},
    {"zero_optimization.cpu_offload", kTiers},
    {"zero_optimization.cpu_offload_params", kTiers},
    {"zero_optimization.cpu_offload_use_pin_memory", kTiers},
    {"zero_optimization.super_offload", kTiers},
    {"zero_optimization.sub_group_size", kShards},
    {"zero_optimization.contiguous_gradients", kShards},
    {"zero_optimization.reduce_scatter", kShards},
    {"zero_optimization.allgather_partitions", kShards},
    {"zero_optimization.round_robin_gradients", kShards},
    {"zero_optimization.allgather_bucket_size", kCommunication},
    {"zero_optimization.overlap_comm", "gathers and reduces always overlap with the computation"},
    {"zero_optimization.stage3_gather_16bit_weights_on_model_save", kCheckpoint},
    {"zero_optimization.gather_16bit_weights_on_model_save", kCheckpoint},
    {"zero_optimization.load_from_fp32_weights", kCheckpoint},
    {"zero_optimization.elastic_checkpoint", kCheckpoint},
    {"zero_allow_untested_optimizer", kZeroOptimizer},
    {"zero_force_ds_cpu_optimizer", kZeroOptimizer},
    {"activation_checkpointing", kModel},
    {"sparse_attention", kModel},
    {"compression_training", kModel},
    {"quantize_training", kModel},
    {"tensor_parallel", kModel},
    {"sequence_parallel_size", kModel},
    {"data_parallel_size", kPlan},
    {"pipeline", kModel},
    {"hybrid_engine", kModel},
    {"compile", kModel},
    {"eigenvalue", kModel},
    {"progressive_layer_drop", kModel},
    {"aio", kTiers},
    {"swap_tensor", kTiers},
    {"curriculum_learning", kCurriculum},
    {"data_efficiency", "Pliant has no such part; of data efficiency it supports dynamic batching"},
    {"data_efficiency.seed", "used only by dynamic batching"},
    {"data_efficiency.data_routing", "Pliant does not route tokens: the model belongs to the training program"},
    {"data_efficiency.data_sampling.curriculum_learning", kCurriculum},
    {"data_efficiency.data_sampling.num_epochs", "set run.epochs, or let the training program count"},
    {"data_efficiency.data_sampling.num_workers", kLoader},
    {"data_efficiency.data_sampling.pin_memory", kLoader},
    {"data_efficiency.data_sampling.dynamic_batching.verbose", "use pliant -v for more output"},
    {"data_efficiency.data_sampling.dynamic_batching.sentence_picking_order",
     "DeepSpeed ignores this old name and takes the order of the data; set sampler.seqlen.sequence_picking_order if "
     "you "
     "want another"},
    {"dataloader_drop_last", "the sampler decides about the last batch: tail, strict"},
    {"steps_per_print", kMonitor},
    {"wall_clock_breakdown", kProfile},
    {"memory_breakdown", kProfile},
    {"dump_state", kProfile},
    {"flops_profiler", kProfile},
    {"tensorboard", kMonitor},
    {"wandb", kMonitor},
    {"comet", kMonitor},
    {"csv_monitor", kMonitor},
    {"monitor_config", kMonitor},
    {"autotuning", "Pliant does not tune by trial; `pliant plan` computes the batch"},
    {"checkpoint", kCheckpoint},
    {"load_universal_checkpoint", kCheckpoint},
    {"use_node_local_storage", kCheckpoint},
    {"nebula", kCheckpoint},
    {"vocabulary_size", kModel},
    {"local_rank", "a worker finds its rank in the environment: LOCAL_RANK"},
    {"master_addr", "[rendezvous] brings the workers together"},
    {"master_port", "[rendezvous] brings the workers together"},
    {"launcher", "`pliant run` starts the workers: run.command, run.workers"},
    {"launcher_args", "`pliant run` starts the workers: run.command, run.workers"},
});

}  // namespace

std::string_view known_reason(std::string_view path) {
  const auto found =
      std::find_if(kReasons.begin(), kReasons.end(), [&](const Reason& reason) { return reason.first == path; });
  return found == kReasons.end() ? std::string_view{} : found->second;
}

std::vector<std::string> known_keys() {
  std::vector<std::string> keys{"elasticity"};
  for (const auto& [path, reason] : kReasons) {
    if (path.find('.') == std::string_view::npos) keys.emplace_back(path);
  }
  return keys;
}

}  // namespace pliant::config::deepspeed
