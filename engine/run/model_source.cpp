#include "engine/run/model_source.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>
#include <utility>

#include "core/error.h"
#include "core/model/parameter_init.h"
#include "core/model/parameter_patterns.h"
#include "engine/config/keys/tensor_rules.h"
#include "engine/config/rules/model_rules.h"
#include "engine/config/rules/program_rules.h"
#include "engine/config/rules/shell_words.h"
#include "models/families/families.h"
#include "models/files/hf_layout.h"
#include "models/files/new_rows.h"
#include "models/files/tensor_files.h"
#include "models/program/masks/unmasked.h"
#include "models/program/program_file.h"
#include "models/traced/sample_check.h"

namespace shardline {
namespace {

// The costs of a program are determined at this length, and scaled to other lengths.
constexpr int kTracedLength = 128;

std::shared_ptr<const HfDirectory> open_directory(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored))
    throw ConfigError(cat("/model/path: \"", path,
                          "\" is not a directory; name one with config.json and *.safetensors or ", kTorchFile,
                          ", or a program of torch.export (.pt2)"));
  if (!std::filesystem::exists(path + "/config.json", ignored))
    throw ConfigError(cat("/model/path: ", path, " has no config.json; name a model directory"));
  return std::make_shared<HfDirectory>(path);
}

void apply_patterns(const Config& config, ModelSpec& spec) {
  exclude_from_decay(config.training.no_decay_patterns, spec, "/training/no_decay_patterns");
  freeze_others(config.training.trainable, spec, "/training/trainable");
}

ModelSpec spec_of_family(const Config& config, const nlohmann::json& hf_config, const SplitChoices& splits = {}) {
  const auto adjust = [&](ModelSpec& spec) { apply_patterns(config, spec); };
  return model_spec(hf_config, "the model", config.smp.sequence_parallel(), splits, adjust, head_choice(config));
}

// Why the files' weights do not match the model of the directory's config with `overrides`; empty if they do.
std::string difference(const Config& config, const HfDirectory& directory, const nlohmann::json& overrides) {
  const HfModel model = read_hf_model(directory.config(), overrides, head_choice(config));
  if (!model.mistakes.empty()) return "";  // such a key needs others to be set with it
  try {
    directory.check_names(spec_of_family(config, model.config));
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

// Checks that the files hold this model. Throws ConfigError if keys of model.config contradict them, otherwise
// DataError.
NameReport check_weights(const Config& config, const HfDirectory& directory, const ModelSpec& spec) try {
  return directory.check_names(spec);
} catch (const DataError& error) {
  if (!holds_model(directory.path())) throw ConfigError(cat("/model/path: ", error.what()));
  const auto own = difference(config, directory, nlohmann::json::object());
  std::string text;
  for (const auto& [key, value] : config.model.config.items())
    if (const auto said = difference(config, directory, {{key, value}}); !said.empty() && said != own)
      text += cat(text.empty() ? "" : "\n", "/model/config/", key, ": contradicts the weights in ", directory.path(),
                  "; got ", value.dump(), "; leave it out, or set model.init to \"random\"");
  if (text.empty()) throw;
  throw ConfigError(text);
}

// place: the key that names the program.
void check_use_of_program(const Config& config, const char* place) {
  if (config.training.attention_in_fp32 || config.training.query_key_layer_scaling)
    throw ConfigError(cat(place, ": a program contains its own attention; leave attention_in_fp32 and ",
                          "query_key_layer_scaling out"));
  if (config.training.neftune_noise_alpha)
    throw ConfigError("/training/neftune_noise_alpha: programs do not support noise on their embeddings; leave it out");
}

// The head that the program has.
HeadChoice head_of_program(const Config& config, const Program& program) {
  using Kind = HeadChoice::Kind;
  using Problem = HeadChoice::Problem;
  HeadChoice head = head_choice(config);
  if (head.kind == Kind::sequence_classification || head.kind == Kind::token_classification) {
    if (program.labels == 0)
      throw ConfigError(cat(program.archive.place(), ": returns no logits whose last size is the number of labels; ",
                            program.archive.verb(), " it with such logits, [batch, 1] for one number"));
    head.labels = program.labels;
  }
  if (head.kind == Kind::sequence_classification) {
    if (program.loss.has(ProgramLossTerm::Kind::cross_entropy)) head.problem = Problem::single_label;
    if (program.loss.has(ProgramLossTerm::Kind::binary)) head.problem = Problem::multi_label;
    if (program.loss.has(ProgramLossTerm::Kind::squared_error)) head.problem = Problem::regression;
  }
  name_labels(config.model.config, head);
  return head;
}

int traced_length(const Config& config) {
  return reads_columns(config) ? config.data.sequence_length : std::min(config.data.sequence_length, kTracedLength);
}

void set_program(const Config& config, std::shared_ptr<const ExportedModel> model, ModelSource& source) {
  source.exported = std::move(model);
  if (const int64_t most = source.exported->specs.whole().max_positions; config.data.sequence_length > most) {
    const Program& program = *source.exported->program;
    const int64_t source_rows = program.source_rows();
    const bool is_fixed = program.columns.empty() ? program.fixed_source() > 0 : program.fixed_target() > 0;
    throw ConfigError(cat(source_rows > 0 ? "/data/max_target_length" : "/data/sequence_length",
                          ": must be at most the ", most - source_rows, " positions of ", program.archive.path,
                          "; got ", config.data.sequence_length - source_rows, "; ",
                          is_fixed ? cat("set it to ", most - source_rows, ", or ", program.archive.verb(),
                                         " the program with dynamic_shapes {1: Dim.AUTO}")
                                   : cat("use shorter ", source_rows > 0 ? "targets" : "samples")));
  }
  source.spec = make_spec(config, source);
}

// files: a parameter's value is taken from the first of them that has it.
void find_unused(const std::vector<const HfDirectory*>& files, ModelSource& source) {
  const Pt2Archive& archive = source.exported->program->archive;
  for (const auto& buffer : source.spec.buffers) {
    if (archive.constants.contains(buffer.name)) continue;
    for (const auto* directory : files)
      if (auto& value = (*source.unused)[buffer.name]; !value.defined()) value = directory->buffer(buffer);
  }
}

std::shared_ptr<const Program> read_program(const Config& config) {
  const std::string& path = config.model.path;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored))
    throw ConfigError(cat("/model/path: \"", path, "\" is not a file; name an archive of torch.export.save"));
  return cut_program(read_pt2(path), program_use(config, config.model.config));
}

