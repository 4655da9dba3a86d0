#include "engine/commands/parts/run_checks.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "core/error.h"
#include "engine/commands/parts/open_data.h"
#include "engine/commands/parts/run_checkpoints.h"
#include "engine/config/keys/choices.h"
#include "engine/config/rules/findings.h"
#include "engine/config/rules/optimizer_rules.h"
#include "engine/config/rules/saving_rules.h"
#include "engine/config/rules/sizes.h"
#include "engine/data/source/data_files.h"
#include "engine/observe/format.h"
#include "engine/run/output_dir.h"
#include "partitioner/memory/rank_memory.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;

void check_offload_path(const Config& config) {
  const auto& path = config.smp.offload_path;
  if (!config.smp.offload_activations || !path) return;
  std::error_code ignored;
  if (fs::is_directory(*path, ignored) && access(path->c_str(), W_OK | X_OK) == 0) return;
  throw ConfigError(cat("/smp_options/offload_path: must be a directory that this user may write to; got \"", *path,
                        "\"; create it, or use another one"));
}

void check_optimizer(const Config& config) {
  if (optimizer_options(config.training).kind == OptimizerOptions::Kind::adafactor && has_accelerators(config) &&
      !config.smp.offload_optimizer_states)
    throw ConfigError(
        "/training/optim: \"adafactor\" runs on CPUs only; set smp_options.offload_optimizer_states, or runtime.device "
        "to \"cpu\", or use \"adamw_torch_fused\", \"adam\" or \"sgd\"");
}

// A rank's process may be limited to fewer bytes than its device has. on_accelerators: whether the machines that the
// run is checked for have them; the layout does not say so if the plan is for other machines.
void check_memory_cap(const Config& config, const Plan& plan, bool on_accelerators) {
  const double cap = config.runtime.memory_cap;
  if (cap == 0) return;
  const PlacedLayers placed = placed_layers(plan);
  const auto memory = on_accelerators ? memory_by_rank(placed) : tensor_bytes_by_rank(placed);
  const auto most = std::max_element(memory.begin(), memory.end(),
                                     [](const auto& a, const auto& b) { return a.total() < b.total(); });
  if (most->total() <= cap) return;
  std::string parts;
  for (const auto& [name, bytes] : kPlannedClasses)
    if ((*most).*bytes > 0) parts += cat(parts.empty() ? "" : ", ", name, ' ', format_bytes((*most).*bytes));
  const int64_t needed = most->total();
  throw ConfigError(cat("/runtime/memory_cap: rank ", most - memory.begin(), " needs ", format_bytes(most->total()),
                        " (", parts, ") by the plan, but the cap is ", format_bytes(cap), "; raise it to more than ",
                        needed, " bytes (", format_bytes(needed),
                        "), or use more smp_options.microbatches, activation_checkpointing or shard_optimizer_state"));
}

// Predictions are made in batches of evaluations.
bool evaluates(const Config& config) {
  const DataOptions& data = config.data;
  return !data.validation.empty() || !data.validation_mismatched.empty() || data.validation_split_percentage > 0 ||
         config.training.do_predict;
}

// Whether a sample may consist of several documents that do not attend to each other, each of which is a sample of the
// program.
bool packs_documents(const Config& config) {
  const Packing packing = config.data.used_packing();
  return config.task == kCausalLm && (packing == Packing::bfd || packing == Packing::wrapped_reset);
}

}  // namespace

