// The options of one run, as plain structs. docs/config.md describes each key of the file; the fields have the same
// names. Options of features that are not implemented have no field.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/comm/timeouts.h"
#include "core/model/placement.h"
#include "engine/config/keys/choices.h"
#include "engine/config/keys/lr_and_loss_scale_arguments.h"
#include "engine/config/keys/partition_rules.h"
#include "engine/config/keys/recompute_rules.h"
#include "engine/config/keys/task_names.h"
#include "engine/config/keys/tensor_rules.h"
#include "models/program/program_file.h"
#include "pipeline/schedule/kinds/schedule_choice.h"

namespace shardline {

struct ModelOptions {
  std::string path;                                  // Hugging Face directory or .pt2 file; empty: built from `config`
  nlohmann::json config = nlohmann::json::object();  // Hugging Face config keys, raw; override those of `path`
  std::optional<ModelInit> init;                     // unset: pretrained with a path
  // For a program: the inputs of its arguments, by argument; and its loss, see program_use() in
  // engine/config/rules/program_rules.h.
  nlohmann::json inputs = nlohmann::json::object();
  nlohmann::json loss;
  // `path` is a program of torch.export, not a directory.
  bool is_program() const { return is_program_file(path); }
  bool pretrained() const { return init ? *init == ModelInit::pretrained : !path.empty(); }
  bool operator==(const ModelOptions&) const = default;
};

struct DataOptions {
  std::vector<std::string> train;                  // files, relative to the current directory
  std::vector<double> train_weights;               // one for each of these; empty: all samples occur once in an epoch
  std::vector<std::string> validation;             // files
  std::vector<std::string> validation_mismatched;  // files, of mnli
  std::vector<std::string> test;                   // files, for predict
  std::optional<DataName> task_name;  // see engine/config/rules/known_data.h; unset: columns and labels are given
  DataFormat format = DataFormat::automatic;
  std::string text_column = "text";             // in files with columns
  std::optional<std::string> text_pair_column;  // the second text of a pair; unset: samples have one text
  std::string label_column = "label";           // in tasks with labels
  std::string tokens_column = "tokens";         // a list of words, each with a tag
  bool completion_only_loss = false;  // causal-lm: rows are prompts with completions, which alone are predicted
  // For masked words:
  double mlm_probability = 0.15;  // for a token, or for a word
  bool line_by_line = false;      // each line or row is a sample; false: they are joined and cut into samples
  bool whole_word_mask = false;   // the tokens of a word are masked together
  // For sources with targets:
  std::string source_column = "source", target_column = "target";
  std::string prefix;           // put before each source
  int max_target_length = 128;  // tokens of a target
  // For questions about contexts:
  std::string question_column = "question", context_column = "context", answers_column = "answers";
  int doc_stride = 128;                  // tokens that neighbouring windows of a context have in common
  int n_best_size = 20;                  // answers that are considered
  int max_answer_length = 30;            // tokens
  bool version_2_with_negative = false;  // some questions have no answer
  double null_score_diff_threshold =
      0;                           // no answer if its score is larger than that of the best text by more than this
  std::string tokenizer;           // directory, tokenizer.json or "bytes"; empty: that of model.path
  int sequence_length = 1024;      // tokens per sample
  std::optional<Packing> packing;  // for causal-lm; unset: usual_packing()
  std::optional<std::int64_t> max_train_samples;      // unset: all
  std::optional<std::int64_t> max_eval_samples;       // unset: all
  std::optional<std::int64_t> max_predict_samples;    // unset: all
  std::optional<std::int64_t> max_samples_seed;       // seed for choosing these; unset: the first ones are taken
  int validation_split_percentage = 0;                // percentage of the training samples; 0: none
  std::optional<std::int64_t> validation_split_seed;  // seed for choosing these; unset: the first ones are taken

