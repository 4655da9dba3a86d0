#include "engine/import/keys/job_facts.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "core/error.h"
#include "engine/import/keys/instance_types.h"
#include "engine/import/keys/values.h"

namespace shardline {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr int kMostMachines = 4096, kMostProcesses = 1 << 20;

// Where jobs and estimators state the place of checkpoints.
const std::vector<std::vector<std::string>> kPlacesOfCheckpoints = {
    {"CheckpointConfig", "LocalPath"}, {"CheckpointConfig", "S3Uri"}, {"checkpoint_local_path"}, {"checkpoint_s3_uri"}};

Outcome read_instance_type(const Given& given, Draft& draft) {
  const std::string type = plain_text(given.value);
  draft.devices = gpus_of_instance(type);
  if (draft.has("mpi_options.processes_per_host"))
    return neutral("processes_per_host is given; `cluster` names machines to plan for");
  if (!draft.devices && draft.options().ranks == 0)
    return refused("the number of its GPUs is unknown here; give the total number of processes with --ranks N");
  const int64_t processes = draft.processes_per_host();
  if (processes <= 1 && draft.machines.value_or(1) == 1) return neutral("one process");
  return draft.give("mpi_options.processes_per_host", processes, given.name,
                    draft.options().ranks > 0 ? "as set by --ranks" : "a process for each GPU");
}

// The names of machines, which only SageMaker's jobs have.
std::vector<std::string> names_of_hosts(const Draft& draft, int count) {
  if (!draft.options().hosts.empty()) return draft.options().hosts;
  std::vector<std::string> names;
  for (int i = 1; i <= count; ++i) names.push_back(cat("algo-", i));
  return names;
}

// Another key sets this number. Options of accelerate's command replace what its file says.
Outcome other_number(const Given& given, const std::string& what, int count) {
  if (given.name.starts_with("launcher.config_file."))
    return neutral(cat("the command sets the number of ", what, " to ", count));
  return refused(cat("contradicts another key, which sets the number of ", what, " to ", count, "; keep one of them"));
}

Outcome name_hosts(const Given& given, Draft& draft, bool have_names) {
  if (!draft.machines) return refused(cat("must be a number of machines, not ", given.value.dump()));
  const int count = *draft.machines;
  if (value_for(json_integer(1), given.value) != count) return other_number(given, "machines", count);
  if (count <= 1) return neutral("one machine is the default");
  if (!have_names && draft.options().hosts.empty())
    return refused("the machines have no names; give them with --hosts A,B");
  const auto names = names_of_hosts(draft, count);
  if (std::ssize(names) != count) return refused(cat("there are ", names.size(), " names in --hosts; give ", count));
  if (draft.processes_per_host() == 0)
    return refused("the number of processes per machine is unknown; give the total number of processes with --ranks N");
  draft.add("mpi_options.processes_per_host", draft.processes_per_host(), "processes / machines");
  return draft.give("mpi_options.hosts", names, given.name,
                    draft.options().hosts.empty() ? "SageMaker's names; --hosts A,B gives others" : "from --hosts");
}

void count_machines(const Given& given, Draft& draft) {
  if (const json count = value_for(json_integer(1), given.value); json_integer(1, kMostMachines).accepts(count))
    draft.machines = count.get<int>();
}

void count_processes(const Given& given, Draft& draft) {
  if (const json count = value_for(json_integer(1), given.value); json_integer(1, kMostProcesses).accepts(count))
    draft.all_processes = count.get<int>();
}

Outcome divide_processes(const Given& given, Draft& draft) {
  if (!draft.all_processes) return refused(cat("must be a number of processes, not ", given.value.dump()));
  if (value_for(json_integer(1), given.value) != *draft.all_processes)
    return other_number(given, "processes", *draft.all_processes);
  const int machines = draft.machines.value_or(1);
  if (*draft.all_processes % machines != 0)
    return refused(cat("all machines have the same number of processes here; give a multiple of ", machines));
  return draft.give("mpi_options.processes_per_host", *draft.all_processes / machines, given.name,
                    machines > 1 ? "processes / machines" : "");
}

struct Script {
  const char* task;
  // The script's defaults, if they differ from ours; 0: they do not.
  int sequence_length = 0;
  int validation_split_percentage = 0;
  // The family of models that the script makes from sizes alone; empty: it must be given.
  const char* model_type = "";
};

const std::map<std::string, Script>& scripts() {
  static const std::map<std::string, Script> all = {
      {"run_clm", {"causal-lm", 0, 5}},
      {"run_mlm", {"masked-lm", 512, 5}},
      {"run_glue", {"sequence-classification", 128}},
      {"run_classification", {"sequence-classification", 128}},
      {"run_qa", {"question-answering", 384}},
      {"run_squad", {"question-answering", 384}},
      {"run_ner", {"token-classification", 512}},
      {"run_ner_no_trainer", {"token-classification", 128}},
      {"train_gpt_simple", {"causal-lm", 0, 0, "gpt2"}},
  };
  return all;
}

constexpr std::string_view kWithoutTrainer = "_no_trainer";  // ends the names of scripts with their own training loop

bool is_without_trainer(const std::string& script) {
  return fs::path(script).stem().string().ends_with(kWithoutTrainer);
}

// The name of a script's entry in scripts(), which may be that of its variant with Trainer.
std::string stem_of(const std::string& script) {
  const std::string stem = fs::path(script).stem().string();
  const bool is_other = is_without_trainer(script) && !scripts().contains(stem);
  return is_other ? stem.substr(0, stem.size() - kWithoutTrainer.size()) : stem;
}

// The task that one of the given keys requires; empty: none of them does.
std::string task_told_by_keys(const Draft& draft) {
  static const std::vector<std::pair<const char*, const char*>> telling = {
      {"data.task_name", "sequence-classification"},
      {"data.text_pair_column", "sequence-classification"},
      {"data.doc_stride", "question-answering"},
      {"data.version_2_with_negative", "question-answering"},
      {"data.n_best_size", "question-answering"},
      {"data.max_answer_length", "question-answering"},
      {"data.mlm_probability", "masked-lm"},
      {"data.line_by_line", "masked-lm"},
      {"data.whole_word_mask", "masked-lm"},
      {"data.tokens_column", "token-classification"},
      {"data.completion_only_loss", "causal-lm"},
      {"data.packing", "causal-lm"},
      {"training.lr_scheduler_kwargs.lr_decay_iters", "causal-lm"}};
  for (const auto& [key, task] : telling)
    if (draft.has(key)) return task;
  return "";
}

// Whether the config.json of a directory, or --set model.config={...}, names the model's family.
bool has_model_type(const Draft& draft) {
  return draft.has("model.path") || (draft.has("model.config") && draft.value("model.config").contains("model_type"));
}

std::string name_of_script(const Given& given) {
  return fs::path(plain_text(given.value)).filename().string();
}

Outcome read_script(const Given& given, Draft& draft) {
  const std::string script = name_of_script(given);
  if (const auto known = scripts().find(stem_of(script)); known != scripts().end())
    return draft.give("task", known->second.task, given.name, "the task of this script");
  if (draft.has("task")) return neutral("no Python is run");
  if (const std::string task = task_told_by_keys(draft); !task.empty())
    return draft.give("task", task, given.name, "no Python is run; the job's keys determine its task");
  return refused(cat(
      "no Python is run, and the job does not state its task; give it with --set "
      "task=causal-lm (or masked-lm, sequence-classification, token-classification, question-answering), or with the "
      "hyperparameter task"));
}

bool is_for_training(const std::string& channel) {
  return channel == "train" || channel == "training";
}

bool is_for_evaluation(const std::string& channel) {
  static const std::vector<std::string> names = {"validation", "valid", "val", "eval", "evaluation", "dev"};
  return std::ranges::find(names, channel) != names.end();
}

bool is_model(const std::string& channel) {
  return channel == "model" || channel == "pretrained" || channel == "model_dir";
}

// What data.train takes: the files of a folder, or the folder itself if it is empty, missing, or a data set of
// `datasets.save_to_disk`.
json files_of(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error) || fs::exists(fs::path(path) / "dataset_info.json", error) ||
      fs::exists(fs::path(path) / "dataset_dict.json", error))
    return path;
  std::vector<std::string> files;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    const std::string name = entry->path().filename().string();
    if (entry->is_regular_file(ignored) && !name.starts_with(".")) files.push_back(entry->path().string());
  }
  std::ranges::sort(files);
  return files.empty() ? json(path) : json(files);
}

