#include "engine/commands/parts/open_data.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>
#include <thread>

#include "core/comm/long_work.h"
#include "core/error.h"
#include "engine/config/rules/learning_rate_rules.h"
#include "engine/config/rules/program_rules.h"
#include "engine/data/cache/make_once.h"
#include "engine/data/source/data_files.h"
#include "engine/data/source/data_source.h"
#include "engine/data/source/token_file.h"
#include "engine/tasks/class_balance.h"
#include "engine/tasks/question_answering.h"
#include "engine/tasks/task_files.h"

namespace shardline {
namespace {

std::filesystem::path cache_folder(const Config& config) {
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg && *xdg) return std::filesystem::path(xdg) / "shardline";
  if (const char* home = std::getenv("HOME"); home && *home)
    return std::filesystem::path(home) / ".cache" / "shardline";
  return std::filesystem::path(config.output_dir) / ".cache";
}

// Throws ConfigError if a tokenizer has ids that the model does not have. Training has resized the model for them (see
// with_new_tokens), unless the config states its size.
void check_ids_of(const Tokenizer& tokenizer, const Config& config, const ModelSpec& spec) {
  if (tokenizer.vocab_size() <= spec.vocab_size) return;
  const bool is_stated = config.model.path.empty() || config.model.config.contains("vocab_size");
  throw ConfigError(cat("/data/tokenizer: ", tokenizer_source(config), " has ids up to ", tokenizer.vocab_size() - 1,
                        ", but the model's vocab_size is ", spec.vocab_size, "; ",
                        is_stated ? cat("set model.config.vocab_size to at least ", tokenizer.vocab_size())
                                  : "train the model with this tokenizer first, which adds rows to its embedding, or "
                                    "use the model's own"));
}

int tokenizing_threads() {
  return std::max(1u, std::thread::hardware_concurrency());
}

// All options but the paths. Throws ConfigError if the tokenizer does not fit the model.
TokenDataOptions token_data_options(const Config& config, const ModelSpec& spec) {
  TokenDataOptions options{.format = config.data.format,
                           .text_column = config.data.text_column,
                           .vocab_size = spec.vocab_size,
                           .end_documents = config.data.used_packing() != Packing::wrapped,
                           .cache_folder = cache_folder(config),
                           .threads = tokenizing_threads()};
  // Token ids need no tokenizer; if text has none, the data reader reports it.
  const auto tokenizer = tokenizer_source(config);
  if (!config.data.tokenizer.empty() || has_tokenizer(tokenizer)) options.tokenizer = open_tokenizer(config);
  if (options.tokenizer) check_ids_of(*options.tokenizer, config, spec);
  return options;
}

DataError about_files(const std::vector<std::string>& paths, const DataError& error) {
  return DataError(cat(paths.front(), paths.size() > 1 ? ", ...: " : ": ", error.what()));
}

// All options but the number of samples.
SampleOrderOptions sample_order(const Config& config, const Layout& layout, bool train) {
  const auto& t = config.training;
  const uint64_t seed = t.data_seed.value_or(t.seed);
  return {.global_batch = train ? layout.global_batch() : layout.eval_batch * layout.replicas,
          .loader_batches = train ? layout.loader_batches : 1,
          .seed = seed,
          .shuffle = train && t.train_sampling_strategy != SamplingStrategy::sequential,
          .group_by_length = train && t.train_sampling_strategy == SamplingStrategy::group_by_length,
          .drop_last = train && t.dataloader_drop_last,
          .weights = train ? config.data.train_weights : std::vector<double>()};
}

// Throws ConfigError unless all files that data.KEY names exist.
void require_files(const char* key, const std::vector<std::string>& paths) {
  std::string missing;
  for (const auto& path : paths)
    if (!is_data_file(path))
      missing += cat(missing.empty() ? "" : "\n", "/data/", key, ": there is no data file or folder \"", path,
                     "\"; check the path, relative to the current directory");
  if (!missing.empty()) throw ConfigError(missing);
}

// The number of blocks in these files; unset if documents must be read to know it, or if a file is missing.
std::optional<int64_t> blocks_of(const Config& config, const TokenDataOptions& options,
                                 const std::vector<std::string>& paths, bool must_be_there) {
  std::vector<std::string> there = paths;
  if (!must_be_there) std::erase_if(there, [](const std::string& path) { return !is_data_file(path); });
  bool known = there.size() == paths.size() && config.data.used_packing() == Packing::wrapped;
  if (there.empty() && !paths.empty()) return {};
  read_first_row([&] { check_data_files(there, options.format, options.text_column); });
  int64_t tokens = 0, documents = 0;
  for (const auto& file : find_data_files(there, options.format)) {
    if (file.format == DataFormat::tokens) {
      const TokenFile ids(file.path);
      tokens += ids.size();
      documents += ids.documents();
      continue;
    }
    if (!options.tokenizer) throw missing_tokenizer(file);
    known = false;
  }
  if (!known) return {};
  try {
    return count_blocks(tokens, documents, config.data.sequence_length);
  } catch (const DataError& error) {
    throw about_files(paths, error);
  }
}

// Creates a cache with `prepare`, which reports its progress, and returns its path on this rank's host.
using ReportBytes = std::function<void(int64_t done, int64_t total)>;
std::filesystem::path prepare_on_each_host(const std::function<std::filesystem::path(const ReportBytes&)>& prepare,
                                           RankContext& context, Progress& progress) {
  const size_t rank = context.world->rank();
  const size_t maker = context.host_of.empty() ? 0 : context.host_of[rank];
  LongWork work(*context.world, "token cache", [&](int64_t done, int64_t total) {
    if (!context.out) return;
    if (total > 0)
      progress.update(done / kCachePasses, total / kCachePasses, "reading data");
    else
      progress.update(done, 0, "waiting for another job's token cache");
  });
  std::string path;
  if (rank == maker) path = prepare([&](int64_t done, int64_t total) { work.report(done, total); }).string();
  work.finish();
  return gather_strings(*context.world, path)[maker];
}

// The reader of the columns of tensors that a program takes; null: it takes none.
std::shared_ptr<const TensorColumns> tensors_of(const ModelSource& model) {
  if (!model.exported || model.exported->program->columns.empty()) return nullptr;
  return std::make_shared<const TensorColumns>(model.exported->program->columns);
}

// Throws DataError if one of these numbers, which belong to a row's tokens, is not below `count`.
template <class Number>
void check_below(const std::vector<Number>& numbers, int64_t count, const char* what, const DataRow& row) {
  for (const Number number : numbers)
    if (number >= count)
      throw DataError(cat(row.where, ": has the ", what, ' ', int64_t{number}, ", but the model has ", count,
                          " of them (0 to ", count - 1, "); use the model's own tokenizer"));
}

// The examples of a row, with their tensors. Ids, types and labels that the model does not have are reported now, not
// when a batch is read.
RowExamples encode(const LabelledTask& task, const TensorColumns* tensors, const ModelSpec& spec, const DataRow& row,
                   bool labelled) {
  RowExamples made = task.encode(row, labelled);
  for (Example& example : made.examples) {
    check_below(example.ids, spec.vocab_size, "token id", row);
    if (spec.type_count > 0 && !task.shape().sequences) check_below(example.types, spec.type_count, "token type", row);
    check_below(example.labels, spec.row_labels > 0 ? spec.row_labels : spec.vocab_size, "label", row);
    if (tensors) example.tensors = tensors->places(row);
  }
  return made;
}

// Checks the first row of each file in `paths`.
void check_rows(const Config& config, const ModelSource& model, const LabelledTask& task, DataPart part,
                const std::vector<std::string>& paths, bool labelled) {
  const auto tensors = tensors_of(model);
  for (const auto& path : paths) {
    if (!is_data_file(path)) continue;
    for (const DataFile& file : task_files(config, part, {path}))
      if (DataRow row; first_row(file, row))
        read_first_row([&] { encode(task, tensors.get(), model.spec, row, labelled); });
  }
}

// Throws ConfigError for label smoothing of a head whose loss is not a cross entropy of one class.
void check_smoothing(const Config& config, const HeadChoice& head) {
  if (config.training.label_smoothing_factor == 0) return;
  const bool is_answer = head.kind == HeadChoice::Kind::question_answering;
  const bool is_class =
      head.kind != HeadChoice::Kind::sequence_classification || head.problem == HeadChoice::Problem::single_label;
  if (!is_answer && is_class) return;
  throw ConfigError(cat("/training/label_smoothing_factor: has no effect ",
                        is_answer                                         ? "for question answering"
                        : head.problem == HeadChoice::Problem::regression ? "for regression"
                                                                          : "for several labels per text",
                        "; leave it out"));
}

// Checks the first row of each file of these parts, with its labels.
void check_examples(const Config& config, const PlannedModel& planned, const std::vector<DataPart>& parts) {
  check_smoothing(config, planned.model.head);
  const auto task = make_task(config, planned.model.head, tokenizer_of_task(config, planned.model.spec));
  for (const DataPart part : parts)
    check_rows(config, planned.model, *task, part, paths_of(config, part), /*labelled=*/true);
}

void check_blocks(const Config& config, const PlannedModel& planned, bool must_be_there) {
  const auto options = token_data_options(config, planned.model.spec);
  const DataOptions& data = config.data;
  auto blocks = blocks_of(config, options, paths_of(config, DataPart::train), must_be_there);
  if (!data.validation.empty()) blocks_of(config, options, paths_of(config, DataPart::validation), must_be_there);
  if (blocks && data.validation.empty() && data.validation_split_percentage > 0)
    *blocks -= count_held_out(*blocks, data.validation_split_percentage);
  // If the number of blocks is unknown, max_train_samples is an upper bound for it.
  if (data.max_train_samples && counts_blocks(data.used_packing()))
    blocks = std::min(*data.max_train_samples, blocks.value_or(*data.max_train_samples));
  if (!blocks) return;
  SampleOrderOptions order = sample_order(config, planned.plan.layout, /*train=*/true);
  order.samples = *blocks;
  order.weights.clear();  // a mixture has the same number of samples
  count_steps(config, SampleOrder(order).batches_per_epoch());
}

// The part of some data that is used: rows, or blocks of tokens.
template <class Data>
struct Part {
  std::shared_ptr<const Data> data;
  Selection units;
};
template <class Data>
struct Parts {
  std::optional<Part<Data>> train, validation;
};

template <class Data>
void limit(std::optional<Part<Data>>& part, const std::optional<int64_t>& most, const DataOptions& options) {
  if (part && most) part->units = part->units.at_most(*most, options.max_samples_seed);
}

// read(DataPart) reads all of a part.
template <class Data, class Read>
Parts<Data> read_parts(const DataOptions& options, bool with_train, const Read& read) {
  Parts<Data> parts;
  const bool splits = options.validation.empty() && options.validation_split_percentage > 0;
  if (with_train || splits) parts.train = read(DataPart::train);
  if (splits) {
    const Selection& all = parts.train->units;
    const int64_t held_out = count_held_out(all.size(), options.validation_split_percentage);
    auto [validation, train] = all.divided(held_out, options.validation_split_seed);
    parts.validation = {parts.train->data, std::move(validation)};
    parts.train->units = std::move(train);
  }
  if (!options.validation.empty()) parts.validation = read(DataPart::validation);
  limit(parts.train, options.max_train_samples, options);
  limit(parts.validation, options.max_eval_samples, options);
  if (!with_train) parts.train.reset();
  return parts;
}

}  // namespace