ModelSource open_program(const Config& config) {
  check_use_of_program(config, "/model/path");
  const std::string& path = config.model.path;
  const auto program = with_unmasked(read_program(config), config.data.sequence_length);
  ModelSource source{.hf_config = {{kProgramName, std::filesystem::path(path).filename().string()}},
                     .head = head_of_program(config, *program)};
  put_head(source.hf_config, source.head, "");
  source.directory = std::make_shared<HfDirectory>(path, TensorFiles{{kProgramFile, *program->archive.weights}});
  set_program(config, std::make_shared<ExportedModel>(program, ProgramSpecs(program, traced_length(config))), source);
  source.names = source.directory->check_names(source.spec);
  find_unused({source.directory.get()}, source);
  return source;
}

// The loss of a model that computes none.
std::string usual_loss(const HeadChoice& head) {
  if (head.kind == HeadChoice::Kind::question_answering) return "";
  if (head.problem == HeadChoice::Problem::regression) return "mse";
  return head.problem == HeadChoice::Problem::multi_label ? "bce_with_logits" : "cross_entropy";
}

// files: the trained weights; null: the module starts with its own values.
std::shared_ptr<const Program> traced_program(const Config& config, const HfModel& model, const HfDirectory* files) {
  Pt2Archive archive = model.trace(config.training.seed, traced_length(config));
  if (files) read_buffers(*files, archive);
  ProgramUse use = program_use(config, model.config);
  const bool has_loss = std::ranges::any_of(archive.graph.outputs, [&](const GraphOutput& output) {
    return archive.graph.values[output.value].sizes.empty();
  });
  if (!has_loss && use.loss_output.empty() && use.loss_function.empty()) use.loss_function = usual_loss(model.head);
  return cut_program(std::move(archive), use);
}

std::shared_ptr<const ExportedModel> traced(const Config& config, const HfModel& model, const HfDirectory* files) {
  const auto program = with_unmasked(traced_program(config, model, files), config.data.sequence_length);
  const auto predicts = program->use.predicts;
  const bool has_labels = predicts == ProgramUse::Predicts::segment || predicts == ProgramUse::Predicts::row;
  if (has_labels && program->labels != model.head.labels)
    throw ConfigError(cat(program->archive.place(), " returns logits of ", program->labels, " labels, but there are ",
                          model.head.labels, "; make the module with as many labels as num_labels in its config"));
  const auto made = std::make_shared<ExportedModel>(program, ProgramSpecs(program, traced_length(config)));
  check_samples(program, made->specs.whole(), traced_length(config));
  return made;
}