  Packing usual_packing() const { return completion_only_loss ? Packing::none : Packing::wrapped; }
  Packing used_packing() const { return packing.value_or(usual_packing()); }
  bool operator==(const DataOptions&) const = default;
};

// Hugging Face TrainingArguments; a step is an optimizer step.
struct TrainingOptions {
  std::optional<int> global_batch_size;  // samples per step over all replicas; unset: follows from the next two
  std::optional<int> per_device_train_batch_size;  // samples; read_config sets 8 unless global_batch_size is given
  std::optional<int> gradient_accumulation_steps;  // read_config sets 1 unless global_batch_size is given
  int per_device_eval_batch_size = 8;              // samples
  bool auto_find_batch_size = false;               // see engine/plan/batch_size.h
  double num_train_epochs = 3.0;                   // used when max_steps is -1
  int max_steps = -1;                              // -1: num_train_epochs determines it
  double learning_rate = 5e-5;                     // the peak
  OrAdded<RateSchedule> lr_scheduler_type = RateSchedule::linear;
  SchedulerArguments lr_scheduler_kwargs;  // its arguments
  double warmup_steps = 0;                 // steps; below 1: that share of all steps, rounded up
  OrAdded<Optim> optim = Optim::adamw_torch_fused;
  std::optional<std::string> optim_args;  // "momentum=0.9,nesterov=true"
  double weight_decay = 0.0;              // not applied to biases, norms or parameters that match the next key
  std::vector<NamePattern> no_decay_patterns;
  std::vector<NamePattern> trainable;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_epsilon = 1e-8;
  double max_grad_norm = 1.0;   // limit of the L2 norm over the whole model; 0: no clipping
  double max_grad_value = 0.0;  // limit of each element, after max_grad_norm; 0: no clipping
  double label_smoothing_factor = 0;
  std::optional<double> neftune_noise_alpha;                  // scales the noise on the embeddings; unset: none
  LoggingStrategy logging_strategy = LoggingStrategy::steps;  // for console lines; metrics.jsonl has every step
  double logging_steps = 500;  // see engine/config/rules/run_steps.h, also for the next keys
  bool logging_first_step = false;
  std::vector<Tracker> report_to = {Tracker::none};
  EvalStrategy eval_strategy = EvalStrategy::no;
  std::optional<double> eval_steps;  // unset: logging_steps
  double eval_delay = 0;
  bool eval_on_start = false;  // evaluate before step 1
  bool do_eval = false;        // evaluate after the last step
  bool do_predict = false;     // predict on data.test after that
  SaveStrategy save_strategy = SaveStrategy::steps;
  double save_steps = 500;
  std::optional<int> save_total_limit;        // maximum number of checkpoints to keep; unset: all
  bool save_only_model = false;               // checkpoints without the optimizer's state
  bool save_on_each_node = false;             // all of a checkpoint in each directory; see engine/checkpoint/stores.h
  std::optional<std::string> checkpoint_dir;  // where checkpoints are; unset: output_dir
  nlohmann::json resume_from_checkpoint;      // see engine/config/rules/saving_rules.h
  bool resume_with_changes = false;           // continue although settings of the curve differ
  bool load_best_model_at_end = false;
  std::optional<std::string> metric_for_best_model;  // unset: the loss
  std::optional<bool> greater_is_better;             // unset: see larger_is_better()
  std::optional<int> early_stopping_patience;        // evaluations without a gain that end training; unset: none do
  double early_stopping_threshold = 0;               // a gain is more than this
  std::optional<int> max_run_seconds;                // after which a run stops and saves; unset: none
  SamplingStrategy train_sampling_strategy = SamplingStrategy::random;
  std::int64_t seed = 42;
  std::optional<std::int64_t> data_seed;  // unset: seed
  bool dataloader_drop_last = false;      // leave out the short last batch of an epoch
  bool bf16 = false, fp16 = false;        // see engine/config/rules/precision_rules.h, also for the next keys
  bool bf16_full_eval = false, fp16_full_eval = false;
  bool fp32_residual_addition = false;      // half precision: residuals are added in fp32
  bool attention_in_fp32 = false;           // half precision: attention is computed in fp32
  bool query_key_layer_scaling = false;     // fp16: scores are divided by the layer's number until the softmax
  std::optional<double> static_loss_scale;  // for fp16
  std::optional<bool> dynamic_loss_scale;   // for fp16; unset: true without static_loss_scale
  std::optional<LossScaleArguments> dynamic_loss_args;
  std::optional<bool> tf32;                  // GPUs: products of fp32 values round them to TF32; unset: false
  bool full_determinism = false;             // refused on GPUs; CPUs are deterministic with either
  std::optional<bool> disable_tqdm;          // true: lines in place of progress bars
  int ddp_timeout = kDefaultTimeoutSeconds;  // seconds that a rank waits for others; see core/comm/timeouts.h
  bool use_cpu = false;                      // read_config turns it into DeviceChoice::cpu
  bool overwrite_output_dir = false;
  bool operator==(const TrainingOptions&) const = default;
};

// A degree that is "auto". engine/plan/layout_search.h chooses it before anything else reads it.
inline constexpr int kAuto = 0;

// SageMaker model parallel options.
struct SmpOptions {
  int pipeline_parallel_degree = 1;        // P
  int tensor_parallel_degree = 1;          // T
  int microbatches = 1;                    // per accumulation step and replica
  std::optional<int> active_microbatches;  // maximum in flight; unset: what the schedule needs
  ScheduleSource pipeline;                 // `interleaved` is 1F1B
  int virtual_pipeline_degree = 1;         // chunks per stage with interleaved_1f1b
  TensorRules tensor_parallel_layers;
  Optimize optimize = Optimize::memory;
  Placement placement_strategy;
  std::optional<bool> ddp;               // unset: true if T or D > 1
  bool auto_partition = true;            // false: layers are placed by default_partition and manual_partition
  std::optional<int> default_partition;  // stage of the layers that manual_partition does not name
  PartitionByHand manual_partition;
  std::optional<double> memory_weight;  // weight of memory against time in the automatic partition; unset: 0
  bool load_partition = false;          // layers are placed as in partition_file
  std::string partition_file;           // plan.json of an earlier run
  bool prescaled_batch = false;         // true: the replica's batch is not multiplied by T
  RecomputeRules activation_checkpointing;
  bool offload_activations = false;  // activations are kept outside of the device
  OffloadScope offload_scope = OffloadScope::checkpointed;
  int activation_loading_horizon = 4;       // they are back this number of instructions before their use
  std::optional<std::string> offload_path;  // directory; unset: output_dir
  bool offload_optimizer_states = false;    // optimizer states and fp32 masters are on the host; accelerators only
  bool shard_optimizer_state = false;       // each replica holds a part of it (ZeRO-1)
  bool shard_gradients = false;             // and a part of the gradients (ZeRO-2)
  int sharded_data_parallel_degree = 1;  // replicas that share one copy of all of these and the weights (MiCS, ZeRO-3)
  double sdp_reduce_bucket_size = 5e8;   // elements; see optim/flat/flat_layout.h
  double sdp_param_persistence_threshold = 1e6;  // parameters of fewer elements stay whole
  double sdp_max_live_parameters = 1e9;          // elements that are whole at a time
  bool sdp_hierarchical_allgather = true;        // between hosts, then inside each; see core/comm/hierarchical_gather.h
  CommunicatorChoice ddp_dist_backend = CommunicatorChoice::automatic;  // nccl: the run is refused without it