TokenizerPtr tokenizer_of_task(const Config& config, const ModelSpec& spec) {
  if (reads_columns(config) && config.data.tokenizer.empty()) return nullptr;
  TokenizerPtr tokenizer = require_tokenizer(config);
  check_ids_of(*tokenizer, config, spec);
  return tokenizer;
}

void check_data(const Config& config, const PlannedModel& planned, bool must_be_there) {
  const DataOptions& data = config.data;
  if (data.train.empty()) throw ConfigError("/data/train: no data to train on; name a file or a list of files");
  if (must_be_there) {
    require_files("train", data.train);
    require_files("validation", data.validation);
    require_files("validation_mismatched", data.validation_mismatched);
  }
  if (reads_text(config))
    check_blocks(config, planned, must_be_there);
  else
    check_examples(config, planned, {DataPart::train, DataPart::validation, DataPart::validation_mismatched});
  if (config.training.do_predict) check_predicted_data(config, planned, must_be_there);
}

void check_validation_data(const Config& config, const PlannedModel& planned) {
  const bool own_files = !config.data.validation.empty();
  require_files(own_files ? "validation" : "train", own_files ? config.data.validation : config.data.train);
  require_files("validation_mismatched", config.data.validation_mismatched);
  const DataPart part = own_files ? DataPart::validation : DataPart::train;
  if (!reads_text(config)) {
    return check_examples(config, planned, {part, DataPart::validation_mismatched});
  }
  const auto options = token_data_options(config, planned.model.spec);
  const auto blocks = blocks_of(config, options, paths_of(config, part), true);
  if (blocks && !own_files) count_held_out(*blocks, config.data.validation_split_percentage);
}