// Opening a model runs its modules, so a model is kept as long as one of the process's ranks uses it.
std::shared_ptr<const ExportedModel> shared_traced(const Config& config, const HfModel& model,
                                                   const HfDirectory* files) {
  static std::mutex opening;
  static std::map<std::string, std::weak_ptr<const ExportedModel>> open;
  const std::string key =
      nlohmann::json{
          model.config,         config.task,           config.model.inputs,        config.model.loss,
          config.training.seed, traced_length(config), files ? files->path() : "", files ? files->digest() : ""}
          .dump();
  const std::scoped_lock lock(opening);
  auto& entry = open[key];
  auto made = entry.lock();
  if (!made) entry = made = traced(config, model, files);
  if (!made->program->buffers) return made;
  // Runs of one process may be at different steps, and continue from different checkpoints: each has its own states of
  // buffers, and everything else in common.
  const auto own = std::make_shared<Program>(*made->program);
  own->buffers = cut_program(own->archive, own->use)->buffers;
  const auto* copy = new ExportedModel{own, ProgramSpecs(own, traced_length(config))};
  return {copy, [made](const ExportedModel* one) { delete one; }};
}

// Opens the modules whose description has been read.
void open_traced(const Config& config, const HfModel& model, ModelSource& source) {
  check_use_of_program(config, "/model/config/model_type");
  const HfDirectory* files = config.model.pretrained() ? source.directory.get() : nullptr;
  set_program(config, shared_traced(config, model, files), source);
  const Pt2Archive& archive = source.exported->program->archive;
  source.own_values = std::make_shared<HfDirectory>(archive.path, TensorFiles{{kProgramFile, *archive.weights}});
  if (files) source.names = files->check_names(source.spec);
  std::vector<const HfDirectory*> all = {source.own_values.get()};
  if (files) all.insert(all.begin(), files);
  find_unused(all, source);
}

// Calls fill(parameter, filled) for each parameter that this rank stores; `filled` is called with bytes. Collective.
template <class Fill>
void fill_with_progress(StageParameters& parameters, const LongWork::Show& show, const Fill& fill) {
  int64_t done = 0, total = 0;
  for (const auto* parameter : parameters.stored()) total += parameter->value.nbytes();
  LongWork work(*parameters.groups().world, "filling parameters", show);
  work.report(0, total);
  const auto filled = [&](int64_t bytes) { work.report(done += bytes, total); };
  parameters.fill_values([&](Parameter& parameter) { fill(parameter, filled); });
  work.finish();
}

}  // namespace

std::function<BufferValues(int64_t steps)> buffers_of(const ModelSource& source) {
  if (!source.exported) return [](int64_t) { return BufferValues(); };
  return [program = source.exported->program, unused = source.unused](int64_t steps) {
    BufferValues values = buffer_values(*program, steps);
    values.insert(unused->begin(), unused->end());
    return values;
  };
}

void continue_buffers(const HfDirectory& files, const ModelSource& source, int64_t steps) {
  if (!source.exported) return;
  continue_buffers(files, *source.exported->program, steps);
  for (const auto& buffer : source.spec.buffers)
    if (const auto unused = source.unused->find(buffer.name); unused != source.unused->end())
      if (const at::Tensor stored = files.buffer(buffer); stored.defined())
        unused->second = stored.clone();  // the run may remove the files
}

bool holds_model(const std::string& directory) {
  return has_file(directory, kConfigFile) && has_weights(directory);
}

std::string path_of_model(const std::string& directory) {
  return holds_program(directory) ? (std::filesystem::path(directory) / kProgramFile).string() : directory;
}

std::string setting_of_model(const std::string& directory) {
  return "--set " + shell_quoted("model.path=" + path_of_model(directory));
}

std::string weights_text(const ModelOptions& options) {
  if (options.pretrained()) return options.path;
  return options.path.empty() ? "random" : cat("random (config of ", options.path, ')');
}