  // Whether each of the T ranks holds a part of the rows at layer borders.
  bool sequence_parallel() const { return optimize == Optimize::memory && tensor_parallel_degree > 1; }
  bool operator==(const SmpOptions&) const = default;
};

struct MpiOptions {
  bool enabled = true;
  int processes_per_host = 0;      // 0: P x T on one host
  std::string custom_mpi_options;  // words for the mpirun line, see engine/config/rules/shell_words.h
  std::vector<std::string> hosts;  // names; empty: those of the allocation, else this host; see hosts_of()
  int max_restarts = 0;
  bool elastic = false;
  int host_timeout = 60;  // seconds
  bool operator==(const MpiOptions&) const = default;
};

struct RuntimeOptions {
  DeviceChoice device = DeviceChoice::automatic;
  CommunicatorChoice communicator = CommunicatorChoice::automatic;
  int threads_per_rank = 0;  // 0: OMP_NUM_THREADS, else usable cores / ranks on the host
  FullType dtype = FullType::float32;
  int64_t memory_cap = 0;  // bytes; 0: none
  int timeline_first_step = 2;
  int timeline_steps = 1;  // 0: none
  bool operator==(const RuntimeOptions&) const = default;
};

struct Config {
  ModelOptions model;
  std::string task = kCausalLm;  // one of task_traits()
  DataOptions data;
  TrainingOptions training;
  SmpOptions smp;
  MpiOptions mpi;
  RuntimeOptions runtime;
  std::string output_dir;
  std::string profile;  // file of `shardline profile` to plan with; empty: none
  std::string cluster;  // file with the machines to plan for, or "local"; empty: this machine
  // section -> key -> value of the keys that are accepted and change nothing
  nlohmann::json no_effect = nlohmann::json::object();
  bool operator==(const Config&) const = default;
};

}  // namespace shardline