int64_t count_steps(const Config& config, int64_t steps_per_epoch) {
  const TrainingOptions& training = config.training;
  const int64_t steps = training.max_steps > 0
                            ? training.max_steps
                            : std::max<int64_t>(1, std::ceil(training.num_train_epochs * steps_per_epoch));
  try {
    learning_rate_options(training, steps);
  } catch (const ConfigError& error) {
    throw ConfigError(cat("/training/lr_scheduler_kwargs: ", error.what()));
  }
  return steps;
}

namespace {

JobData open_text(const Config& config, const ModelSource& model, const Layout& layout, RankContext& context,
                  bool with_train) {
  TokenDataOptions options = token_data_options(config, model.spec);
  const Packing packing = config.data.used_packing();
  const int64_t length = config.data.sequence_length;
  Progress progress(context.out ? *context.out : std::cerr, context.console, {});
  std::string digest;
  const auto read_paths = [&](const std::vector<std::string>& paths) -> Part<TokenCache> {
    options.paths = paths;
    const auto prepare = [&](const ReportBytes& report) {
      options.progress = report;
      return prepare_token_cache(options);
    };
    const auto cache = open_token_cache(prepare_on_each_host(prepare, context, progress));
    digest += cache->digest();
    try {
      return {cache, text_units(*cache, packing, length)};
    } catch (const DataError& error) {
      throw about_files(options.paths, error);
    }
  };
  const auto dataset = [&](const Part<TokenCache>& part) {
    return TextDataset(part.data, packing, length, part.units);
  };
  std::vector<TextDataset> mixed;
  for (const auto& paths : with_train ? mixed_paths(config) : std::vector<std::vector<std::string>>())
    mixed.push_back(dataset(read_paths(paths)));
  const auto read = [&](DataPart part) { return read_paths(paths_of(config, part)); };
  const auto parts = read_parts<TokenCache>(config.data, with_train && mixed.empty(), read);
  progress.finish();
  const auto source = [&](const std::optional<Part<TokenCache>>& part, bool train) {
    return part ? std::make_unique<DatasetSource>(dataset(*part), sample_order(config, layout, train)) : nullptr;
  };
  JobData data{.train = source(parts.train, true), .validation = source(parts.validation, false)};
  if (!mixed.empty())
    data.train = std::make_unique<DatasetSource>(std::move(mixed), sample_order(config, layout, /*train=*/true),
                                                 config.data.train);
  require_equal(*context.world, "data", digest);
  return data;
}

// The examples of all rows of these files, whose digest is added to `digest`.
std::shared_ptr<const ExampleSet> read_examples(const Config& config, const ModelSource& model,
                                                const LabelledTask& task, const std::vector<DataFile>& files,
                                                bool labelled, RankContext& context, Progress& progress,
                                                std::string& digest) {
  const auto tensors = tensors_of(model);
  ExampleShape shape = task.shape();
  shape.tensors = tensors ? tensors->size() : 0;
  const auto prepare = [&](const ReportBytes& report) {
    return prepare_examples(
        {.files = files,
         .shape = shape,
         .encode = [&](const DataRow& row) { return encode(task, tensors.get(), model.spec, row, labelled); },
         .chunk = labelled ? task.chunk() : 0,
         .settings = cat(task.settings(), labelled ? "" : ", without labels", tensors ? ", " + tensors->describe() : "",
                         ", of ", model.spec.vocab_size, " words and ", model.spec.type_count, " types"),
         .cache_folder = cache_folder(config),
         .threads = tokenizing_threads(),
         .progress = report});
  };
  const auto set = std::make_shared<const ExampleSet>(prepare_on_each_host(prepare, context, progress), tensors);
  digest += set->digest();
  return set;
}

JobData open_examples(const Config& config, const ModelSource& model, const Layout& layout, RankContext& context,
                      bool with_train) {
  JobData data{.task = make_task(config, model.head, tokenizer_of_task(config, model.spec)), .task_name = config.task};
  Progress progress(context.out ? *context.out : std::cerr, context.console, {});
  std::string digest;
  const auto read = [&](DataPart part) -> Part<ExampleSet> {
    const auto files = files_of(config, part);
    const auto set = read_examples(config, model, *data.task, files, /*labelled=*/true, context, progress, digest);
    return {set, rows_with_examples(*set)};
  };
  const auto parts = read_parts<ExampleSet>(config.data, with_train, read);
  const DataPart used_part = with_train || config.data.validation.empty() ? DataPart::train : DataPart::validation;
  std::vector<std::string> notes;
  if (context.out && config.task == kQuestionAnswering)
    notes = answer_notes(config, task_files(config, used_part, paths_of(config, used_part)));
  std::optional<Part<ExampleSet>> mismatched;
  if (!paths_of(config, DataPart::validation_mismatched).empty()) {
    mismatched = read(DataPart::validation_mismatched);
    limit(mismatched, config.data.max_eval_samples, config.data);
  }
  progress.finish();
  for (const std::string& note : notes) *context.out << "note: " << note << std::endl;
  const bool packs = config.task == kCausalLm && config.data.used_packing() == Packing::bfd;
  const auto source = [&](const std::optional<Part<ExampleSet>>& part, bool train) -> std::unique_ptr<ExampleSource> {
    if (!part) return nullptr;
    ExampleSource::Options options{.packed_length = packs ? config.data.sequence_length : 0};
    if (const auto rule = data.task->masking())
      options.masking.emplace(*rule, train ? config.training.seed : kEvaluationMaskSeed);
    return std::make_unique<ExampleSource>(examples_of_rows(part->data, part->units),
                                           sample_order(config, layout, train), options);
  };
  if (auto train = source(parts.train, true)) {
    data.label_counts = count_labels(train->data(), model.head);
    data.train = std::move(train);
  }
  const auto evaluate = [&](const char* suffix, std::unique_ptr<ExampleSource> evaluated, DataPart part) {
    if (evaluated) data.evaluated.push_back({suffix, evaluated->data(), files_of(config, part)});
    return evaluated;
  };
  data.validation = evaluate("", source(parts.validation, false),
                             config.data.validation.empty() ? DataPart::train : DataPart::validation);
  data.mismatched = evaluate("_mm", source(mismatched, false), DataPart::validation_mismatched);
  require_equal(*context.world, "data", digest);
  return data;
}

}  // namespace