// Throws ConfigError for a --channel whose files are not used, because the job gives others.
void require_used(const std::string& channel, const std::string& place, const std::string& target, const Draft& draft) {
  const json& value = draft.value(target);
  for (const json& one : value.is_array() ? value : json::array({value})) {
    const std::string path = plain_text(one);
    if (path == place || path.starts_with(place.ends_with('/') ? place : place + '/')) return;
  }
  throw ConfigError(cat("--channel ", channel, "=", place, ": the job sets ", target, " to ", value.dump(),
                        "; replace it with --set ", target, "=", place, ", or leave the channel out"));
}

// The key that a channel gives; empty: none.
std::string target_of_channel(const std::string& channel, const Draft& draft) {
  if (is_model(channel)) return "model.path";
  if (is_for_training(channel)) return "data.train";
  if (is_for_evaluation(channel)) return "data.validation";
  if (channel != "test" && channel != "testing") return "";
  // The channels that scripts evaluate on if there are no others.
  const auto evaluates = [](const auto& name) { return is_for_evaluation(name); };
  const auto& given = draft.options().channels;
  const bool others =
      draft.has("data.validation") || draft.has("training.do_predict") ||
      std::ranges::any_of(draft.channels, evaluates) ||
      std::ranges::any_of(given, evaluates, [](const auto& name_and_path) { return name_and_path.first; });
  return others ? "data.test" : "data.validation";
}