Config with_sample_length(const Config& config) {
  if (!reads_columns(config)) return config;
  std::shared_ptr<const Program> program;
  if (config.model.is_program()) {
    program = read_program(config);
  } else {
    const auto model = described_model(config.model, head_choice(config));
    if (!model || !model->trace) return config;  // reported when the model is opened
    program = traced_program(config, *model, nullptr);
  }
  const int64_t target = program->has_target() ? config.data.max_target_length : 0;
  const int64_t length = program->source_rows() + target, stated = config.data.sequence_length;
  if (stated != length && stated != DataOptions().sequence_length)
    throw ConfigError(cat(
        "/data/sequence_length: must be ", length, " because samples are columns of tensors: ", program->archive.path,
        " computes ", program->source_rows(), " hidden states for each sample",
        target > 0 ? cat(", and data.max_target_length is ", target) : "", "; got ", stated, "; leave it out"));
  Config completed = config;
  completed.data.sequence_length = length;
  return completed;
}

ModelSource open_model(const Config& config) {
  const ModelOptions& options = config.model;
  if (options.is_program()) return open_program(config);
  ModelSource source;
  if (!options.path.empty() && !options.config.contains("model_type") && holds_program(options.path))
    throw ConfigError(cat("/model/path: ", options.path, " holds an exported program; name its file, for instance ",
                          setting_of_model(options.path)));
  if (!options.path.empty()) source.directory = open_directory(options.path);
  const HfModel model = read_hf_model(source.directory ? source.directory->config() : nlohmann::json::object(),
                                      options.config, head_choice(config));
  const std::string own = "/model/config", file = options.path.empty() ? own : options.path + "/config.json: ";
  if (!model.mistakes.empty()) throw ConfigError(mistakes_text(model.mistakes, file, own));
  source.hf_config = model.config;
  source.head = model.head;
  source.features = model.features;
  source.initial_values = model.initial_values;
  if (model.trace) {
    open_traced(config, model, source);
    return source;
  }
  source.spec = make_spec(config, source);
  if (source.directory && options.pretrained()) source.names = check_weights(config, *source.directory, source.spec);
  return source;
}

void check_program(const Config& config, const ModelSource& model) {
  if (config.model.is_program())
    check_samples(model.exported->program, model.exported->specs.whole(), traced_length(config));
}

ModelSpec make_spec(const Config& config, const ModelSource& model, const SplitChoices& splits) {
  if (!model.exported) return spec_of_family(config, model.hf_config, splits);
  const ProgramSpecs& specs = model.exported->specs;
  const int tensor = config.smp.tensor_parallel_degree;
  // Rules refer to units by name, even if nothing is split; an open degree needs units, too.
  const bool names_units = tensor == kAuto || !config.smp.tensor_parallel_layers.entries.empty();
  ModelSpec spec = tensor > 1    ? specs.split(tensor, splits, config.smp.sequence_parallel())
                   : names_units ? specs.with_units(splits)
                                 : specs.whole();
  apply_patterns(config, spec);
  return spec;
}

std::map<std::string, int> parameter_numbers(const ModelSpec& spec) {
  std::map<std::string, int> numbers;
  for (const auto& layer : spec.layers)
    for (const auto& param : layer.params) numbers.emplace(layer.full_name(param), numbers.size());
  return numbers;
}

std::string fill_parameters(const ModelOptions& options, const ModelSource& source, uint64_t seed,
                            StageParameters& parameters, const LongWork::Show& show) {
  const auto numbers = parameter_numbers(source.spec);
  const HfDirectory* files = options.pretrained() ? source.directory.get() : source.own_values.get();
  const RankGroups& groups = parameters.groups();
  const int t = groups.coordinates.t, t_degree = groups.mesh.t();
  const auto fill_own = source.initial_values ? source.initial_values(seed) : nullptr;
  fill_with_progress(parameters, show, [&](Parameter& parameter, const auto& filled) {
    if (files && files->holds(*parameter.spec)) {
      files->read(*parameter.spec, parameter.name, t, t_degree, parameter.value, filled);
      if (files->rows_of(*parameter.spec) < parameter.spec->shape[0])
        draw_new_rows(*files, *parameter.spec, parameter.name, numbers.at(parameter.name), seed, t, t_degree,
                      parameter.value, filled);
      return;
    }
    if (fill_own)
      fill_own(parameter);
    else
      init_parameter(parameter, numbers.at(parameter.name), seed, t, t_degree);
    filled(parameter.value.nbytes());
  });
  return files ? files->digest() : "random";
}

std::string read_parameters(const HfDirectory& directory, StageParameters& parameters, const LongWork::Show& show) {
  const RankGroups& groups = parameters.groups();
  fill_with_progress(parameters, show, [&](Parameter& parameter, const auto& filled) {
    directory.read(*parameter.spec, parameter.name, groups.coordinates.t, groups.mesh.t(), parameter.value, filled);
  });
  return directory.digest();
}

}  // namespace shardline
