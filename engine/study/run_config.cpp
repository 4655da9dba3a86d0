#include "engine/study/run_config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/device/accelerator.h"
#include "core/error.h"
#include "core/files/json_reader.h"
#include "engine/config/rules/saving_rules.h"
#include "engine/config/rules/sizes.h"
#include "engine/run/local_cluster.h"
#include "partitioner/layout/cluster.h"

namespace shardline {
namespace {

using nlohmann::json;

// The config of a study's file, as text, with its name in messages.
struct BaseConfig {
  std::string text, name;
};

BaseConfig base_config(const StudyFile& study) {
  if (study.config.empty()) return {study.inline_config.dump(), study.file + ": /config"};
  return {read_json_file(study.config).value.dump(), study.config};
}

std::string setting(const std::string& key, const json& value) {
  return cat(key, "=", value.is_string() ? value.get<std::string>() : value.dump());
}

// The settings that follow from the factors alone.
std::vector<std::string> settings_of(const json& factors) {
  std::vector<std::string> settings;
  const auto set = [&](const std::string& key, const json& value) { settings.push_back(setting(key, value)); };
  if (const json layout = factors.value("layout", json::object()); !layout.empty())
    for (const auto& [key, value] : layout.items()) set("smp_options." + key, value);
  if (factors.contains("samples")) set("data.max_train_samples", factors["samples"]);
  if (factors.contains("batch")) {
    set("training.global_batch_size", nullptr);
    set("training.per_device_train_batch_size", factors["batch"]);
  }
  if (factors.contains("global_batch")) {
    set("training.global_batch_size", factors["global_batch"]);
    set("training.per_device_train_batch_size", nullptr);
    set("training.gradient_accumulation_steps", nullptr);
  }
  if (factors.contains("learning_rate")) set("training.learning_rate", factors["learning_rate"]);
  if (factors.contains("precision")) {
    set("training.fp16", factors["precision"] == "fp16");
    set("training.bf16", factors["precision"] == "bf16");
  }
  if (factors.contains("epochs")) {
    set("training.num_train_epochs", factors["epochs"]);
    set("training.max_steps", -1);
  }
  if (factors.contains("steps")) set("training.max_steps", factors["steps"]);
  if (factors.contains("warmup_share")) set("training.warmup_steps", factors["warmup_share"]);
  for (const auto& [key, value] : factors.items())
    if (key.find('.') != std::string::npos) set(key, value);
  return settings;
}

// The factor that a global batch larger than the reference applies to the learning rate.
double rate_factor(const json& factors, int64_t global_batch) {
  const std::string scaling = factors.value("learning_rate_scaling", "none");
  if (scaling == "none") return 1;
  const double larger = global_batch / factors["reference_batch"].get<double>();
  return scaling == "sqrt" ? std::sqrt(larger) : larger;
}

// Whether there are enough hosts for the nodes, in the config or in the allocation.
bool has_hosts(const BaseConfig& base, int nodes) {
  const json mpi = parse_json(base.text, base.name).value.value("mpi_options", json::object());
  const json hosts = mpi.is_object() ? mpi.value("hosts", json()) : json();
  if (hosts.is_array() && !hosts.empty()) return std::cmp_greater_equal(hosts.size(), nodes);
  return available_hosts(Config()) >= nodes;
}

// Settings for ranks on known hosts, or for all ranks together: on this host, or in a plan.
std::vector<std::string> ranks_on(bool hosts, int devices, int nodes) {
  if (hosts) return {cat("mpi_options.processes_per_host=", devices / nodes)};
  return {"mpi_options.hosts=[]", cat("mpi_options.processes_per_host=", devices)};
}

// The machines for which a run is planned, or nothing if it is trained here.
std::string cluster_for(const StudyFile& study, const StudyPoint& point, const Config& config, int devices, int nodes,
                        bool on_hosts) {
  if (point.factors.contains("cluster")) return point.factors["cluster"];
  if ((nodes == 1 || on_hosts) && devices <= nodes * devices_here(config)) return "";
  if (!study.cluster.empty()) return study.cluster;
  throw ConfigError(cat(study.file, ", run ", point.name, ": needs ", devices, " devices on ", nodes,
                        " nodes, but this machine has ", devices_here(config),
                        "; give a cluster file with --cluster (or \"cluster\"), for which such runs are planned"));
}

void count_steps(StudyRun& run) {
  const TrainingOptions& training = run.config.training;
  const double global_batch = run.global_batch;
  if (run.config.data.max_train_samples) run.samples = *run.config.data.max_train_samples;
  if (run.samples) run.nominal_steps = *run.samples * training.num_train_epochs / global_batch;
  if (training.max_steps > 0) {
    run.steps = training.max_steps;
    run.nominal_steps = training.max_steps;
  } else if (run.samples) {
    const double exact = *run.samples / global_batch;
    const double per_epoch = training.dataloader_drop_last ? std::floor(exact) : std::ceil(exact);
    run.steps = std::max<int64_t>(1, std::ceil(training.num_train_epochs * per_epoch));
  }
}

// Puts everything that the run writes into a directory of its own.
void set_places(const StudyFile& study, StudyRun& run) {
  run.config.output_dir = output_of(study, run.name);
  if (run.config.training.checkpoint_dir) run.config.training.checkpoint_dir = checkpoints_of(study, run.name);
}

// A run of a study never continues an earlier one; it may still start from a checkpoint that the config names.
void start_from_beginning(Config& config) {
  auto& source = config.training.resume_from_checkpoint;
  if (source.is_array())  // ["auto", DIRECTORY]
    source = json(source[1]);
  else if (source == true || source == "auto")
    source = nullptr;
}

void check_metric(const StudyFile& study, const StudyRun& run) {
  if (study.metric.empty() || run.planned()) return;
  const TrainingOptions& training = run.config.training;
  const std::string place = cat(study.file, ": /metric: ", study.metric, " of run ", run.name, ": ");
  if (training.eval_strategy == EvalStrategy::no && !training.do_eval)
    throw ConfigError(place + "the run evaluates nothing; set training.do_eval or training.eval_strategy");
  const auto names = metric_names(run.config);
  const std::string name = study.metric.substr(study.metric.find('_') + 1);
  if (name == "loss" || names.empty() || std::ranges::find(names, name) != names.end()) return;
  std::string known;
  for (const auto& one : names) known += cat(known.empty() ? "" : ", ", "eval_", one);
  throw ConfigError(place + "its evaluations have " + known);
}

Config config_with(const StudyFile& study, const BaseConfig& base, const StudyPoint& point,
                   const std::vector<std::string>& settings) {
  try {
    return parse_config(base.text, base.name, settings);
  } catch (const ConfigError& error) {
    throw ConfigError(cat(study.file, ", run ", point.name, ": ", error.what()));
  }
}

StudyRun made_run(const StudyFile& study, const BaseConfig& base, const StudyPoint& point) {
  const json& factors = point.factors;
  const std::string place = cat(study.file, ", run ", point.name, ": ");
  auto settings = settings_of(factors);
  const auto add = [&](const std::vector<std::string>& more) {
    settings.insert(settings.end(), more.begin(), more.end());
  };
  StudyRun run{.name = point.name, .group = point.name, .point = &point};
  run.nodes = factors.contains("nodes") ? factors["nodes"].get<int>() : 1;
  const bool on_hosts = run.nodes > 1 && has_hosts(base, run.nodes);
  if (factors.contains("cluster")) add({"cluster=" + factors["cluster"].get<std::string>()});
  if (factors.contains("devices")) add(ranks_on(on_hosts, factors["devices"], run.nodes));
  const Config before = config_with(study, base, point, settings);
  run.devices = factors.contains("devices") ? factors["devices"].get<int>() : configured_world_size(before);
  if (run.devices % run.nodes != 0)
    throw ConfigError(cat(place, run.devices, " devices are not a multiple of ", run.nodes, " nodes"));
  run.cluster = cluster_for(study, point, before, run.devices, run.nodes, on_hosts);
  add(ranks_on(on_hosts && !run.planned(), run.devices, run.nodes));
  if (run.planned()) {
    if (!factors.contains("nodes")) run.nodes = read_cluster(run.cluster).nodes_of(run.devices);
    add({"cluster=" + run.cluster});
  } else {
    add({"training.overwrite_output_dir=true"});
  }
  add({"output_dir=" + output_of(study, point.name)});
  run.config = config_with(study, base, point, settings);
  const auto stated = run.config.training.global_batch_size;  // always stated if a degree is "auto"
  run.global_batch = stated ? *stated : resolve_sizes(run.config, run.devices).global_batch();
  run.batch_per_device = 1.0 * run.global_batch / run.devices;
  if (const double factor = rate_factor(factors, run.global_batch); factor != 1) {
    add({cat("training.learning_rate=", json(run.config.training.learning_rate * factor).dump())});
    run.config = config_with(study, base, point, settings);
  }
  count_steps(run);
  if (run.planned() && run.steps == 0)
    throw ConfigError(
        cat(place, "is planned, but its steps are not known; give \"steps\", or \"samples\" with epochs"));
  if (run.steps > std::numeric_limits<int>::max())
    throw ConfigError(cat(place, "has ", run.steps, " steps, which are too many"));
  if (run.planned()) run.config.training.max_steps = run.steps;
  set_places(study, run);
  start_from_beginning(run.config);
  check_metric(study, run);
  return run;
}

}  // namespace

std::string directory_of(const StudyFile& study, const std::string& run) {
  return cat(study.output_dir, "/runs/", run);
}
std::string output_of(const StudyFile& study, const std::string& run) {
  return directory_of(study, run) + "/output";
}
std::string checkpoints_of(const StudyFile& study, const std::string& run) {
  return directory_of(study, run) + "/checkpoints";
}
std::string config_of(const StudyFile& study, const std::string& run) {
  return directory_of(study, run) + "/config.json";
}
std::string log_of(const StudyFile& study, const std::string& run) {
  return directory_of(study, run) + "/log.txt";
}

void move_to(StudyRun& run, const StudyFile& study, const std::string& name) {
  run.name = name;
  set_places(study, run);
}

std::string work_of(const StudyRun& run) {
  Config config = run.config;
  config.output_dir.clear();
  if (config.training.checkpoint_dir) config.training.checkpoint_dir = "";
  return cat(run.planned() ? "planned" : "measured", " on ", run.nodes, ": ", resolved(config).dump());
}

int devices_here(const Config& config) {
  const bool on_gpus = config.runtime.device != DeviceChoice::cpu && accelerator_count() > 0;
  return on_gpus ? accelerator_count() : usable_cores();
}

int cores_of(const StudyRun& run) {
  const bool on_gpus = run.config.runtime.device != DeviceChoice::cpu && accelerator_count() > 0;
  const int threads = run.config.runtime.threads_per_rank;
  if (run.planned()) return 1;
  return on_gpus || threads == 0 ? usable_cores() : std::min(usable_cores(), run.devices * threads);
}

std::vector<StudyRun> expand(const StudyFile& study) {
  const BaseConfig base = base_config(study);
  std::vector<StudyRun> runs;
  for (const auto& point : study.points) {
    const StudyRun first = made_run(study, base, point);
    const int repeats = first.planned() ? 1 : study.repeats;  // a plan does not depend on the seed
    for (int i = 0; i < repeats; ++i) {
      StudyRun& run = runs.emplace_back(first);
      if (!study.seeds.empty())
        run.config.training.seed = study.seeds[i];
      else
        run.config.training.seed += i;
      if (repeats == 1) continue;
      run.name = cat(point.name, ",seed=", run.config.training.seed);
      set_places(study, run);
    }
  }
  return runs;
}

}  // namespace shardline