json files_of_channel(const std::string& target, const std::string& place, const Draft& draft) {
  return target == "model.path" || draft.has("data.task_name") ? json(place) : files_of(place);
}

}  // namespace

ForeignKey reads_instance_type(const std::string& name) {
  return reads(name, "mpi_options.processes_per_host", "a process for each GPU, unless processes_per_host is given",
               read_instance_type)
      .in_phase(1);
}

ForeignKey reads_instance_count(const std::string& name) {
  ForeignKey key = reads(name, "mpi_options.hosts", "SageMaker's names, algo-1 and so on, or those of --hosts",
                         [](const Given& given, Draft& draft) { return name_hosts(given, draft, /*have_names=*/true); })
                       .in_phase(2);
  key.facts = count_machines;
  return key;
}

ForeignKey reads_machines(const std::string& name) {
  ForeignKey key = reads(name, "mpi_options.hosts", "the names of --hosts", [](const Given& given, Draft& draft) {
                     return name_hosts(given, draft, /*have_names=*/false);
                   }).in_phase(2);
  key.facts = count_machines;
  return key;
}

ForeignKey reads_processes(const std::string& name) {
  ForeignKey key = reads(name, "mpi_options.processes_per_host", "processes / machines", divide_processes).in_phase(1);
  key.facts = count_processes;
  return key;
}

ForeignKey reads_script(const std::string& name) {
  ForeignKey key =
      reads(name, "task", "of run_clm, run_mlm, run_glue, run_classification, run_qa, run_ner and train_gpt_simple",
            read_script)
          .in_phase(2);
  key.facts = [](const Given& given, Draft& draft) { draft.script = name_of_script(given); };
  return key;
}

bool trains_only_if_told(const Draft& draft) {
  // This excludes SageMaker's script and scripts that are called run_..._no_trainer.
  const std::string stem = fs::path(draft.script.value_or("")).stem().string();
  return stem.starts_with("run_") && !is_without_trainer(stem) && scripts().contains(stem);
}

void add_defaults_of_script(Draft& draft) {
  const std::string script = draft.script.value_or("");
  if (const auto known = scripts().find(stem_of(script)); known != scripts().end()) {
    const std::string reason = cat("the default of ", script);
    const auto& [task, length, held_out, model_type] = known->second;
    if (*model_type != '\0' && !has_model_type(draft)) draft.add("model.config.model_type", model_type, reason);
    if (length > 0) draft.add("data.sequence_length", length, reason);
    const bool divides = held_out > 0 && !draft.has("data.validation") && !draft.has("data.train_weights") &&
                         std::ranges::none_of(draft.options().channels, [&](const auto& name_and_path) {
                           return target_of_channel(name_and_path.first, draft) == "data.validation";
                         });
    if (divides) draft.add("data.validation_split_percentage", held_out, reason + " without validation files");
    if (is_without_trainer(script)) draft.add("training.max_grad_norm", 0, cat(script, " does not clip"));
  }
  if (const std::string task = task_told_by_keys(draft); !task.empty())
    draft.add("task", task, "the job's keys determine it");
}

