// What the job is about and where it runs: the top level, model, data, mpi_options and runtime.
#include "engine/config/keys/registry.h"

namespace shardline {
namespace {

constexpr double kLargestCount = 9007199254740992.0;  // 2^53
constexpr double kMostRanksOfHost = 4096;

// A key of the top level that is a field of Config itself.
Key top_level(std::string name, std::string Config::*field, JsonType type, std::string meaning) {
  Key key{.name = std::move(name),
          .type = std::move(type),
          .default_value = Config().*field,
          .meaning = std::move(meaning)};
  key.store = [=](Config& config, const nlohmann::json& value) { config.*field = value.get<std::string>(); };
  key.load = [=](const Config& config) { return nlohmann::json(config.*field); };
  return key;
}

}  // namespace

std::vector<Key> top_level_keys() {
  const std::string task = "only \"causal-lm\" is built yet";
  const std::string command = "leave the section out: this command is not built yet";
  return {
      top_level("task", &Config::task,
                json_choice({{"causal-lm"},
                             {"masked-lm", task},
                             {"sequence-classification", task},
                             {"token-classification", task},
                             {"question-answering", task}}),
                "What the model learns."),
      top_level("output_dir", &Config::output_dir, json_text(),
                "Directory for everything that the run writes. Required."),
      not_yet("predict", nullptr, "Options of `shardline predict`.", command),
      not_yet("generate", nullptr, "Options of `shardline generate`.",
              "give them on its command line: `shardline generate --help` lists them"),
      not_yet("serve", nullptr, "Options of `shardline serve`.", command),
      not_yet("study", nullptr, "Options of `shardline study`.", command),
      top_level("cluster", &Config::cluster, json_text(),
                "The machines to plan for: a file as in configs/clusters, or `local` for this one (the same as "
                "`shardline plan --cluster`). The layers of a run are placed for them. Unset: this machine, and `plan` "
                "tells no times."),
      top_level(
          "profile", &Config::profile, json_text(),
          "File of `shardline profile` (the same as `shardline plan --profile`): where its layers were measured in "
          "the shapes of the run, plans price them as measured, and this machine's rates are the measured ones."),
  };
}

std::vector<Key> model_keys() {
  const auto model = &Config::model;
  return {
      honoured("path", model, &ModelOptions::path, json_text(),
               "Hugging Face model directory: config.json, *.safetensors, tokenizer files. path, config or both are "
               "required."),
      honoured(
          "config", model, &ModelOptions::config, json_object(),
          "Hugging Face config keys: the whole model when there is no path, otherwise they override its config.json, "
          "under either of a key's names. Keys that the model family does not have are refused."),
      honoured("init", model, &ModelOptions::init, json_choice({{"pretrained"}, {"random"}}),
               "Where the weights come from; unset: `pretrained` with a path, `random` without."),
  };
}

std::vector<Key> data_keys() {
  const auto data = &Config::data;
  using Data = DataOptions;
  const std::string tables = "tables are not read yet: convert to jsonl";
  return {
      honoured("train", data, &Data::train, json_texts(), "Training files, relative to the current directory."),
      honoured("validation", data, &Data::validation, json_texts(), "Evaluation files."),
      no_effect("test", or_null(json_texts()), nullptr, "for `shardline predict`, which is not built yet"),
      honoured("format", data, &Data::format,
               json_choice({{"auto"}, {"text"}, {"jsonl"}, {"tokens"}, {"csv", tables}, {"tsv", tables}}),
               "`auto` goes by the file name; `tokens` are token ids and need no tokenizer."),
      honoured("text_column", data, &Data::text_column, json_text(), "Key of the text in a line of jsonl."),
      not_yet("label_column", nullptr, "Column of the label.", "tasks with labels are not built yet: leave it out"),
      honoured("tokenizer", data, &Data::tokenizer, json_text(),
               "Directory, tokenizer.json or `bytes` (a byte is a token); unset: the one in model.path. The ids of "
               "texts are "
               "kept in `$XDG_CACHE_HOME/shardline`, by default `~/.cache/shardline`."),
      honoured("sequence_length", data, &Data::sequence_length, json_integer(2, 1 << 24), "Tokens in a sample."),
      honoured("shuffle", data, &Data::shuffle, json_boolean(), "false: samples come in file order."),
      honoured("max_train_samples", data, &Data::max_train_samples, json_integer(1, kLargestCount),
               "Use only the first samples; unset: all."),
      honoured("max_eval_samples", data, &Data::max_eval_samples, json_integer(1, kLargestCount),
               "Evaluate only on the first samples; unset: all."),
      honoured(
          "validation_split_percentage", data, &Data::validation_split_percentage, json_integer(0, 99),
          "Percent of the training samples kept for evaluation, the first ones, when there are no validation files."),
  };
}

std::vector<Key> mpi_keys() {
  const auto mpi = &Config::mpi;
  return {
      honoured("enabled", mpi, &MpiOptions::enabled, json_boolean(), "false: everything runs in one process."),
      honoured(
          "processes_per_host", mpi, &MpiOptions::processes_per_host, json_integer(0, kMostRanksOfHost),
          "Ranks on each host, so that the world size is hosts x processes_per_host; 0: P x T ranks on one host, the "
          "first of an allocation. Required with `hosts`."),
      honoured(
          "custom_mpi_options", mpi, &MpiOptions::custom_mpi_options, json_text(),
          "More options for mpirun, in one string that is cut into words as by a shell: quotes and backslashes work, "
          "nothing is expanded."),
      honoured("hosts", mpi, &MpiOptions::hosts, json_texts(),
               "Names of the hosts; unset: those of the allocation (Slurm, PBS, LSF, Grid Engine), else this host."),
  };
}

std::vector<Key> runtime_keys() {
  const auto runtime = &Config::runtime;
  using Runtime = RuntimeOptions;
  return {
      honoured("device", runtime, &Runtime::device, json_choice({{"auto"}, {"cpu"}, {"cuda"}}),
               "`auto`: a GPU where there is one."),
      honoured("communicator", runtime, &Runtime::communicator,
               json_choice({{"auto"}, {"mpi"}, {"nccl"}, {"threads"}, {"local"}}),
               "`threads`: all ranks are threads of one process; `local`: one rank."),
      honoured("threads_per_rank", runtime, &Runtime::threads_per_rank, json_integer(0, 1024),
               "Compute threads of a rank; 0: OMP_NUM_THREADS of the environment where that is set, else usable cores "
               "/ ranks "
               "of the host. Ranks that are threads have one each."),
      honoured("dtype", runtime, &Runtime::dtype, json_choice({{"float32"}, {"float64"}}),
               "Of weights and computation; float64 is for tests."),
      honoured(
          "memory_cap", runtime, &Runtime::memory_cap, or_null(json_any()),
          "Most bytes of CPU tensors in the process of a rank, those kept for reuse included: a number, or a text "
          "such as `512MiB` or `2GiB`. A plan that exceeds it is refused; what a run keeps for reuse comes on top, "
          "about a fifth, and where that exceeds it the error tells what the memory is used for. Unset: none. Not for "
          "GPUs, nor for several ranks in one process (`threads`)."),
      honoured("timeline_first_step", runtime, &Runtime::timeline_first_step, json_integer(1),
               "The first step whose timeline is written to `timeline/`; a run's first step is slower than others."),
      honoured(
          "timeline_steps", runtime, &Runtime::timeline_steps, json_integer(0),
          "How many steps' timelines are written: `step-N.json` for ui.perfetto.dev, `step-N.html` for any browser."),
  };
}

}  // namespace shardline
