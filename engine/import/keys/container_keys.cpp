// What a training container finds: the files of /opt/ml/input/config, and folders. engine/import/container.h reads
// them.
#include <algorithm>

#include "core/error.h"
#include "engine/config/rules/shell_words.h"
#include "engine/import/keys/job_facts.h"
#include "engine/import/keys/values.h"
#include "engine/import/keys/vocabulary.h"

namespace shardline {
namespace {

using nlohmann::json;

Outcome read_hosts(const Given& given, Draft& draft) {
  if (!draft.machines) return refused("must be a list of names");
  if (*draft.machines == 1) return neutral("one host");
  draft.add("mpi_options.processes_per_host", std::max<int64_t>(1, draft.processes_per_host()),
            "one, or one for each GPU");
  return draft.give("mpi_options.hosts", given.value, given.name);
}

void count_hosts(const Given& given, Draft& draft) {
  const auto is_name = [](const json& name) { return name.is_string(); };
  if (given.value.is_array() && !given.value.empty() && std::ranges::all_of(given.value, is_name))
    draft.machines = given.value.size();
}

Outcome read_interface(const Given& given, Draft& draft) {
  if (draft.machines.value_or(1) == 1) return neutral("one host");
  const std::string target = "mpi_options.custom_mpi_options", name = shell_quoted(plain_text(given.value));
  if (draft.has(target) && draft.value(target).get<std::string>().find("btl_tcp_if_include") != std::string::npos)
    return neutral("custom_mpi_options name one");
  return draft.append(target, cat("--mca btl_tcp_if_include ", name, " --mca oob_tcp_if_include ", name), given.name);
}

std::string name_of_channel(const Given& given) {
  return given.steps.at(1);
}

std::string place_of_channel(const Given& given) {
  return plain_text(given.value);
}

Outcome read_model_folder(const Given& given, Draft& draft) {
  if (draft.has("output_dir")) return neutral("output_dir is given");
  return draft.give("output_dir", given.value, given.name, "what is uploaded as the model");
}

Outcome read_checkpoint_folder(const Given& given, Draft& draft) {
  draft.add("training.resume_from_checkpoint", "auto", "an interrupted job continues from its newest checkpoint");
  if (draft.has("training.checkpoint_dir")) return neutral("checkpoint_dir is given");
  return draft.give("training.checkpoint_dir", given.value, given.name);
}

}  // namespace

const Vocabulary& container_keys() {
  static const Vocabulary keys{
      .title = "In a container",
      .introduction = "What `shardline train` reads in a container, from `/opt/ml/input/config` and its environment.",
      .keys = {
          holds("hyperparameters", hyperparameter_keys, "hyperparameters.json, SM_HPS, SM_HP_*, SM_FRAMEWORK_PARAMS"),
          [] {
            ForeignKey hosts =
                reads("resourceconfig.hosts", "mpi_options.hosts", "or SM_HOSTS", read_hosts).in_phase(2);
            hosts.facts = count_hosts;
            return hosts;
          }(),
          reads("resourceconfig.current_host", "", "or SM_CURRENT_HOST; the first of `hosts` starts all ranks",
                [](const Given&, Draft& draft) {
                  return neutral(draft.machines.value_or(1) > 1 ? "the first host starts all ranks" : "one host");
                }),
          reads_instance_type("resourceconfig.current_instance_type"),
          reads("resourceconfig.network_interface_name", "mpi_options.custom_mpi_options",
                "with several hosts: the interface for Open MPI's connections", read_interface)
              .in_phase(2),
          ignores("resourceconfig.current_group_name", "all hosts have the same number of ranks"),
          ignores("resourceconfig.instance_groups", "all hosts have the same number of ranks"),
          ignores("resourceconfig.topology", "layers are placed by the order of the hosts"),
          reads("inputdataconfig.*.TrainingInputMode", "", "File and FastFile; Pipe is refused", read_input_mode),
          reads("inputdataconfig.*.S3DistributionType", "", "FullyReplicated if there are several hosts",
                read_replication),
          refuses("inputdataconfig.*.RecordWrapperType", "files are read as they are; leave it out", "None"),
          refuses("inputdataconfig.*.CompressionType", "unpack the files", "None"),
          ignores("inputdataconfig.*.ContentType", "data.format depends on the files"),
          ignores("inputdataconfig.*.InputDataSourceType", "the channel's folder has the files"),
          reads_channel("channels.*", "the folder of the channel, or SM_CHANNEL_*", name_of_channel, place_of_channel),
          reads("model_dir", "output_dir", "/opt/ml/model, or SM_MODEL_DIR", read_model_folder).in_phase(2),
          reads(
              "output_data_dir", "output_dir",
              "gets a copy of the run's records; /opt/ml/output/data, or SM_OUTPUT_DATA_DIR",
              [](const Given&, Draft&) { return mapped_to("output_dir", "the run's records are copied from there"); }),
          reads("checkpoints", "training.checkpoint_dir", "/opt/ml/checkpoints", read_checkpoint_folder).in_phase(2),
      }};
  return keys;
}

}  // namespace shardline