namespace {

Outcome read_channel(const std::string& channel, const std::string& folder, const Given& given, Draft& draft) {
  const auto here = draft.options().channels.find(channel);
  const bool is_here = here != draft.options().channels.end();
  const std::string place = is_here ? here->second : folder;
  const std::string target = target_of_channel(channel, draft);
  if (target.empty()) return neutral("no key reads this channel; files in it can be named by their paths");
  if (draft.has(target)) {
    if (is_here) require_used(channel, place, target, draft);
    return neutral(cat(target, " is given"));
  }
  const bool is_place = plain_text(given.value) == folder;  // in a container, where there is no --channel
  return draft.give(target, files_of_channel(target, place, draft), given.name,
                    is_here    ? "from --channel"
                    : is_place ? ""
                               : cat("its path in the container; --channel ", channel, "=PATH sets another one"));
}

}  // namespace

ForeignKey reads_channel(const std::string& name, const std::string& note,
                         std::function<std::string(const Given&)> channel_of,
                         std::function<std::string(const Given&)> folder_of) {
  ForeignKey key =
      reads(name, "data.train, data.validation, data.test or model.path", note, [=](const Given& given, Draft& draft) {
        return read_channel(channel_of(given), folder_of(given), given, draft);
      }).in_phase(3);
  key.facts = [=](const Given& given, Draft& draft) { draft.channels.insert(channel_of(given)); };
  return key;
}

void add_channel(const std::string& channel, const std::string& place, Draft& draft) {
  if (draft.channels.contains(channel)) return;
  const std::string target = target_of_channel(channel, draft);
  if (target.empty())
    throw ConfigError(
        cat("--channel ", channel, "=", place, ": no key reads this channel; use train, validation, test or model"));
  if (draft.has(target)) return require_used(channel, place, target, draft);
  draft.add(target, files_of_channel(target, place, draft), "from --channel");
}

std::string local_path(const std::string& path, const Draft& draft) {
  for (const auto& [channel, place] : draft.options().channels) {
    const std::string folder = cat(kContainerFolder, "/input/data/", channel);
    if (path == folder) return place;
    if (path.starts_with(folder + "/")) return fs::is_directory(place) ? place + path.substr(folder.size()) : place;
  }
  return path;
}

Outcome read_input_mode(const Given& given, Draft&) {
  const std::string mode = plain_text(given.value);
  if (mode == "File" || mode == "FastFile") return neutral("the data is read as files");
  return refused(cat("\"", mode, "\" provides no files that can be read more than once; use File or FastFile"));
}

Outcome read_replication(const Given& given, Draft& draft) {
  if (plain_text(given.value) == "FullyReplicated" || draft.machines.value_or(1) == 1)
    return neutral("each host has all files");
  return refused("each host needs all files, because shardline itself divides the samples; use FullyReplicated");
}

Outcome read_spot(const Given& given, Draft& draft) {
  if (!is_on(given.value)) return neutral("is off");
  if (draft.has("training.resume_from_checkpoint")) return neutral("resume_from_checkpoint is given");
  const bool has_place = draft.has("training.checkpoint_dir") ||
                         std::ranges::any_of(kPlacesOfCheckpoints, [&](const std::vector<std::string>& place) {
                           return !is_off(given.at(place));
                         });
  return draft.give("training.resume_from_checkpoint", "auto", given.name,
                    has_place ? "an interrupted job continues from its newest checkpoint"
                              : "continues from the newest checkpoint in output_dir, if that outlives the machine; if "
                                "not, give training.checkpoint_dir");
}

Outcome read_local_checkpoints(const Given& given, Draft& draft) {
  if (draft.has("training.checkpoint_dir")) return neutral("checkpoint_dir is given");
  draft.add("training.resume_from_checkpoint", "auto", "as a job with a checkpoint location does");
  return draft.give("training.checkpoint_dir", given.value, given.name);
}

Outcome read_stored_checkpoints(const Given& given, Draft& draft) {
  if (is_off(given.value)) return neutral("unset");
  if (draft.has("training.checkpoint_dir"))
    return neutral("nothing is copied to or from S3; checkpoint_dir has the checkpoints");
  draft.add("training.resume_from_checkpoint", "auto", "as a job with a checkpoint location does");
  return draft.give("training.checkpoint_dir", cat(kContainerFolder, "/checkpoints"), given.name,
                    "where the container stores them; nothing is copied to or from S3");
}

}  // namespace shardline
