// The keys of the job: the top level, model, data, mpi_options and runtime.
#include "engine/config/keys/memory_cap.h"
#include "engine/config/keys/registry.h"
#include "partitioner/layout/cluster.h"

namespace shardline {
namespace {

constexpr double kLargestCount = 9007199254740992.0;  // 2^53
constexpr double kLeastWeight = 1e-9;

// A key of the top level, a field of Config itself.
template <class T>
Key top_level(std::string name, T Config::*field, JsonType type, std::string meaning) {
  Key key{.name = std::move(name),
          .type = std::move(type),
          .default_value = detail::load_value(Config().*field),
          .meaning = std::move(meaning)};
  key.store = [=](Config& config, const nlohmann::json& value) { detail::store_value(config.*field, value); };
  key.load = [=](const Config& config) { return detail::load_value(config.*field); };
  return key;
}

// Accepts a number of bytes, or a text with a unit; null means no limit.
Key with_bytes(Key key) {
  key.type = or_null(json_any());
  key.default_value = nullptr;
  key.store = [store = key.store](Config& config, const nlohmann::json& value) {
    store(config, memory_cap_bytes(value));
  };
  key.load = [load = key.load](const Config& config) {
    const auto bytes = load(config);
    return bytes == 0 ? nlohmann::json() : bytes;
  };
  return key;
}

}  // namespace

std::vector<Key> top_level_keys() {
  std::vector<JsonChoice> tasks;
  for (const auto& [name, traits] : task_traits()) {
    tasks.push_back({name});
    for (const auto& [on_hub, task] : tasks_by_hub_name())
      if (task == name) tasks.back().other_names.push_back(on_hub);
  }
  return {
      top_level(
          "task", &Config::task, json_choice(tasks),
          "What the model is trained for: `causal-lm` predicts the next token of blocks of text, `masked-lm` masked "
          "tokens, `sequence-classification` the label of a text or of a pair of texts, `token-classification` the tag "
          "of each word, `question-answering` which part of a context answers a question, `seq2seq-lm` the text that "
          "follows from a source, such as its summary or translation."),
      top_level("output_dir", &Config::output_dir, json_text(),
                "Directory for all files that the run writes. Required."),
      refused("predict", nullptr, "Options of `shardline predict`.", "give them on its command line"),
      refused("generate", nullptr, "Options of `shardline generate`.",
              "give them on its command line: `shardline generate --help` lists them"),
      refused("serve", nullptr, "Options of `shardline serve`.",
              "give them on its command line: `shardline serve --help` lists them"),
      refused("study", nullptr, "Options of `shardline study`.", "write a study file (docs/study.md)"),
      top_level("cluster", &Config::cluster, json_text(),
                "The machines to plan for: a file such as those in configs/clusters, or `local` for this machine (the "
                "same as `shardline plan --cluster`). The planner places the layers of a run for these machines. "
                "Unset: this machine, and `plan` shows no times."),
      top_level("profile", &Config::profile, json_text(),
                "File written by `shardline profile` (the same as `shardline plan --profile`). Plans use its measured "
                "times for layers that were measured with the run's shapes, and its measured rates for this machine."),
  };
}

std::vector<Key> model_keys() {
  const auto model = &Config::model;
  return {
      honoured("path", model, &ModelOptions::path, json_text(),
               "A Hugging Face model directory (config.json, *.safetensors or pytorch_model.bin, tokenizer files), or "
               "a program that torch.export saved, a `.pt2` file (docs/programs.md). Either path or config is "
               "required; with a directory, both may be set."),
      honoured("config", model, &ModelOptions::config, json_object(),
               "Keys of a Hugging Face config. Without path, they describe the whole model; with a directory in path, "
               "they override the keys in its config.json, under either name of a key. Keys that the model family does "
               "not have are refused; an exported program has only `num_labels`, `id2label`, `label2id`, "
               "`problem_type`, `decoder_start_token_id` and `pad_token_id`."),
      honoured("init", model, &ModelOptions::init, json_choice(words_of<ModelInit>()),
               "Initial weights; unset: `pretrained` with a path, `random` without. An exported program always starts "
               "with the weights in its file."),
      honoured("inputs", model, &ModelOptions::inputs, json_object(),
               "Programs only (docs/programs.md): an object that maps arguments to the data that they are given, such "
               "as `{\"tokens\": \"input_ids\"}`. Other arguments receive the data of their own name. Other data are "
               "[columns of tensors](programs.md#columns-of-tensors), such as `{\"pixel_values\": \"image\"}`."),
      honoured("loss", model, &ModelOptions::loss, or_null(json_any()),
               "Programs only: the name of the output that is the loss, or an object with a `function` "
               "(`cross_entropy`, `mse`, `bce_with_logits`, or a loss that your program registers) and the name of the "
               "output `logits`, from which the loss is computed with the labels of the data. Unset: the output "
               "`loss`, or the only scalar."),
      refused("ignore_mismatched_sizes", false, "Start heads of another size with initial values.",
              "leave it out: a head that the files lack starts with initial values, but a head of another size is an "
              "error; remove its tensors from the files, or set path to the model from which it was trained"),
      refused("trust_remote_code", false, "Run Python code that comes with a model.",
              "leave it out: such code is never run; docs/families.md lists the model families"),
      no_effect("use_fast_tokenizer", json_boolean(), true, "each tokenizer is implemented once"),
  };
}

// Keys of transformers' example scripts that have no setting here.
std::vector<Key> script_keys() {
  const std::string files = "name the files in train, validation and test: nothing is downloaded";
  return {
      no_effect("pad_to_max_length", json_boolean(), false, "samples are never padded"),
      no_effect("overwrite_cache", json_boolean(), false, "caches follow the content of the files"),
      no_effect("preprocessing_num_workers", or_null(json_integer(0)), nullptr, "all cores are used"),
      refused("keep_linebreaks", true, "Keep the line breaks of text files in the text.",
              "leave it out: this is always done"),
      refused("streaming", false, "Make samples during the run.",
              "leave it out: token ids are cached on disk once and read from there"),
      refused("label_all_tokens", false, "Let all tokens of a word predict its tag.",
              "leave it out: only the first token of a word predicts its tag"),
      refused("return_entity_level_metrics", false, "Report metrics for each kind of entity.",
              "leave it out: metrics are computed over all kinds of entities together"),
      refused("dataset_name", nullptr, "Load a data set from the Hugging Face hub.", files),
      refused("dataset_config_name", nullptr, "Which part of that data set to load.", files),
      refused("remove_splits", nullptr, "Parts of that data set to leave out.", files),
  };
}

std::vector<Key> data_keys() {
  const auto data = &Config::data;
  using Data = DataOptions;
  std::vector<Key> keys = {
      honoured("train", data, &Data::train, json_texts(), "Training files, relative to the current directory."),
      honoured("train_weights", data, &Data::train_weights, json_numbers(kLeastWeight),
               "Ours: the share of each file or folder of `train` in the training samples; only ratios count. See "
               "[mixtures](tasks.md#mixtures). Empty: each sample occurs once in an epoch."),
      honoured("validation", data, &Data::validation, json_texts(), "Validation files."),
      honoured(
          "validation_mismatched", data, &Data::validation_mismatched, json_texts(),
          "`task_name` `mnli`: validation files of genres that the training data does not have; unset: those in the "
          "folder that `validation` names. Their metrics end with `_mm`."),
      honoured("test", data, &Data::test, json_texts(),
               "Files for `shardline predict`; unset: those of `validation`. Their rows need no labels."),
      honoured(
          "task_name", data, &Data::task_name, or_null(json_choice(words_of<DataName>())),
          "`sequence-classification`: the data set, a task of GLUE or amazon_polarity, which determines columns, "
          "labels and metrics. The files may be the data set's own, or exports from the Hugging Face hub. If `train`, "
          "`validation` or `test` names a folder, the file of that part in it is read. Nothing is downloaded."),
      honoured(
          "format", data, &Data::format, json_choice(words_of<DataFormat>()),
          "`auto` chooses by file extension. `text`: each file is one document, or, with `masked-lm`, each line one "
          "text. `jsonl`, `json`, `csv` and `tsv` have "
          "rows with named columns: one JSON object per line, an array of objects, or a first line with names. `conll` "
          "has a word on each line, in columns separated by white space, and blank lines between sentences. `tokens` "
          "are token ids and need no tokenizer. `parquet` files, and `arrow` files or folders of `datasets`, have rows "
          "of columns ([data files](tasks.md#data)). `safetensors` files have a tensor for each column, whose first "
          "dimension counts the samples ([programs](programs.md#columns-of-tensors)). `memory`: there are no files; a "
          "program passes its samples to a "
          "Trainer "
          "(docs/library.md)."),
      honoured("text_column", data, &Data::text_column, json_text(), "Column of the text in files with columns."),
      honoured("text_pair_column", data, &Data::text_pair_column, or_null(json_text()),
               "`sequence-classification`: column of the second text, for pairs of texts."),
      honoured("label_column", data, &Data::label_column, json_text(),
               "Column of the label in tasks with labels. A value is the name or the number of a label, a number with "
               "a decimal point for regression, or a list for several labels of a text or for the tags of words. The "
               "labels are collected from the training data unless the model's config has `id2label`."),
      honoured("tokens_column", data, &Data::tokens_column, json_text(),
               "`token-classification`: column of the words, a list of strings. In `conll` files, `tokens_column` and "
               "`label_column` are column numbers, counted from 0, such as `\"3\"`; by default the first and the last "
               "column."),
      honoured(
          "completion_only_loss", data, &Data::completion_only_loss, json_boolean(),
          "`causal-lm`: true: each row is a sample, whose columns `prompt` and `completion` are joined, and only the "
          "tokens of the completion and the end of text are predicted. false: texts are cut into blocks."),
      honoured("mlm_probability", data, &Data::mlm_probability, json_number(1e-6, 1),
               "`masked-lm`: share of the tokens, or of the words, that are masked. Special tokens are never masked."),
      honoured("line_by_line", data, &Data::line_by_line, json_boolean(),
               "`masked-lm`: true: each line of a text, or each row of a table, is a sample. false: all of them, with "
               "their special tokens, are concatenated and cut into samples of `sequence_length` tokens."),
      honoured("whole_word_mask", data, &Data::whole_word_mask, json_boolean(),
               "`masked-lm`: true: all tokens of a word are masked together."),
      honoured("source_column", data, &Data::source_column, json_text(), "`seq2seq-lm`: column of the source."),
      honoured("target_column", data, &Data::target_column, json_text(),
               "`seq2seq-lm`: column of the target, which the model learns to write."),
      honoured("prefix", data, &Data::prefix, json_text(),
               "`seq2seq-lm`: text before each source, such as `summarize: `."),
      honoured("max_target_length", data, &Data::max_target_length, json_integer(1, 1 << 24),
               "`seq2seq-lm`: maximum number of tokens in a target, including generated ones. The source has "
               "the rest of `sequence_length`."),
      honoured("question_column", data, &Data::question_column, json_text(),
               "`question-answering`: column of the question."),
      honoured("context_column", data, &Data::context_column, json_text(),
               "`question-answering`: column of the text that contains the answer."),
      honoured("answers_column", data, &Data::answers_column, json_text(),
               "`question-answering`: column of the answers, an object with a list `text` and a list `answer_start` of "
               "code points in the context; empty lists: there is no answer. Training uses the first one."),
      honoured("doc_stride", data, &Data::doc_stride, json_integer(0, 1 << 24),
               "`question-answering`: a context that is too long for a sample is cut into windows, each of which has "
               "this many tokens in common with the previous one."),
      honoured("n_best_size", data, &Data::n_best_size, json_integer(1, 1 << 16),
               "`question-answering`: number of start and end positions considered in each window, and of answers in "
               "`n_best`."),
      honoured("max_answer_length", data, &Data::max_answer_length, json_integer(1, 1 << 16),
               "`question-answering`: maximum number of tokens in an answer."),
      honoured("version_2_with_negative", data, &Data::version_2_with_negative, json_boolean(),
               "`question-answering`: true: some questions have no answer, as in SQuAD 2."),
      honoured("null_score_diff_threshold", data, &Data::null_score_diff_threshold, json_number(-1e9, 1e9),
               "`question-answering` with `version_2_with_negative`: there is no answer if the score of \"no answer\" "
               "exceeds the best answer's score by more than this."),
      honoured("tokenizer", data, &Data::tokenizer, json_text(),
               "A tokenizer.json, a directory, or `bytes` (each byte is a token); unset: the tokenizer in model.path. "
               "A directory has a tokenizer.json, or vocab.json with merges.txt, the vocab.txt of BERT or DistilBERT, "
               "or a SentencePiece model of XLM-RoBERTa or Llama; with vocab.txt, text is converted to lower case "
               "unless tokenizer_config.json sets `do_lower_case` to false. Token ids of text files are cached in "
               "`$XDG_CACHE_HOME/shardline`, by default `~/.cache/shardline`."),
      honoured("sequence_length", data, &Data::sequence_length, json_integer(1, 1 << 24),
               "Maximum number of tokens in a sample, at least 2 unless a program supplies the samples. Encoders "
               "usually have 512 positions, so set this key for them: 384 is usual for SQuAD, 128 for sentences. A "
               "program with columns of tensors determines the length of its samples."),
      honoured("packing", data, &Data::packing, or_null(json_choice(words_of<Packing>())),
               "`causal-lm`: how [documents become samples](tasks.md#packing). `wrapped`, the default for text: the "
               "stream of all documents is cut into samples of `sequence_length` tokens, whose tokens attend to all "
               "earlier ones. `wrapped_reset`: the same samples, but attention stays within a document, and positions "
               "begin at 0 in each (Megatron's `--reset-attention-mask` and `--reset-position-ids`). `bfd`: whole "
               "documents are packed into samples by best-fit decreasing, with attention and positions as in "
               "`wrapped_reset`; documents that are too long are cut into pieces. `none`, the default with "
               "`completion_only_loss`: each document is a sample, and is cut off if it is too long. Except with "
               "`wrapped`, documents end with the end-of-text token, which is added where it is missing."),
      refused("packing_strategy", nullptr, "TRL's key for the packing method.", "give it as data.packing"),
      shorthand(
          "shuffle", json_boolean(), true, "training.train_sampling_strategy",
          [](const nlohmann::json& value) { return nlohmann::json(value == true ? "random" : "sequential"); },
          "true means train_sampling_strategy `random`, false `sequential`."),
      honoured("max_train_samples", data, &Data::max_train_samples, json_integer(1, kLargestCount),
               "Train only on this many samples, the first ones unless `max_samples_seed` is set; unset: all."),
      honoured("max_eval_samples", data, &Data::max_eval_samples, json_integer(1, kLargestCount),
               "Evaluate only on this many samples, the first ones unless `max_samples_seed` is set; unset: all."),
      honoured("max_predict_samples", data, &Data::max_predict_samples, json_integer(1, kLargestCount),
               "Predict only for this many rows, the first ones unless `max_samples_seed` is set; unset: all."),
      honoured("max_samples_seed", data, &Data::max_samples_seed, or_null(json_integer(0, 4294967295.0)),
               "Choose the samples of the keys `max_*_samples` at random with this seed. This corresponds to "
               "`dataset.shuffle(seed).select(range(n))` in Python, but chooses other samples. Unset: the first ones."),
      honoured("validation_split_percentage", data, &Data::validation_split_percentage, json_integer(0, 99),
               "Percentage of the training samples to hold out for evaluation if there are no validation files; the "
               "first ones unless `validation_split_seed` is set."),
      honoured("validation_split_seed", data, &Data::validation_split_seed, or_null(json_integer(0, 4294967295.0)),
               "Choose the samples of `validation_split_percentage` at random with this seed. This corresponds to "
               "`dataset.train_test_split(seed=...)` in Python, but chooses other samples. Unset: the first ones."),
  };
  const std::vector<Key> more = script_keys();
  keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

std::vector<Key> mpi_keys() {
  const auto mpi = &Config::mpi;
  return {
      honoured("enabled", mpi, &MpiOptions::enabled, json_boolean(), "false: all ranks run in one process."),
      honoured("processes_per_host", mpi, &MpiOptions::processes_per_host, json_integer(0, Cluster::kMostDevices),
               "Ranks per host; the world size is hosts x processes_per_host. 0: P x T ranks on one host, the first "
               "one of an allocation. Required with `hosts`. At most 4096, unless `cluster` names other machines: in a "
               "plan for such machines without `hosts`, this is the total number of ranks."),
      honoured("custom_mpi_options", mpi, &MpiOptions::custom_mpi_options, json_text(),
               "Additional options for mpirun: a string that is split into words as by a shell. Quotes and backslashes "
               "work, but nothing is expanded."),
      honoured("hosts", mpi, &MpiOptions::hosts, json_texts(),
               "Host names; unset: the hosts of the allocation (Slurm, PBS, LSF, Grid Engine), or this host if there "
               "is none."),
      honoured("max_restarts", mpi, &MpiOptions::max_restarts, json_integer(0, 1 << 20),
               "How many times `train` restarts its ranks, from the newest intact checkpoint, after a rank, a host or "
               "mpirun has died. It gives up earlier if two attempts in succession save no checkpoint."),
      honoured("elastic", mpi, &MpiOptions::elastic, json_boolean(),
               "true: a restart leaves out hosts that do not answer. P and T stay the same unless they are `auto`, D "
               "shrinks, and the global batch stays the same. false: a restart waits for these hosts, up to "
               "training.ddp_timeout."),
      honoured(
          "host_timeout", mpi, &MpiOptions::host_timeout, json_integer(3, 86400),
          "Seconds without an answer after which a host counts as lost, and after which ranks that cannot reach the "
          "launcher end themselves."),
  };
}

std::vector<Key> runtime_keys() {
  const auto runtime = &Config::runtime;
  using Runtime = RuntimeOptions;
  return {
      honoured("device", runtime, &Runtime::device, json_choice(words_of<DeviceChoice>()),
               "`auto`: a GPU if there is one."),
      honoured("communicator", runtime, &Runtime::communicator, json_choice(words_of<CommunicatorChoice>()),
               "`auto`: a single rank runs in this process, and several ranks are processes that mpirun starts; NCCL "
               "carries tensors if every rank has its own GPU, otherwise Open MPI does. `mpi`: always Open MPI. "
               "`nccl`: like `auto`, but an error if ranks share a GPU or have none. `threads`: all ranks are threads "
               "of one process. `local`: a single rank in this process."),
      honoured("threads_per_rank", runtime, &Runtime::threads_per_rank, json_integer(0, 1024),
               "Compute threads per rank; 0: the environment variable OMP_NUM_THREADS if it is set, else usable cores "
               "/ ranks on the host. Ranks that are threads compute with one thread each."),
      honoured("dtype", runtime, &Runtime::dtype, json_choice(words_of<FullType>()),
               "Type of weights and computation; float64 is for tests."),
      with_bytes(honoured(
          "memory_cap", runtime, &Runtime::memory_cap, json_any(),
          "Maximum bytes of CPU tensors in a rank's process, including freed memory that is kept for reuse: a "
          "number, or a string such as `512MiB` or `2GiB`. A plan that exceeds it is refused. The plan does not "
          "include memory kept for reuse; exceeding the cap with it is an error that lists "
          "what the memory is used for. Unset: no limit. Not supported on GPUs or for several ranks in one "
          "process (`threads`).")),
      honoured("timeline_first_step", runtime, &Runtime::timeline_first_step, json_integer(1),
               "The first step whose timeline is written to `timeline/`; the first step of a run is slower than the "
               "others."),
      honoured("timeline_steps", runtime, &Runtime::timeline_steps, json_integer(0),
               "Number of steps whose timelines are written: `step-N.json` for ui.perfetto.dev, `step-N.html` for any "
               "browser."),
  };
}

}  // namespace shardline
