// The arguments of an estimator of SageMaker's Python library, and those of its `fit`.
#include <string>

#include "core/error.h"
#include "engine/import/keys/job_facts.h"
#include "engine/import/keys/values.h"
#include "engine/import/keys/vocabulary.h"

namespace shardline {
namespace {

using Keys = std::vector<ForeignKey>;

// A location alone is that of the channel `training`.
std::string channel_of_fit(const Given& given) {
  return given.steps.size() > 1 ? given.steps[1] : "training";
}

std::string folder_of_fit(const Given& given) {
  return cat(kContainerFolder, "/input/data/", channel_of_fit(given));
}

// Arguments that versions 1 and 2 of the library name differently.
void add_with_old_name(Keys& keys, const ForeignKey& key, const std::string& old_name) {
  keys.push_back(key);
  keys.push_back(key);
  keys.back().name = old_name;
}

Keys keys_of_estimator() {
  const std::string place = "by the name of the channel: /opt/ml/input/data/NAME, or the path of --channel NAME=PATH";
  Keys keys = {
      holds("hyperparameters", hyperparameter_keys),
      holds("distribution", distribution_keys, "an object, or the name of a JSON file"),
      reads_script("entry_point"),
      reads("checkpoint_local_path", "training.checkpoint_dir", "", read_local_checkpoints).in_phase(1),
      reads("checkpoint_s3_uri", "training.checkpoint_dir", "/opt/ml/checkpoints unless checkpoint_local_path is given",
            read_stored_checkpoints)
          .in_phase(2),
      maps("max_retry_attempts", "mpi_options.max_restarts"),
      reads("input_mode", "", "File and FastFile; Pipe is refused", read_input_mode),
      reads_channel("inputs", "a location alone is the channel `training`", channel_of_fit, folder_of_fit),
      reads_channel("inputs.*", place, channel_of_fit, folder_of_fit),
      reads_channel("inputs.*.s3_data", place, channel_of_fit, folder_of_fit),
      reads("inputs.*.distribution", "", "FullyReplicated; others are refused", read_replication),
      reads("inputs.*.input_mode", "", "File and FastFile; Pipe is refused", read_input_mode),
      ignores("inputs.*.content_type", "data.format depends on the files"),
      ignores("inputs.*.s3_data_type", "nothing is read from S3"),
      refuses("inputs.*.compression", "unpack the files", "None"),
      refuses("inputs.*.record_wrapping", "files are read as they are; leave it out", "None"),
      maps("inputs.*.shuffle_config.seed", "training.data_seed"),
      refuses("inputs.*.attribute_names", "augmented manifests are not read; give the files"),
      refuses("inputs.*.target_attribute_name", "augmented manifests are not read; give the files"),
      ignores("inputs.*.instance_groups", "each host has all files"),
      ignores("inputs.*.model_access_config", "nothing is downloaded"),
      ignores("inputs.*.hub_access_config", "nothing is downloaded"),
      reads_channel("inputs.*.directory_path", "as s3_data", channel_of_fit, folder_of_fit),
      ignores("inputs.*.file_system_id", "the channel's folder has the files"),
      ignores("inputs.*.file_system_type", "the channel's folder has the files"),
      ignores("inputs.*.file_system_access_mode", "data is only read"),
      refuses("instance_groups", "all hosts have the same number of ranks; give instance_type and instance_count"),
      refuses("compiler_config", "compilation is not supported; leave it out"),
  };
  add_with_old_name(keys, reads_instance_type("instance_type"), "train_instance_type");
  add_with_old_name(keys, reads_instance_count("instance_count"), "train_instance_count");
  add_with_old_name(keys, maps("max_run", "training.max_run_seconds"), "train_max_run");
  add_with_old_name(keys, reads("use_spot_instances", "training.resume_from_checkpoint", "auto", read_spot).in_phase(1),
                    "train_use_spot_instances");
  return keys;
}

Keys keys_of_estimator_service() {
  Keys keys;
  const auto add = [&](const std::string& reason, const std::vector<const char*>& names) {
    for (const char* name : names) keys.push_back(ignores(name, reason));
  };
  add("no service is called, so no permissions are needed", {"role", "sagemaker_session"});
  add("no Python is run", {"source_dir", "dependencies", "git_config", "code_location", "py_version",
                           "container_log_level", "requirements_file"});
  add("shardline is the program",
      {"image_uri", "image_name", "transformers_version", "pytorch_version", "tensorflow_version", "framework_version",
       "training_repository_access_mode", "training_repository_credentials_provider_arn", "container_entry_point",
       "container_arguments", "algorithm_arn"});
  add("metrics.jsonl has all numbers of a run; the output of the job is not searched for them",
      {"metric_definitions", "enable_sagemaker_metrics"});
  add("nothing is copied to or from S3",
      {"output_path", "output_kms_key", "disable_output_compression", "model_uri", "model_channel_name"});
  add("the machines' own disks are used",
      {"volume_size", "train_volume_size", "volume_kms_key", "train_volume_kms_key"});
  add("shardline does not rent machines",
      {"max_wait", "train_max_wait", "keep_alive_period_in_seconds", "training_plan", "instance_placement_config"});
  add("the machines' own networks are used",
      {"subnets", "security_group_ids", "enable_network_isolation", "encrypt_inter_container_traffic"});
  add("use the timeline of a run (runtime.timeline_steps)",
      {"rules", "debugger_hook_config", "profiler_config", "disable_profiler"});
  add("TensorBoard's events are in output_dir (report_to)", {"tensorboard_output_config"});
  add("set variables where shardline is started; `-x NAME` in custom_mpi_options passes them to other hosts",
      {"environment"});
  add("output_dir names the run", {"base_job_name", "job_name"});
  add("has no meaning here", {"tags", "experiment_config", "wait", "logs", "enable_infra_check", "enable_remote_debug",
                              "session_chaining_config"});
  return keys;
}

}  // namespace

const Vocabulary& estimator_keys() {
  static const Vocabulary keys = [] {
    Vocabulary all{
        .title = "Arguments of an estimator",
        .introduction =
            "The arguments of `HuggingFace(...)`, `PyTorch(...)` or `Estimator(...)` as JSON, with the channels "
            "of `fit` under `inputs`. Names of version 1 of the library are known, too.",
        .keys = keys_of_estimator()};
    const Keys others = keys_of_estimator_service();
    all.keys.insert(all.keys.end(), others.begin(), others.end());
    return all;
  }();
  return keys;
}

}  // namespace shardline