JobData open_data(const Config& config, const ModelSource& model, const Layout& layout, RankContext& context,
                  bool with_train) {
  return reads_text(config) ? open_text(config, model, layout, context, with_train)
                            : open_examples(config, model, layout, context, with_train);
}

namespace {

// The part of the data for which predictions are made.
DataPart predicted_part(const Config& config) {
  return config.data.test.empty() ? DataPart::validation : DataPart::test;
}

}  // namespace

void require_predicted_data(const Config& config) {
  const auto head = traits_of(config.task).head;
  if (head == HeadChoice::Kind::causal_lm || head == HeadChoice::Kind::seq2seq_lm)
    throw ConfigError("/task: predict needs another task; language models generate text instead");
  if (paths_of(config, predicted_part(config)).empty())
    throw ConfigError("/data/test: no data to predict for; name files, e.g. --set data.test=FILE");
}

std::string predictions_file(const Config& config) {
  return config.output_dir + "/predictions.jsonl";
}

void check_predicted_data(const Config& config, const PlannedModel& planned, bool must_be_there) {
  require_predicted_data(config);
  const DataPart part = predicted_part(config);
  const auto paths = paths_of(config, part);
  if (must_be_there) require_files(part == DataPart::test ? "test" : "validation", paths);
  const auto task = make_task(config, planned.model.head, tokenizer_of_task(config, planned.model.spec));
  check_rows(config, planned.model, *task, part, paths, /*labelled=*/false);
}

PredictedData open_predicted_data(const Config& config, const ModelSource& model, const Layout& layout,
                                  RankContext& context) {
  require_predicted_data(config);
  const DataPart part = predicted_part(config);
  PredictedData data{.task = make_task(config, model.head, tokenizer_of_task(config, model.spec)),
                     .files = files_of(config, part)};
  Progress progress(context.out ? *context.out : std::cerr, context.console, {});
  std::string digest;
  const auto set = read_examples(config, model, *data.task, data.files, /*labelled=*/false, context, progress, digest);
  std::optional<Part<ExampleSet>> predicted = Part<ExampleSet>{set, rows_with_examples(*set)};
  limit(predicted, config.data.max_predict_samples, config.data);
  data.examples = examples_of_rows(set, predicted->units);
  progress.finish();
  data.source = std::make_unique<ExampleSource>(data.examples, sample_order(config, layout, /*train=*/false));
  require_equal(*context.world, "data", digest);
  return data;
}

}  // namespace shardline