void check_fixed_sizes(const Config& config, const ModelSource& model, const Layout& layout, bool trains) {
  if (!model.exported) return;
  const Program& program = *model.exported->program;
  Findings findings;
  const auto require = [&](bool fits, const auto&... text) {
    if (!fits) findings.check([&] { throw ConfigError(cat(text...)); });
  };
  const auto exported = [&](int dimension) {
    return cat(", or ", program.archive.verb(), " the program with dynamic_shapes {", dimension, ": Dim.AUTO}");
  };
  const std::string& path = program.archive.path;
  const int64_t target = program.fixed_target(), length = config.data.sequence_length;
  require(target == 0 || config.data.max_target_length == target, "/data/max_target_length: is ",
          config.data.max_target_length, ", but ", path, " takes targets of exactly ", target, " tokens; set it to ",
          target, exported(1));
  if (const int64_t all = program.fixed_source() + target; program.columns.empty() && all > 0)
    require(length == all, "/data/sequence_length: is ", length, ", but ", path, " takes samples of exactly ", all,
            " tokens", target > 0 ? cat(" (", all - target, " of the source and ", target, " of the target)") : "",
            "; set it to ", all, exported(1));
  if (const int64_t samples = program.fixed_samples; samples > 0) {
    require(!packs_documents(config), "/data/packing: \"", word_of(config.data.used_packing()),
            "\" puts several documents into a sample, so the number of documents in a microbatch varies, but ", path,
            " takes exactly ", samples, "; use \"wrapped\" or \"none\"", exported(0));
    const char* key = config.training.global_batch_size && !config.training.per_device_train_batch_size
                          ? "global_batch_size"
                          : "per_device_train_batch_size";
    require(!trains || layout.microbatch_size == samples, "/training/", key, ": makes microbatches of ",
            layout.microbatch_size, " samples, but ", path, " takes exactly ", samples, "; make the global batch ",
            samples * layout.microbatches * layout.replicas, " instead of ", layout.global_batch(),
            ", change smp_options.microbatches", exported(0));
    const int64_t parts = layout.microbatches_per_accumulation(), evaluated = (layout.eval_batch + parts - 1) / parts;
    require((trains && !evaluates(config)) || evaluated <= samples,
            "/training/per_device_eval_batch_size: makes microbatches of ", evaluated, " samples, but ", path,
            " takes at most ", samples, "; set it to ",
            std::max<int64_t>(config.training.per_device_eval_batch_size * samples * parts / layout.eval_batch, 1),
            exported(0));
  }
  findings.throw_all();
}

void check_run(const Config& config, const PlannedModel& planned, RunMoment moment) {
  const bool starting = moment == RunMoment::starting;
  // A run that starts now runs on this machine, whatever machines the plan is for.
  Config machine = config;
  if (starting) machine.cluster.clear();
  Findings findings;
  if (starting || plans_for_this_machine(config)) {
    findings.check([&] { check_host(config); });
    findings.check([&] { check_offload_path(config); });
  }
  findings.check([&] { check_optimizer(machine); });
  findings.check([&] { check_fixed_sizes(config, planned.model, planned.plan.layout, /*trains=*/true); });
  findings.check([&] { check_best_metric(config, planned.model.head); });
  findings.check([&] { check_memory_cap(config, planned.plan, has_accelerators(machine)); });
  findings.check([&] { check_data(config, planned, starting); });
  findings.throw_all();
}

void check_filled(const FilledBatches& batches, const ModelSpec& spec, int replicas) {
  if (spec.most_samples <= 1 || !spec.loss_of_samples) return;
  for (int64_t step = 0; step < batches.steps; ++step) {
    const int64_t samples = batches.samples_in_step(step);
    for (int replica = 0; replica < replicas; ++replica)
      for (int i = 0; i < batches.microbatches; ++i) {
        const int64_t of_replica = split_range(samples, replicas, replica).length;
        const int64_t size = split_range(of_replica, batches.microbatches, i).length;
        if (size != 0 && size != spec.most_samples)
          throw ConfigError(cat(batches.key, ": batch ", step + 1, " has ", samples,
                                " samples, of which a microbatch has ", size,
                                ", but the program computes its loss for ", spec.most_samples,
                                " samples as a whole; use a number of samples that is a multiple of ",
                                spec.most_samples * batches.microbatches * replicas,
                                ", or export the program with dynamic_shapes {0: Dim.AUTO}"));
      }
  }
}

std::vector<std::string> obstacles_now(const Config& config, const ModelSpec& spec) {
  std::vector<std::string> obstacles;
  const auto& test = config.training.do_predict ? config.data.test : std::vector<std::string>();
  for (const auto& paths : {config.data.train, config.data.validation, config.data.validation_mismatched, test})
    for (const auto& path : paths)
      if (!is_data_file(path)) obstacles.push_back(path + ": there is no such data file or folder yet");
  const auto check = [&](const std::function<void()>& rule) {
    try {
      rule();
    } catch (const Error& error) {
      obstacles.push_back(error.what());
    }
  };
  check([&] { check_resume(config); });
  check([&] { check_output_dir(config, spec); });
  return obstacles;
}

}  // namespace shardline
