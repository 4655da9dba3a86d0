// The reference documentation of the keys, made from the list of keys.
#include <sstream>

#include "engine/config/config.h"
#include "engine/config/key_texts.h"
#include "engine/config/keys/registry.h"

namespace shardline {
namespace {

std::string code(const std::string& text) {
  return "`" + text + "`";
}

std::string default_cell(const Key& key) {
  const std::string text = default_text(key);
  return text == "unset" ? text : code(text);
}

std::string meaning_cell(const Key& key) {
  std::string aliases;
  for (const auto& alias : key.aliases) aliases += (aliases.empty() ? "" : ", ") + code(alias);
  return meaning_text(key) + (aliases.empty() ? "" : " Also: " + aliases + ".");
}

void write_table(std::ostream& out, const Section& section, Status status) {
  bool first = true;
  for (const auto& key : section.keys) {
    if (key.status != status) continue;
    const bool honoured_table = status == Status::honoured;
    if (first && honoured_table) out << "\n| Key | Value | Default | Meaning |\n| --- | --- | --- | --- |\n";
    if (first && !honoured_table)
      out << "\n"
          << (status == Status::no_effect ? "No effect" : "Refused") << ":\n\n| Key | Default | "
          << (status == Status::no_effect ? "Why" : "Meaning, and what to do") << " |\n| --- | --- | --- |\n";
    first = false;
    out << "| " << code(key.name) << " | ";
    if (honoured_table) out << type_text(key) << " | ";
    out << default_cell(key) << " | " << meaning_cell(key) << " |\n";
  }
}

constexpr const char* kIntroduction = R"(# Config reference

<!-- Generated from engine/config: run config_tests with SHARDLINE_WRITE_DOCS=1 to regenerate it. -->

A run is described by one JSON file. Reading is strict: an unknown key, a wrong type, a duplicate key or a contradiction
is an error that shows the place, the value and what to change. All errors in a file are reported together, and nothing
starts. `--set training.max_steps=10` changes a value before the file is checked; the value is JSON or a bare string. A
path with slashes, as in `--set /model/config/n_layer=2`, reaches keys whose names contain dots. Paths of files and
directories are relative to the current directory.

A setting may have several spellings: aliases of its key, and shorthands in other sections, as the tables show. Two
spellings with different values in one file are a contradiction. `--set` with any spelling replaces the file's value of
that setting, whichever spelling the file uses. If `--set` gives the same key twice, the last value counts; two
spellings of one setting with different values are refused, as in a file.

Each key has one status:

- **honoured**: the key does what its description says.
- **no effect**: the key is accepted and listed at the start of a run, because it cannot change numbers or outputs here.
- **refused**: will not be supported; only the default is accepted. The error message says what to do instead.

`smp_options` holds either the options themselves or SageMaker's wrapper `{"enabled": true, "parameters": {...}}`. A
`distribution` object, `{"smdistributed": {"modelparallel": {...}}, "mpi": {...}}`, may replace `smp_options` and
`mpi_options`. In it, `"dataparallel": {"enabled": true, "custom_mpi_options": "..."}` enables data parallelism: `ddp`
is true, `custom_mpi_options` means the same as in `mpi`, and the number of ranks is `hosts` x `processes_per_host` from
`mpi`, which must then be set. The resolved config of a run, `output_dir/config.resolved.json`, is a config, too, and
gives the same run; its key `derived`, which shows derived sizes, is ignored. So is the key `$schema`, by which editors
find the JSON schema that `shardline schema` prints. `shardline help KEY` explains a key on the command line.

## Patterns

Layers (`activation_checkpointing`, `manual_partition`), the units that tensor parallelism splits
(`tensor_parallel_layers`) and parameters (`trainable`, `no_decay_patterns`) are selected by shell patterns for whole
names, as in the tensor-parallel plans of transformers:

| Pattern | Selects |
| --- | --- |
| `*` | any text, which may be empty and may contain dots: `*attn`, `h.*.attn`, `*wte*` |
| `?` | one character |
| `[0-3]`, `[!0-3]` | one character that is, or is not, in the set; `h.[0-9]` and `h.1[0-2]` are blocks 0 to 12 |
| anything else | itself; a dot is a dot |

For layers and units, a pattern may also match the path of a module that contains them: `encoder` stands for all layers
`encoder.layer.0`, `encoder.layer.1`, ...; the embedding and the head are in a module if all of their parameters are. A
path inside a layer or a unit is an error, because no part of it can be treated differently.

A pattern that matches nothing is an error. There are no regular expressions: what looks like one (`.*attn`, `mlp\.fc`,
`^h`, `a|b`) is refused, and the error shows it as a shell pattern. Keys that are regular expressions in other
libraries, such as transformers' `optim_target_modules`, are not supported. The expressions by which transformers'
Trainer finds biases and norms are not needed, because model families state which parameters decay.

## Sizes

P is `pipeline_parallel_degree`, T is `tensor_parallel_degree`, and D = world size / (P x T) is the number of replicas.

- If `global_batch_size` is set, it is the number of samples in an optimizer step, and it determines the rest. Each
  replica processes `global_batch_size` / D samples in one accumulation step, or `per_device_train_batch_size` (times T)
  in as many steps as it needs.
- If `global_batch_size` is unset, each replica processes `per_device_train_batch_size` samples (times T unless
  `prescaled_batch` is true) in each of `gradient_accumulation_steps` accumulation steps, and the global batch is D
  times that.
- A replica's batch is cut into `microbatches` equal pieces.
- An epoch ends with a short step unless the number of samples is a multiple of the global batch. `dataloader_drop_last`
  drops the samples at the end of an epoch that do not fill a batch. If `global_batch_size` is set, a batch is the
  global batch, on every layout. Otherwise, as in transformers, it is the batch of one accumulation step on all
  replicas, so the last step of an epoch may have fewer accumulation steps: 80 samples in batches of 8 with 4
  accumulation steps give 3 steps of 32, 32 and 16 samples.
- With `auto_find_batch_size`, the number of samples in a microbatch is halved until the plan fits the memory of the
  machines, and again if the run still runs out of memory (but not if the system kills a rank, or if you start
  mpirun yourself). If `global_batch_size` is set, there are more accumulation steps and the global batch stays the
  same; otherwise `per_device_train_batch_size` and the global batch become smaller. The run prints what has changed,
  and `config.resolved.json` has the result.
- With `"auto"` for P, T, `microbatches`, `virtual_pipeline_degree` or `sharded_data_parallel_degree` the planner
  chooses the fastest layout that fits; `global_batch_size` is then required, and all other settings stay as in the
  config. The number of ranks is the first of these that is known: `hosts` x `processes_per_host`; the number of devices
  in the file that `cluster` names, on no more nodes than there are hosts; P x T if both are numbers; the number of GPUs
  or, on CPUs, of cores of this host, times the number of `hosts`.

## Learning-rate schedules

A schedule is a function of the number of completed steps, so step 1 of a warm-up has learning rate 0, as in
transformers; only `reduce_lr_on_plateau` follows evaluations. The arguments in `lr_scheduler_kwargs` are:

| `lr_scheduler_type` | Arguments (default) |
| --- | --- |
| `linear`, `constant`, `constant_with_warmup` | none; `constant` has no warm-up |
| `cosine` | `num_cycles` (0.5): cosine periods |
| `cosine_with_restarts` | `num_cycles` (1): descents |
| `polynomial` | `lr_end` (1e-7), `power` (1) |
| `inverse_sqrt` | `timescale` (the warm-up, or 10000) |
| `cosine_with_min_lr` | `min_lr` or `min_lr_rate`, its share of `learning_rate`: one is required; `num_cycles` (0.5) |
| `cosine_warmup_with_min_lr` | the same, and `warmup_lr_rate`: share of `learning_rate` at step 1 (that of one warm-up step) |
| `warmup_stable_decay` | `num_decay_steps`: required; `num_stable_steps` (what is left), `min_lr_ratio` (0), `num_cycles` (0.5), `warmup_type` (`linear`), `decay_type` (`cosine`): `linear`, `cosine` or `1-sqrt` |
| `annealing` | ours, described below: `lr_decay_style` (`linear`), `lr_decay_iters` (the steps of the run), `min_lr` (0), `plateau` (0.4) |
| `reduce_lr_on_plateau` | torch's, described below: `mode` (`min`), `factor` (0.1), `patience` (10), `threshold` (1e-4), `threshold_mode` (`rel`), `cooldown` (0), `min_lr` (0), `eps` (1e-8) |

`annealing` is the schedule of SageMaker's GPT-2 and GPT-J examples. Let E = `lr_decay_iters`, W the warm-up (below 1:
that share of E, not rounded), i the number of completed steps and n = min(i, E - W) - W. Up to i = W, the warm-up is
linear: the learning rate is min(i, E - W) / W of the peak. After that, it is the peak times

- `linear`: (E - n) / E, which ends at 2 W / E;
- `cosine`: (cos(pi n / E) + 1) / 2; `exponential`: exp(-0.693 n / E), which ends near a half; `constant`: 1;
- `plateau`: 1 up to i = W + `plateau` E, then (E - i) divided by the number of steps left of E at that point;

but at least `min_lr`.

`reduce_lr_on_plateau` is torch's ReduceLROnPlateau. As in transformers, it has no warm-up and takes the metric
`metric_for_best_model` of each evaluation except that of `eval_on_start` and one that is due only because the run ends.
An evaluation is a gain if its metric is better than the best one so far by more than `threshold`, which is a share of
that metric, or with `threshold_mode` `abs` a difference. After more than `patience` evaluations in succession without a
gain, the learning rate is multiplied by `factor`, down to `min_lr`, unless that changes it by no more than `eps`; the
next `cooldown` evaluations then do not count. With a metric of which larger values are better, `mode` must be set to
`max`. The learning rate and the counts are part of a checkpoint. `greedy` is refused.

## Loss scaling

With fp16, the loss is multiplied by a scale before the backward pass, and gradients are divided by this scale before
they are clipped. If a gradient on any rank is infinite or NaN, all ranks skip the update: weights, optimizer states and
the learning-rate schedule do not change, and `metrics.jsonl` has `"overflow": true`. The dynamic scale follows
SageMaker's rules; the arguments in `dynamic_loss_args` are `init_scale` (4294967296), `scale_factor` (2),
`scale_window` (1000), `min_scale` (1), `delayed_shift` (1) and `consecutive_hysteresis` (false):

- A step that overflows divides the scale by `scale_factor`, down to `min_scale`. With `delayed_shift` = N, the first
  N-1 such steps leave it unchanged.
- Every `scale_window` steps without an overflow, the scale is multiplied by `scale_factor` and the count for
  `delayed_shift` restarts. With `consecutive_hysteresis` any step without an overflow restarts the count.

The initial scale is deliberately far too large: the first steps of a run overflow until a suitable scale is found.
Without `dynamic_loss_scale` the scale is `static_loss_scale`, or 1.
)";

}  // namespace

std::string config_reference_markdown() {
  std::ostringstream out;
  out << kIntroduction;
  for (const auto& section : config_sections()) {
    out << "\n## " << (section.name.empty() ? "Top level" : section.name) << "\n\n" << section.meaning << "\n";
    for (const Status status : {Status::honoured, Status::no_effect, Status::refused})
      write_table(out, section, status);
  }
  return out.str();
}

}  // namespace shardline
